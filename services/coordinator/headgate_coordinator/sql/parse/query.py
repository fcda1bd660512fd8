"""`[CREATE QUERY name AS] SELECT ... [INTO sink] [WITH (...)]`, and Flink's `INSERT INTO sink SELECT ...`."""

from __future__ import annotations

from typing import Any

from sqlglot.tokenizer_core import TokenType

from headgate.catalog import v1 as catalog
from headgate_common.durations import parse_duration
from headgate_coordinator.errors import UNSUPPORTED
from headgate_coordinator.sql.dialect import parse_query
from headgate_coordinator.sql.errors import did_you_mean, one_of, quoted
from headgate_coordinator.sql.parse.cursor import Cursor
from headgate_coordinator.sql.parse.options import Option, take_options
from headgate_coordinator.sql.starts import parse_start
from headgate_coordinator.sql.statements import Delivery, QueryOptions, QueryStatement

_MODES = {
    "exactly_once": catalog.QUERY_MODE_EXACTLY_ONCE,
    "realtime": catalog.QUERY_MODE_REALTIME,
}
_DURATIONS = {"deadline": "deadline_us", "idle_timeout": "idle_timeout_us", "lateness": "lateness_us"}
QUERY_OPTIONS = {
    "mode": "`exactly_once` (the default) or `realtime`",
    "delivery": "`exactly_once` (the default) or `at_least_once`: what a KAFKA or TOPIC sink may see after a crash",
    "deadline": "time within which the query must be RUNNING, else it fails",
    "start": "`earliest`, `latest` or a timestamp: where topics are read from at the first start",
    "idle_timeout": "a source silent for so long no longer holds back the others",
    "lateness": "how late rows may come, where a window states none; also for joins within a time range",
}
# The limit of CreateQueryRequest.deployment_deadline.
MAX_DEADLINE_US = 604_800_000_000
_ELSEWHERE = (
    (
        "EMIT",
        ("CHANGES", "FINAL", "ON"),
        "remove it: a window gives its rows when it ends, and an aggregate without one every change",
    ),
    ("MATCH_RECOGNIZE", ("(",), "compare rows with a JOIN within a time range"),
)
QUERY_BEGINS = ("SELECT", "WITH", "FROM", "(")


def take_query(cursor: Cursor, start: int, *, name: str | None = None, if_not_exists: bool = False) -> QueryStatement:
    """The query from here to the end of the statement that began at `start`."""
    sink, sink_offset = None, None
    if cursor.accept("INSERT"):
        cursor.expect("INTO")
        sink_offset = cursor.offset
        sink = cursor.take_name("sink")
        if cursor.at("("):
            raise cursor.refusal(
                "INSERT INTO takes no list of columns", suggestion="name the columns with AS in the SELECT"
            )
    if cursor.at("VALUES"):
        raise cursor.refusal("rows come from sources, not from VALUES", reason=UNSUPPORTED)
    if cursor.word() not in QUERY_BEGINS:
        raise cursor.expected("a query (SELECT ...)", ["SELECT"])
    begin = cursor.index
    _refuse_by_name(cursor)
    end = _end_of_select(cursor)
    select_tokens = cursor.tokens[begin:end]
    cursor.index = end
    if not cursor.done and cursor.accept("INTO"):
        if sink is not None:
            raise cursor.refusal("the sink is named twice", cursor.tokens[end].start)
        sink_offset = cursor.offset
        sink = cursor.take_name("sink")
        if cursor.at("FROM"):
            raise cursor.refusal(
                "INTO comes after the whole query", cursor.tokens[end].start, f"write SELECT ... FROM ... INTO {sink}"
            )
        if cursor.at("INTO"):
            raise cursor.refusal("the sink is named twice")
    options = _query_options(cursor, take_options(cursor))
    if cursor.at("INTO"):
        raise cursor.refusal("INTO comes before WITH (...)")
    cursor.expect_end(("INTO", "WITH"))
    if not select_tokens:
        raise cursor.refusal("expected a query (SELECT ...)", start)
    return QueryStatement(
        text=cursor.text_between(start, cursor.tokens[-1].end + 1),
        source=cursor.source,
        offset=start,
        verb="CREATE QUERY",
        name=name,
        select=parse_query(select_tokens, cursor.source, cursor.limits),
        select_text=cursor.text_between(select_tokens[0].start, select_tokens[-1].end + 1),
        sink=sink,
        sink_offset=sink_offset,
        options=options,
        if_not_exists=if_not_exists,
    )


def _refuse_by_name(cursor: Cursor) -> None:
    """Refuses clauses of other systems by their names, which the parser would take for aliases."""
    read = False
    for index in range(cursor.index, len(cursor.tokens) - 1):
        word, following = (cursor.tokens[index + step].text.upper() for step in (0, 1))
        read = read or word == "FROM"
        for clause, after, instead in _ELSEWHERE:
            if read and word == clause and following in after:
                raise cursor.refusal(
                    f"{clause if following == '(' else f'{clause} {following}'} is not offered",
                    cursor.tokens[index].start,
                    instead,
                    reason=UNSUPPORTED,
                )


def _end_of_select(cursor: Cursor) -> int:
    """The index of the INTO or `WITH (` that ends the select, outside of all brackets; else that of the end."""
    depth = 0
    for index in range(cursor.index, len(cursor.tokens)):
        token = cursor.tokens[index]
        match token.token_type:
            case TokenType.L_PAREN:
                depth += 1
            case TokenType.R_PAREN:
                depth -= 1
            case TokenType.INTO if depth == 0 and index > cursor.index:
                return index
            case TokenType.WITH if depth == 0 and index > cursor.index:
                following = cursor.tokens[index + 1] if index + 1 < len(cursor.tokens) else None
                if following is not None and following.token_type is TokenType.L_PAREN:
                    return index
    return len(cursor.tokens)


def _query_options(cursor: Cursor, options: list[Option]) -> QueryOptions:
    values: dict[str, Any] = {"offsets": {option.key: option.offset for option in options}}
    for option in options:
        if option.scope or option.key not in QUERY_OPTIONS:
            raise cursor.refusal(
                f"a query has no option {quoted(option.scope.lower() + '.' * bool(option.scope) + option.key)}",
                option.offset,
                did_you_mean(option.key, QUERY_OPTIONS) or f"it has {one_of(QUERY_OPTIONS)}",
            )
        try:
            key, value = _query_option(option)
        except ValueError as error:
            raise cursor.refusal(f"{option.key}: {error}", option.offset) from None
        values[key] = value
    return QueryOptions(**values)


def _query_option(option: Option) -> tuple[str, Any]:
    if option.key == "mode":
        if option.value.lower() not in _MODES:
            raise ValueError(f"expected {one_of(_MODES)}, not {quoted(option.value)}")
        return "mode", _MODES[option.value.lower()]
    if option.key == "delivery":
        try:
            return "delivery", Delivery(option.value.lower())
        except ValueError:
            raise ValueError(f"expected {one_of(Delivery)}, not {quoted(option.value)}") from None
    if option.key == "start":
        return "start", parse_start(option.value)
    microseconds = parse_duration(option.value)
    if microseconds == 0 and option.key != "lateness":
        raise ValueError("it must be longer than 0")
    if option.key == "deadline" and microseconds > MAX_DEADLINE_US:
        raise ValueError("it is at most 7 days")
    return _DURATIONS[option.key], microseconds
