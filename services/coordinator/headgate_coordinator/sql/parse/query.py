"""`[CREATE QUERY name AS] SELECT ... [INTO sink] [WITH (...)]`, and Flink's `INSERT INTO sink SELECT ...`."""

from __future__ import annotations

from typing import Any

from sqlglot.tokenizer_core import TokenType

from headgate.catalog import v1 as catalog
from headgate_common.durations import parse_duration
from headgate_coordinator.catalog.descriptors import REDACTED
from headgate_coordinator.catalog.descriptors.brokers import missing_brokers
from headgate_coordinator.catalog.descriptors.edges import EDGE_OPTION_NAMES, check_edges, has_secrets
from headgate_coordinator.errors import INVALID_CONFIG, UNSUPPORTED
from headgate_coordinator.sql.dialect import parse_query
from headgate_coordinator.sql.errors import did_you_mean, one_of, quoted
from headgate_coordinator.sql.parse.cursor import Cursor
from headgate_coordinator.sql.parse.options import Option, refuse_faults, take_options
from headgate_coordinator.sql.parse.secrets import secret_places
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
    "start": "`earliest`, `latest` or a timestamp: where topics are read from, instead of what each source says",
    "idle_timeout": "a source silent for so long no longer holds back the others",
    "lateness": "how late rows may come, where a window states none; also for joins within a time range",
    "edges": "`log` (the default) or `kafka`: where rows are between the fragments of the query",
}
_EDGES = ("log", "kafka")
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
    last = cursor.tokens[-1].end + 1
    return QueryStatement(
        text=cursor.text_between(start, last),
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
        shown_text=_shown(cursor, start, end) if has_secrets(options.kafka_edges or {}) else "",
    )


def _shown(cursor: Cursor, start: int, first: int) -> str:
    """The statement from `start` on without the secrets among its options, which begin with the token `first`."""
    text, at = "", start
    for begin, end in secret_places(cursor.tokens[first:]):
        text += cursor.text_between(at, begin) + REDACTED
        at = end
    return text + cursor.text_between(at, cursor.tokens[-1].end + 1)


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
    values["kafka_edges"] = _kafka_edges(cursor, options)
    for option in options:
        if not option.scope and (option.key == "edges" or option.key in EDGE_OPTION_NAMES):
            continue
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


def _kafka_edges(cursor: Cursor, options: list[Option]) -> dict[str, str] | None:
    """How the cluster of the query's edges is reached; None where they stay in the log."""
    own = [option for option in options if not option.scope]
    reach = [option for option in own if option.key in EDGE_OPTION_NAMES]
    edges = next((option for option in own if option.key == "edges"), None)
    if edges is not None and edges.value.lower() not in _EDGES:
        raise cursor.refusal(f"edges: expected {one_of(_EDGES)}, not {quoted(edges.value)}", edges.offset)
    if edges is None or edges.value.lower() != "kafka":
        if reach:
            raise cursor.refusal(
                f"{reach[0].key} has no effect: the edges of the query are not on Kafka",
                reach[0].offset,
                "add edges = 'kafka', or remove it",
                INVALID_CONFIG,
            )
        return None
    given = {option.key: option.value for option in reach}
    found, faults = check_edges(given | missing_brokers(given, cursor.limits.kafka_brokers))
    refuse_faults(cursor, faults, reach, edges.offset)
    return found


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
