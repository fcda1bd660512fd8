"""The SQL dialect: Spark's expressions, ordinary quoting, our types and windows, on sqlglot's tokenizer and parser.

Spark is the base because queries run there: a function means here what it means in Spark. What differs:

- names may be quoted with `"` as well as with backticks; strings have single quotes only, `''` is a quote in them, and
  backslash escapes such as `\\n` mean what they mean in Spark;
- types in CAST are those of `types`, and every type is a function too: `FLOAT32(40)`;
- windows become `nodes.StreamWindow` (see there for where they hang);
- `CAST` is strict (`exp.Cast`), `TRY_CAST` gives NULL (`exp.TryCast`);
- only queries are parsed here: statements around them belong to `parse`.

`parse_query` and `parse_condition` are the way in. They raise `StatementError`, never an error of sqlglot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from headgate_coordinator.errors import STATEMENT_TOO_LARGE, UNSUPPORTED
from headgate_coordinator.sql.errors import QuerySyntaxError, SourceText, StatementError, Step, did_you_mean, quoted
from headgate_coordinator.sql.limits import StatementLimits, make_room_for_recursion
from headgate_coordinator.sql.nodes import StreamWindow
from headgate_coordinator.sql.strictness import StrictSyntax, closed
from headgate_coordinator.sql.types import TYPE_NAMES, TypeSyntaxError, parse_type, to_tree
from headgate_coordinator.sql.windows import WindowSyntax, lift_window_functions, retagged, unwrap_group

E = TypeVar("E", bound=exp.Expr)
_CLAUSES = ("FROM", "WHERE", "GROUP BY", "HAVING", "WINDOW", "INTO", "WITH", "JOIN", "ON", "ORDER BY", "LIMIT", "UNION")
# A parser that goes back may read a token again. So often, on average, and then the text is refused.
_REREADS_PER_TOKEN = 200
_PARAMETERS = (TokenType.PLACEHOLDER, TokenType.PARAMETER, TokenType.COLON)


class TooMuchWork(SqlglotError):
    """The parser went back and forth beyond reason. Not a ParseError, so that sqlglot does not catch it."""


def _cast_to(name: str) -> Callable[[list[exp.Expr]], exp.Expr]:
    def build(arguments: list[exp.Expr]) -> exp.Expr:
        if len(arguments) != 1:
            raise ParseError(f"{name} as a cast takes one argument")
        return exp.Cast(this=arguments[0], to=to_tree(parse_type(name)))

    return build


# Names of types that are not functions of their own in Spark (ARRAY, MAP, STRUCT and CHAR build values there).
_CAST_FUNCTIONS = {
    name: _cast_to(name) for name in sorted(TYPE_NAMES) if name not in ("ARRAY", "MAP", "STRUCT", "ROW", "CHAR")
}


# Functions whose arguments are not a plain list: CAST(x AS T), EXTRACT(unit FROM x), TRIM(LEADING x FROM y), ...
_SPECIAL_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "TRIM", "SUBSTRING", "POSITION", "OVERLAY")


def _stamped(key: TokenType) -> Callable[[HeadgateParser], tuple[str, Any]]:
    """A modifier parser of Spark that notes where its clause began."""
    inner: Callable[[HeadgateParser], tuple[str, Any]] = SparkParser.QUERY_MODIFIER_PARSERS[key]

    def parse(parser: HeadgateParser) -> tuple[str, Any]:
        token = parser.current
        name, clause = inner(parser)
        if isinstance(clause, exp.Expr):
            clause.update_positions(token)
        return name, clause

    return parse


class HeadgateParser(WindowSyntax, StrictSyntax, SparkParser):
    """Spark's parser with windows, our types, places on every node, and a bound on its work."""

    STRICT_CAST = True
    # After WITH ... AS (...) comes a query and nothing else.
    STATEMENT_PARSERS: ClassVar = {}
    # Calls stay what was written (exp.Anonymous): `functions` is the list of those there are. sqlglot's own nodes would
    # change arguments on the way, such as formats of times. ARRAY and MAP are kept: without them, sqlglot takes
    # ARRAY(1, 2)[0] for ARRAY[0].
    FUNCTIONS: ClassVar = {
        **{name: SparkParser.FUNCTIONS[name] for name in ("ARRAY", "MAP")},
        **_CAST_FUNCTIONS,
    }
    FUNCTION_PARSERS: ClassVar = {
        **{name: closed(SparkParser.FUNCTION_PARSERS[name]) for name in _SPECIAL_SYNTAX},
        "WINDOW": closed(lambda self: self.parse_window_function()),
        "SESSION_WINDOW": closed(lambda self: self.parse_session_function()),
    }
    QUERY_MODIFIER_PARSERS: ClassVar = {
        **{key: _stamped(key) for key in SparkParser.QUERY_MODIFIER_PARSERS},
        TokenType.WINDOW: lambda self: self.parse_window_clause(),
    }

    def _parse_trim(self) -> exp.Expr:  # type: ignore[override]
        """TRIM(a, b) stays a plain call: which of the two is trimmed depends on whom one asks, and it is refused."""
        if self._curr.text.upper() in self.TRIM_TYPES:
            return super()._parse_trim()
        first = self._parse_bitwise()
        if self._match(TokenType.COMMA):
            return self.expression(exp.Anonymous(this="trim", expressions=[first, self._parse_bitwise()]))
        if self._match(TokenType.FROM):
            return self.expression(exp.Trim(this=self._parse_bitwise(), expression=first))
        return self.expression(exp.Trim(this=first))

    @property
    def current(self) -> Token:
        return self._curr

    def begin(self, tokens: list[Token], text: str) -> None:
        """Takes the tokens of one query or condition."""
        self.reset()
        self.sql = text
        self._rereads = _REREADS_PER_TOKEN * (len(tokens) + 50)
        self._chunks = [retagged(tokens)]
        self._advance_chunk()

    def finish(self) -> None:
        """Refuses what is left over."""
        if self._index < self._tokens_size:
            self.raise_error("Invalid expression / Unexpected token")

    def _retreat(self, index: int) -> None:
        self._rereads -= max(0, self._index - index)
        if self._rereads < 0:
            raise TooMuchWork()
        super()._retreat(index)

    def raise_error(self, message: str, token: Token | None = None) -> None:
        at = token or self._curr
        found = quoted(self.sql[at.start : at.end + 1]) if at else "the end of the SELECT"
        offset = at.start if at else (self._prev.end + 1 if self._prev else len(self.sql))
        raise QuerySyntaxError(*_translated(message, found, at, self._prev, offset))

    def expression(self, instance: E, token: Token | None = None, comments: list[str] | None = None) -> E:
        made = super().expression(instance, token, comments)
        if token is None and self._prev and made.meta_get("start") is None and not any(made.iter_expressions()):
            made.update_positions(self._prev)
        return made

    def _parse_function_call(
        self,
        functions: dict[str, Callable[..., Any]] | None = None,
        anonymous: bool = False,
        optional_parens: bool = True,
        any_token: bool = False,
    ) -> exp.Expr | None:
        token = self._curr
        called = super()._parse_function_call(functions, anonymous, optional_parens, any_token)
        if called is not None:
            inner = called
            while isinstance(inner, (exp.Window, exp.Filter, exp.IgnoreNulls, exp.RespectNulls, exp.WithinGroup)):
                inner.update_positions(token)
                inner = inner.this
            if isinstance(inner, exp.Expr) and inner.meta_get("start") is None:
                inner.update_positions(token)
        return called

    def _parse_select_query(
        self,
        nested: bool = False,
        table: bool = False,
        parse_subquery_alias: bool = True,
        parse_set_operation: bool = True,
    ) -> exp.Expr | None:
        token = self._curr
        query = super()._parse_select_query(nested, table, parse_subquery_alias, parse_set_operation)
        if query is not None and query.meta_get("start") is None:
            query.update_positions(token)
        return query

    def _parse_query_modifiers(self, this: Any) -> Any:
        modified = super()._parse_query_modifiers(this)
        if isinstance(modified, exp.Select):
            unwrap_group(modified)
            lift_window_functions(modified)
        return modified

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        token = self._curr
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if join is not None:
            self.check_join(join)
            join.update_positions(token)
        return join

    def _parse_interval(
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Add | exp.Interval | None:
        token = self._curr
        interval = super()._parse_interval(require_interval, parse_function_unit)
        if interval is not None:
            interval.update_positions(token)
        return interval

    def _negate_range(self, this: exp.Expr | None = None) -> exp.Expr | None:
        # NOT LIKE is NOT (... LIKE ...), as for every other predicate; sqlglot would hide the NOT in an argument.
        return self.expression(exp.Not(this=this)) if this else this

    def _parse_into(self) -> exp.Into | None:
        if self._curr.token_type is TokenType.INTO:
            self.raise_error("INTO comes at the end of the whole query")
        return None

    def _parse_alias(self, this: exp.Expr | None, explicit: bool = False) -> exp.Expr | None:
        if self._prev.token_type is TokenType.NUMBER and self._curr and self._is_connected():
            word = self.sql[self._prev.start : self._curr.end + 1]
            if self._curr.token_type is TokenType.VAR:
                self.raise_error(f"{quoted(word)} is neither a number nor a name", self._prev)
        return super()._parse_alias(this, explicit)

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        if check_func:
            # In an expression a type stands only before a string: DATE '2026-01-31'. Anything else that begins like
            # one is a name or a call; trying both ways would take exponential time when nested.
            if self._next.token_type is not TokenType.STRING:
                return None
            return super()._parse_types(check_func, schema, allow_identifiers, with_collation)
        if self._curr.token_type is TokenType.INTERVAL or self._is_typed_literal():
            return super()._parse_types(check_func, schema, allow_identifiers, with_collation)
        return self._parse_declared_type()

    def _is_typed_literal(self) -> bool:
        """Whether the `::` before was made of a literal such as 5L, so that no type stands in the text."""
        before = self._prev
        return before.token_type is TokenType.DCOLON and self.sql[before.start : before.end + 1] != before.text

    def _parse_declared_type(self) -> exp.Expr | None:
        """A type as in a column definition: the tokens that can belong to it, read by `types`."""
        first = self._curr
        if not first or not first.text[:1].isalpha():
            return None
        self._advance()
        if first.text.upper().startswith("TIMESTAMP"):
            for words in (("WITH", "TIME", "ZONE"), ("WITH", "LOCAL", "TIME", "ZONE"), ("WITHOUT", "TIME", "ZONE")):
                if self._match_text_seq(*words):
                    break
        if self._curr.token_type in (TokenType.L_PAREN, TokenType.LT):
            self._skip_brackets()
        while self._match_pair(TokenType.L_BRACKET, TokenType.R_BRACKET):
            pass
        try:
            return to_tree(parse_type(self.sql[first.start : self._prev.end + 1])).update_positions(first)
        except TypeSyntaxError as error:
            raise QuerySyntaxError(error.message, first.start + error.offset, error.suggestion) from None

    def _skip_brackets(self) -> None:
        depth = 0
        while self._curr:
            if self._curr.token_type in (TokenType.L_PAREN, TokenType.LT):
                depth += 1
            elif self._curr.token_type in (TokenType.R_PAREN, TokenType.GT):
                depth -= 1
            self._advance()
            if depth == 0:
                return


def _translated(message: str, found: str, token: Token | None, before: Token, offset: int) -> tuple[str, int, str]:
    """sqlglot's words for a problem in ours."""
    if token and token.token_type in _PARAMETERS:
        return f"{found} has no meaning here: statements have no parameters", offset, "write the value itself"
    if message.startswith("Invalid expression"):
        suggestion = did_you_mean(token.text, _CLAUSES) if token else ""
        if token and token.token_type is TokenType.DASH and before and before.end + 1 == token.start:
            suggestion = "a name with a dash in it needs quotes here"
        # A misspelt clause is first taken for an alias: the word before may be the culprit.
        if not suggestion and before and before.token_type is TokenType.VAR:
            suggestion = did_you_mean(before.text, _CLAUSES)
            suggestion = f"{quoted(before.text)} before it: {suggestion}" if suggestion else ""
        return f"unexpected {found}", offset, suggestion
    if message.startswith("Expecting "):
        suggestion = "INTO comes at the end of the whole query" if token and token.token_type is TokenType.INTO else ""
        return f"expected `{message.removeprefix('Expecting ').strip()}`, found {found}", offset, suggestion
    if message.startswith("Found multiple"):
        return f"{found.strip('`').upper()} comes twice", offset, ""
    if message.startswith(("Required argument", "Required keyword")):
        return f"something is missing before {found}", offset, ""
    if message.startswith("Expected table name"):
        return f"expected the name of a source, found {found}", offset, ""
    return message[:1].lower() + message[1:] if message[1:2].islower() else message, offset, ""


class Headgate(Spark):
    """The dialect, registered with sqlglot as `headgate`. What it generates is Spark SQL."""

    IDENTIFIERS_CAN_START_WITH_DIGIT = False

    class Tokenizer(Spark.Tokenizer):
        QUOTES: ClassVar = ["'"]
        IDENTIFIERS: ClassVar = ["`", '"']
        STRING_ESCAPES: ClassVar = ["\\", "'"]
        # No statement is passed on as text that nobody has read.
        COMMANDS: ClassVar = set()
        # Without S and Y: 5s is five seconds.
        NUMERIC_LITERALS: ClassVar = {"L": "BIGINT", "D": "DOUBLE", "F": "FLOAT", "BD": "DECIMAL"}
        KEYWORDS: ClassVar = {
            word: token
            for word, token in Spark.Tokenizer.KEYWORDS.items()
            if word not in ("|>", "PRAGMA") and not word.startswith(("{", "+}", "-}", "%}", "ADD ", "MSCK "))
        }

    Parser = HeadgateParser


def parse_query(tokens: list[Token], source: SourceText, limits: StatementLimits) -> exp.Query:
    """The tree of a query whose tokens these are. They must be within the limits of nesting already."""
    parsed = _parse(tokens, source, limits, HeadgateParser._parse_statement)
    if isinstance(parsed, exp.Subquery) and not isinstance(parsed.this, exp.Query):
        parsed = parsed.this
    if not isinstance(parsed, exp.Query):
        offset = tokens[0].start if tokens else None
        raise StatementError([source.problem(Step.PARSE, offset, "expected a query (SELECT ...)")], source)
    return parsed


def parse_condition(tokens: list[Token], source: SourceText, limits: StatementLimits) -> exp.Expr:
    """The tree of a condition, as after WHERE."""
    parsed = _parse(tokens, source, limits, HeadgateParser._parse_disjunction)
    if parsed is None:
        raise StatementError([source.problem(Step.PARSE, len(source.text), "expected a condition")], source)
    return parsed


def _parse(
    tokens: list[Token],
    source: SourceText,
    limits: StatementLimits,
    method: Callable[[HeadgateParser], exp.Expr | None],
) -> exp.Expr | None:
    for token in tokens:
        if token.token_type is TokenType.HINT:
            problem = source.problem(Step.PARSE, token.start, "hints are not taken", "remove it", UNSUPPORTED)
            raise StatementError([problem], source)
    parser = HeadgateParser(error_level=ErrorLevel.IMMEDIATE, dialect=Headgate)
    first = tokens[0].start if tokens else None
    try:
        make_room_for_recursion()
        parser.begin(tokens, source.text)
        parsed = method(parser)
        parser.finish()
        if parsed is not None:
            check_height(parsed, source, limits)
        return parsed
    except QuerySyntaxError as error:
        problem = source.problem(Step.PARSE, error.offset, error.message, error.suggestion, error.reason)
    except ParseError as error:
        at = parser.current.start if parser.current else first
        problem = source.problem(Step.PARSE, at, str(error).split(". Line ")[0])
    except TooMuchWork:
        problem = source.problem(Step.PARSE, first, "the statement is too ambiguous to read", "", STATEMENT_TOO_LARGE)
    except RecursionError:
        problem = source.problem(Step.PARSE, first, "the statement is nested too deeply", "", STATEMENT_TOO_LARGE)
    except (SqlglotError, ValueError, TypeError, AttributeError, IndexError, KeyError, AssertionError):
        # sqlglot checks its input less than it should: what it stumbles over is no statement.
        at = parser.current.start if parser.current else first
        problem = source.problem(Step.PARSE, at, "the statement cannot be read from here on")
    raise StatementError([problem], source) from None


def check_height(tree: exp.Expr, source: SourceText, limits: StatementLimits) -> None:
    """Refuses a tree that is higher than later steps can descend. Chains of one operator count as one level.

    Such a chain leans to one side; how long it may be is a limit of its own.
    """
    stack: list[tuple[exp.Expr, int, int]] = [(tree, 1, 1)]
    while stack:
        node, height, chain = stack.pop()
        if height > limits.max_depth * 4 or chain > limits.max_chain:
            offset = node.meta_get("start")
            problem = source.problem(
                Step.PARSE, offset, "the statement is nested too deeply", "split it", STATEMENT_TOO_LARGE
            )
            raise StatementError([problem], source)
        for child in node.iter_expressions():
            same = type(child) is type(node) and isinstance(node, (exp.Binary, exp.SetOperation))
            stack.append((child, height, chain + 1) if same else (child, height + 1, 1))


__all__ = ["Headgate", "HeadgateParser", "StreamWindow", "check_height", "parse_condition", "parse_query"]
