"""The text of statements as a whole: its limits, its tokens, where one statement ends, and which is which.

The text is cut into tokens once, checked against the limits before anything recursive sees it, and split at `;`. Each
statement is then read on its own, so that problems of several statements are reported together.
"""

from __future__ import annotations

import re

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from headgate_coordinator.errors import STATEMENT_TOO_LARGE, UNSUPPORTED
from headgate_coordinator.sql.dialect import Headgate, parse_condition
from headgate_coordinator.sql.errors import Problem, SourceText, StatementError, Step, did_you_mean, one_of, quoted
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.parse.alter import take_alter
from headgate_coordinator.sql.parse.create import take_create
from headgate_coordinator.sql.parse.cursor import Cursor
from headgate_coordinator.sql.parse.drop import take_drop, take_stop
from headgate_coordinator.sql.parse.query import QUERY_BEGINS, take_query
from headgate_coordinator.sql.parse.secrets import SECRET_NAMES, secret_places
from headgate_coordinator.sql.parse.show import take_describe, take_explain, take_show, take_watch
from headgate_coordinator.sql.statements import QueryStatement, Statement

_VERBS = ("CREATE", "ALTER TOPIC", "DROP", "STOP", "SELECT", "INSERT INTO", "SHOW", "DESCRIBE", "EXPLAIN", "WATCH")
_ELSEWHERE = {
    "UPDATE": "rows of a stream are not updated; a query computes new ones",
    "DELETE": "rows of a stream are not deleted; a query filters them with WHERE",
    "MERGE": "use a query with a JOIN",
    "TRUNCATE": "a FILE sink with APPEND = false is emptied when its query first starts",
    "BEGIN": "the shell gathers statements between BEGIN and COMMIT; a program sends them with ApplyBundle",
    "START": "a query starts when it is created, and a stopped one is never started again",
    "COMMIT": "the shell gathers statements between BEGIN and COMMIT; a program sends them with ApplyBundle",
    "ROLLBACK": "the shell gathers statements between BEGIN and COMMIT; a program sends them with ApplyBundle",
    "SET": "options stand in the statement they belong to",
    "USE": "there are no databases or schemas: names are of the whole catalog",
    "GRANT": "there are no permissions yet",
    "REVOKE": "there are no permissions yet",
    "SUBSCRIBE": "write WATCH SELECT ... FROM queries",
}
_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END}
# Signs and words that sqlglot descends into one by one: `- - - 1`, `NOT NOT a`, `a -> b -> c`, `INTERVAL INTERVAL`.
_PREFIXES = {TokenType.DASH, TokenType.TILDE, TokenType.NOT, TokenType.PLUS, TokenType.ARROW, TokenType.INTERVAL}

# A quick guess at the number of tokens, to refuse what is far beyond the limit before it takes time and memory. A sign
# of two or three characters counts as so many, hence the factor.
_ROUGH_TOKEN = re.compile(
    r"""\s+|--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^'\\]|\\.)*(?:'|\Z)|`[^`]*(?:`|\Z)|"[^"]*(?:"|\Z)|(\w+|[^\w\s])""", re.DOTALL
)
_ROUGHNESS = 3


def parse_statements(text: str, limits: StatementLimits | None = None) -> list[Statement]:
    """The statements of a text, in order; at least one. Offsets in them point into the whole text."""
    limits = limits or StatementLimits()
    source = SourceText(text)
    tokens = _tokens(source, limits)
    statements: list[Statement] = []
    problems: list[Problem] = []
    for group in _split(tokens, source, limits):
        try:
            statements.append(_statement(Cursor(group, source, limits)))
        except StatementError as error:
            problems.extend(error.problems)
    if problems:
        raise StatementError(problems, source)
    return statements


def parse_query_statement(text: str, limits: StatementLimits | None = None) -> QueryStatement:
    """The one query of a text, as CreateQuery and ExplainQuery take it; anything else is refused."""
    statements = parse_statements(text, limits)
    statement = statements[0]
    if len(statements) > 1:
        problem = statement.source.problem(
            Step.PARSE, statements[1].offset, "expected one query, found several statements"
        )
        raise StatementError([problem], statement.source)
    if not isinstance(statement, QueryStatement):
        problem = statement.source.problem(
            Step.PARSE, statement.offset, f"expected a query, found {statement.verb}", "write SELECT ..."
        )
        raise StatementError([problem], statement.source)
    return statement


def parse_where(text: str, limits: StatementLimits | None = None) -> tuple[exp.Expr, SourceText]:
    """A condition that stands alone, as in WatchRequest.where."""
    limits = limits or StatementLimits()
    source = SourceText(text)
    tokens = _tokens(source, limits)
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            raise StatementError([source.problem(Step.PARSE, token.start, "unexpected `;` in a condition")], source)
    return parse_condition(tokens, source, limits), source


def _tokens(source: SourceText, limits: StatementLimits) -> list[Token]:
    """The tokens of the text, without comments, within the limits."""
    text = source.text
    if len(text) > limits.max_length:
        _too_large(source, None, f"a text of statements is at most {limits.max_length:,} characters, not {len(text):,}")
    nul = text.find("\0")
    if nul >= 0:
        raise StatementError([source.problem(Step.PARSE, nul, "there is a NUL character in the text")], source)
    roughly = sum(1 for match in _ROUGH_TOKEN.finditer(text) if match.lastindex)
    if roughly > limits.max_tokens * _ROUGHNESS:
        _too_large(source, None, f"a text of statements has at most {limits.max_tokens:,} words, not {roughly:,}")
    tokenizer = Headgate.Tokenizer(Headgate)
    try:
        tokens = tokenizer.tokenize(text)
    except SqlglotError as error:
        # The tokenizer tells where it stopped, not where the token began that it could not finish; its core knows.
        at = min(tokenizer._core._start, len(text))
        if any(name in text.lower() for name in SECRET_NAMES):
            source.hidden.append((0, len(text)))
        raise StatementError([source.problem(Step.PARSE, at, _token_problem(text, at, error))], source) from None
    if len(tokens) > limits.max_tokens:
        _too_large(
            source, tokens[limits.max_tokens].start, f"a text of statements has at most {limits.max_tokens:,} words"
        )
    source.hidden.extend(secret_places(tokens))
    depth = prefixes = 0
    for token in tokens:
        # Comments are for people; sqlglot would carry them into the tree, and obey some of them.
        token.comments.clear()
        if token.token_type in _OPENING:
            depth += 1
        elif token.token_type in _CLOSING:
            depth -= 1
        elif token.token_type is TokenType.SEMICOLON:
            depth = 0
        prefixes = prefixes + 1 if token.token_type in _PREFIXES else 0
        if depth > limits.max_depth or prefixes > limits.max_depth:
            _too_large(source, token.start, f"statements nest at most {limits.max_depth} deep")
    return tokens


def _too_large(source: SourceText, offset: int | None, message: str) -> None:
    raise StatementError([source.problem(Step.PARSE, offset, message, "", STATEMENT_TOO_LARGE)], source)


def _token_problem(text: str, at: int, error: SqlglotError) -> str:
    """What is wrong with the token that begins at an offset."""
    if text.startswith("/*", at):
        return "a comment is not closed"
    if "Missing" in str(error.__cause__ or error):
        return "a quoted name is not closed" if text[at : at + 1] in ("`", '"') else "a string is not closed"
    return f"{quoted(text[at : at + 20])} cannot be read"


def _split(tokens: list[Token], source: SourceText, limits: StatementLimits) -> list[list[Token]]:
    groups: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            groups.append([])
        else:
            groups[-1].append(token)
    groups = [group for group in groups if group]
    if not groups:
        raise StatementError([source.problem(Step.PARSE, 0, "there is no statement in the text")], source)
    if len(groups) > limits.max_statements:
        _too_large(
            source, groups[limits.max_statements][0].start, f"a text has at most {limits.max_statements:,} statements"
        )
    return groups


def _statement(cursor: Cursor) -> Statement:
    start = cursor.offset
    if cursor.word() in QUERY_BEGINS or cursor.at("INSERT", "INTO"):
        return take_query(cursor, start)
    if cursor.accept("CREATE"):
        return take_create(cursor, start)
    if cursor.accept("ALTER"):
        return take_alter(cursor, start)
    if cursor.accept("DROP"):
        return take_drop(cursor, start)
    if cursor.accept("STOP"):
        return take_stop(cursor, start)
    if cursor.accept("SHOW"):
        return take_show(cursor, start)
    if cursor.accept("DESCRIBE") or cursor.accept("DESC"):
        return take_describe(cursor, start)
    if cursor.accept("EXPLAIN"):
        return take_explain(cursor, start)
    if cursor.accept("WATCH"):
        return take_watch(cursor, start)
    word = cursor.word()
    if word in _ELSEWHERE:
        raise cursor.refusal(f"there is no {word} statement", suggestion=_ELSEWHERE[word], reason=UNSUPPORTED)
    raise cursor.refusal(
        f"expected a statement, found {cursor.found()}",
        suggestion=did_you_mean(word, _VERBS) or f"statements begin with {one_of(_VERBS)}",
    )
