"""How windows are written: the WINDOW clause, the functions `window` and `session_window`, and the table functions.

`WindowSyntax` is the part of the parser that reads them into `nodes.StreamWindow`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headgate_common.durations import duration, parse_duration
from headgate_coordinator.errors import UNSUPPORTED
from headgate_coordinator.sql.errors import QuerySyntaxError, did_you_mean, one_of, quoted
from headgate_coordinator.sql.nodes import StreamWindow, TimeUnit, WindowKind, WindowSpelling

if TYPE_CHECKING:
    from sqlglot.parser import Parser as _Base
else:
    _Base = object

_KINDS = {
    "TUMBLING": WindowKind.TUMBLING,
    "TUMBLE": WindowKind.TUMBLING,
    "SLIDING": WindowKind.SLIDING,
    "HOPPING": WindowKind.SLIDING,
    "HOP": WindowKind.SLIDING,
    "SESSION": WindowKind.SESSION,
}
_SETTINGS = {
    "SIZE": "size",
    "ADVANCE": "advance",
    "SLIDE": "advance",
    "GAP": "gap",
    "LATENESS": "lateness",
    "OFFSET": "offset",
}
_TABLE_FUNCTIONS = ("TUMBLE", "HOP", "SESSION")
_TAKES = {
    WindowKind.TUMBLING: ("size", "lateness", "offset"),
    WindowKind.SLIDING: ("size", "advance", "lateness", "offset"),
    WindowKind.SESSION: ("gap", "lateness"),
}
_NEEDS = {
    WindowKind.TUMBLING: ("size",),
    WindowKind.SLIDING: ("size", "advance"),
    WindowKind.SESSION: ("gap",),
}
_UNITS: dict[str, TimeUnit] = {
    **{str(unit): unit for unit in TimeUnit},
    "S": TimeUnit.SECONDS,
    "SEC": TimeUnit.SECONDS,
    "SECOND": TimeUnit.SECONDS,
    "MS": TimeUnit.MILLISECONDS,
    "MILLISECOND": TimeUnit.MILLISECONDS,
    "US": TimeUnit.MICROSECONDS,
    "MICROSECOND": TimeUnit.MICROSECONDS,
    "NS": TimeUnit.NANOSECONDS,
    "NANOSECOND": TimeUnit.NANOSECONDS,
}
_DURATION_BEGINS = (TokenType.NUMBER, TokenType.STRING, TokenType.INTERVAL, TokenType.EQ, TokenType.FARROW)


class WindowSyntax(_Base):
    """Mixed into the parser; its methods read windows at the current token."""

    def parse_window_clause(self) -> tuple[str, Any]:
        """`WINDOW TUMBLING(...)`, or the standard's `WINDOW name AS (...)`, which is left to sqlglot."""
        word = self._curr
        after = self._tokens[self._index + 2] if self._index + 2 < self._tokens_size else None
        if after is None or after.token_type is not TokenType.L_PAREN:
            return "windows", self._parse_window_clause()
        self._advance()
        name = self._curr
        kind = _KINDS.get(name.text.upper())
        if kind is None:
            kinds = list(WindowKind)
            raise self._refusal(
                f"there is no window {quoted(name.text)}", name, did_you_mean(name.text, kinds) or one_of(kinds)
            )
        self._advance(2)
        window = self._parse_window_settings(kind)
        self._match_r_paren()
        return "stream_window", window.update_positions(word)

    def _parse_window_settings(self, kind: WindowKind) -> StreamWindow:
        """`ts [UNIT MILLISECONDS], SIZE 5 SEC, ...` up to the closing bracket."""
        opening = self._prev
        arguments: dict[str, Any] = {"kind": kind, "spelling": WindowSpelling.CLAUSE}
        while self._curr and self._curr.token_type is not TokenType.R_PAREN:
            token = self._curr
            setting = _SETTINGS.get(token.text.upper()) if self._next_begins_duration() else None
            if setting is None:
                if "this" in arguments or len(arguments) > 2:
                    raise self._refusal(
                        f"expected {one_of(key.upper() for key in _TAKES[kind])} of the window, "
                        f"found {quoted(token.text)}",
                        token,
                        did_you_mean(token.text, _SETTINGS),
                    )
                arguments["this"] = self._parse_time_column()
                if self._match_text_seq("UNIT"):
                    arguments["unit"] = self._parse_time_unit()
                if self._curr.token_type not in (TokenType.COMMA, TokenType.R_PAREN):
                    raise self._refusal("the time of a window is a column", token, "compute it in a sub-select first")
            else:
                if setting in arguments:
                    raise self._refusal(f"{token.text.upper()} comes twice", token)
                self._advance()
                self._match_text_seq("BY") or self._match(TokenType.EQ) or self._match(TokenType.FARROW)
                arguments[setting] = self._parse_duration()
            if not self._match(TokenType.COMMA):
                break
        return self._checked_window(arguments, opening)

    def _next_begins_duration(self) -> bool:
        return self._next.token_type in _DURATION_BEGINS or self._next.text.upper() == "BY"

    def _parse_time_column(self) -> exp.Column:
        token = self._curr
        column = self._parse_column()
        if not isinstance(column, exp.Column) or isinstance(column.this, exp.Star):
            raise self._refusal("the time of a window is a column", token, "compute it in a sub-select first")
        return column

    def _parse_time_unit(self) -> TimeUnit:
        token = self._curr
        unit = _UNITS.get(token.text.upper()) if token else None
        if unit is None:
            raise self._refusal("expected what the column counts", token, one_of(TimeUnit))
        self._advance()
        return unit

    def _parse_duration(self) -> int:
        """Microseconds of `5 SEC`, `5s`, `'5 seconds'`, `INTERVAL '5' SECONDS` or `INTERVAL '5 seconds'`."""
        token = self._curr
        interval = self._match(TokenType.INTERVAL)
        value = self._curr
        try:
            if self._match(TokenType.STRING):
                if not interval or not value.text.strip().replace(".", "", 1).isdigit():
                    return parse_duration(value.text)
                return duration(value.text.strip(), self._unit_word())
            if self._match(TokenType.NUMBER):
                return duration(value.text, self._unit_word())
        except ValueError as error:
            raise self._refusal(str(error), value) from None
        raise self._refusal("expected a duration", token, "write a number and a unit, such as 5 SEC")

    def _unit_word(self) -> str:
        # 5d is read as a number of type DOUBLE: 5, ::, d.
        self._match(TokenType.DCOLON)
        unit = self._curr
        if not unit or not unit.text.isalpha():
            raise ValueError("a duration needs a unit, such as SEC")
        self._advance()
        return unit.text

    def _checked_window(self, arguments: dict[str, Any], opening: Token) -> StreamWindow:
        kind: WindowKind = arguments["kind"]
        for key in ("size", "advance", "gap", "lateness", "offset"):
            if key in arguments and key not in _TAKES[kind]:
                raise self._refusal(
                    f"a {kind} window takes no {key.upper()}",
                    opening,
                    f"it takes {one_of(k.upper() for k in _TAKES[kind])}",
                )
        for key in _NEEDS[kind]:
            if key not in arguments:
                raise self._refusal(
                    f"a {kind} window needs {key.upper()}", opening, f"add {key.upper()} 5 SEC, or the like"
                )
            if arguments[key] <= 0:
                raise self._refusal(f"the {key.upper()} of a window is longer than 0", opening)
        if kind is WindowKind.SLIDING and arguments["advance"] > arguments["size"]:
            raise self._refusal(
                "a SLIDING window that advances by more than its SIZE would leave rows out", opening, "make SIZE larger"
            )
        step = arguments.get("advance", arguments.get("size"))
        if arguments.get("offset") and step is not None and arguments["offset"] >= step:
            raise self._refusal("the OFFSET of a window is shorter than the step between two windows", opening)
        return StreamWindow(**arguments)

    def parse_window_function(self) -> StreamWindow:
        """`window(ts, size [, advance [, offset]])`, Spark's; the opening bracket has been read."""
        opening = self._prev
        arguments: dict[str, Any] = {"spelling": WindowSpelling.FUNCTION, "this": self._parse_time_column()}
        self._expect_comma("window(ts, '5 minutes')")
        arguments["size"] = self._parse_duration()
        for key in ("advance", "offset"):
            if self._match(TokenType.COMMA):
                arguments[key] = self._parse_duration()
        if arguments.get("advance") in (None, arguments["size"]):
            arguments.pop("advance", None)
            arguments["kind"] = WindowKind.TUMBLING
        else:
            arguments["kind"] = WindowKind.SLIDING
        return self._checked_window(arguments, opening)

    def parse_session_function(self) -> StreamWindow:
        """`session_window(ts, gap)`, Spark's."""
        opening = self._prev
        arguments: dict[str, Any] = {"spelling": WindowSpelling.FUNCTION, "kind": WindowKind.SESSION}
        arguments["this"] = self._parse_time_column()
        self._expect_comma("session_window(ts, '30 seconds')")
        arguments["gap"] = self._parse_duration()
        return self._checked_window(arguments, opening)

    def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        """A source, or a table function over one: TUMBLE, HOP, SESSION, bare or in TABLE(...)."""
        wrapped = self._curr.token_type is TokenType.TABLE and self._next.token_type is TokenType.L_PAREN
        at = self._index + 2 * wrapped
        called = at + 1 < self._tokens_size and self._tokens[at + 1].token_type is TokenType.L_PAREN
        if called and self._tokens[at].text.upper() == "CUMULATE":
            raise QuerySyntaxError(
                "CUMULATE windows are not offered",
                self._tokens[at].start,
                "use HOP, or TUMBLE with the smaller size and add up",
                UNSUPPORTED,
            )
        if not called or self._tokens[at].text.upper() not in _TABLE_FUNCTIONS:
            return super()._parse_table(*args, **kwargs)
        self._advance(2 * wrapped)
        table = self._parse_window_table()
        if wrapped:
            self._match_r_paren()
        alias = self._parse_table_alias(alias_tokens=kwargs.get("alias_tokens") or self.TABLE_ALIAS_TOKENS)
        if alias:
            table.set("alias", alias)
        window = table.args["stream_window"]
        if table.alias_or_name and not window.this.table:
            window.this.set("table", exp.to_identifier(table.alias_or_name))
        if kwargs.get("joins"):
            for join in self._parse_joins():
                table.append("joins", join)
        return table

    def _parse_window_table(self) -> exp.Expr:
        """`HOP(TABLE x, DESCRIPTOR(ts), advance, size [, offset])` and the like, with or without names of arguments."""
        function = self._curr
        kind = _KINDS[function.text.upper()]
        self._advance(2)
        arguments: dict[str, Any] = {"kind": kind, "spelling": WindowSpelling.TABLE}
        self._skip_argument_name("DATA")
        table = self._parse_windowed_input()
        usage = f"{function.text.upper()}(TABLE source, DESCRIPTOR(ts), INTERVAL '5' MINUTES)"
        self._expect_comma(usage)
        self._skip_argument_name("TIMECOL")
        described = self._match_text_seq("DESCRIPTOR")
        if described:
            self._match_l_paren()
        arguments["this"] = self._parse_time_column()
        if described:
            self._match_r_paren()
        self._expect_comma(usage)
        order = {
            WindowKind.TUMBLING: ("size", "offset"),
            WindowKind.SLIDING: ("advance", "size", "offset"),
            WindowKind.SESSION: ("gap",),
        }[kind]
        for position, key in enumerate(order):
            if position and not self._match(TokenType.COMMA):
                break
            named = _SETTINGS.get(self._curr.text.upper()) if self._next.token_type is TokenType.FARROW else None
            if named:
                self._advance(2)
            arguments[named or key] = self._parse_duration()
        self._match_r_paren()
        table.set("stream_window", self._checked_window(arguments, function).update_positions(function))
        return table

    def _parse_windowed_input(self) -> exp.Expr:
        self._match(TokenType.TABLE)
        token = self._curr
        if self._curr.token_type is TokenType.L_PAREN:
            table = self._parse_select(table=True)
        else:
            table = self._parse_table_parts()
        # Brackets around a name or a sub-select say nothing, and the window must hang on what it reads.
        while (
            isinstance(table, exp.Subquery)
            and isinstance(table.this, (exp.Table, exp.Subquery))
            and not any(value for key, value in table.args.items() if key != "this")
        ):
            table = table.this
        if not isinstance(table, (exp.Table, exp.Subquery)):
            raise self._refusal("expected a source or a sub-select", token)
        return table

    def _skip_argument_name(self, name: str) -> None:
        if self._curr.text.upper() == name and self._next.token_type is TokenType.FARROW:
            self._advance(2)

    def _expect_comma(self, usage: str) -> None:
        if not self._match(TokenType.COMMA):
            raise self._refusal("expected `,`", self._curr, f"write {usage}")

    def _refusal(self, message: str, token: Token | None, suggestion: str = "") -> QuerySyntaxError:
        at = token.start if token else (self._prev.end + 1 if self._prev else len(self.sql))
        return QuerySyntaxError(message, at, suggestion)


def unwrap_group(select: exp.Select) -> None:
    """`GROUP BY (a, b)` and `GROUP BY (a)` say the same as without brackets."""
    group = select.args.get("group")
    if isinstance(group, exp.Group):
        flat: list[exp.Expr] = []
        for expression in group.expressions:
            while isinstance(expression, exp.Paren):
                expression = expression.this
            flat.extend(expression.expressions if isinstance(expression, exp.Tuple) else [expression])
        group.set("expressions", flat)


def retagged(tokens: list[Token]) -> list[Token]:
    """The tokens, with the word `window` a plain one wherever it does not begin a WINDOW clause.

    sqlglot would otherwise end GROUP BY at `window(...)`.
    """
    result: list[Token] = []
    for index, token in enumerate(tokens):
        if token.token_type is TokenType.WINDOW and not _begins_clause(tokens, index):
            token = Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end)
        result.append(token)
    return result


def _begins_clause(tokens: list[Token], index: int) -> bool:
    following = [token.token_type for token in tokens[index + 1 : index + 3]]
    return (
        len(following) == 2
        and following[0] in (TokenType.VAR, TokenType.SESSION)
        and following[1] in (TokenType.L_PAREN, TokenType.ALIAS)
    )


def lift_window_functions(select: exp.Select) -> None:
    """Moves `window(...)` of GROUP BY to the select itself; what refers to it becomes the column `window`.

    `GROUP BY w` or `GROUP BY 1` with `window(...) AS w` among the columns counts as well. A window that groups nothing
    is refused.
    """
    group = select.args.get("group")
    if isinstance(group, exp.Group) and select.args.get("stream_window") is None:
        window, names = _take_window(select, group)
        if window is not None:
            for node in list(_own_nodes(select)):
                _refer_to_window(node, window, names)
            select.set("stream_window", window)
    for node in _own_nodes(select):
        if isinstance(node, StreamWindow) and node.arg_key != "stream_window":
            raise QuerySyntaxError(
                "this window groups no rows", node.meta_get("start") or 0, "put it into GROUP BY, and only one of them"
            )


def _own_nodes(select: exp.Select) -> Iterator[exp.Expr]:
    """The nodes of a select without those of its sub-selects."""
    return select.walk(prune=lambda node: isinstance(node, exp.Query) and node is not select)


def _take_window(select: exp.Select, group: exp.Group) -> tuple[StreamWindow | None, set[str]]:
    """Takes the window out of GROUP BY; answers it and the names it goes by."""
    window: StreamWindow | None = None
    names = {"window", "session_window"}
    for expression in list(group.expressions):
        candidate, name = _window_meant(select, expression)
        if candidate is None or (window is not None and candidate != window):
            continue
        window = candidate.copy()
        names.add(name.lower())
        expression.pop()
    if not any(group.args.values()):
        group.pop()
    return window, names


def _window_meant(select: exp.Select, expression: exp.Expr) -> tuple[StreamWindow | None, str]:
    """The window that an expression of GROUP BY is, names or counts, and its alias."""
    if isinstance(expression, StreamWindow):
        return expression, "window"
    for ordinal, column in enumerate(select.expressions, start=1):
        named = isinstance(expression, exp.Column) and expression.name.lower() == column.alias.lower() != ""
        counted = isinstance(expression, exp.Literal) and expression.name == str(ordinal) and not expression.is_string
        if (named or counted) and isinstance(column.unalias(), StreamWindow):
            return column.unalias(), column.alias or "window"
    return None, ""


def _refer_to_window(node: exp.Expr, window: StreamWindow, names: set[str]) -> None:
    place = {key: node.meta_get(key) for key in ("line", "col", "start", "end")}
    if isinstance(node, StreamWindow) and node == window:
        parent = node.parent
        if isinstance(parent, exp.Dot) and isinstance(parent.expression, exp.Identifier):
            bound = exp.column(parent.expression.copy(), table="window")
            parent.replace(bound.update_positions(**place))
        else:
            node.replace(exp.column("window").update_positions(**place))
    elif isinstance(node, exp.Column) and node.table.lower() in names:
        node.set("table", exp.to_identifier("window"))
    elif isinstance(node, exp.Column) and not node.table and node.name.lower() == "session_window":
        node.replace(exp.column("window").update_positions(node.this))
