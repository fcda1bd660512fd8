"""Statements that change nothing: SHOW, DESCRIBE, EXPLAIN and WATCH."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from headgate.catalog import v1 as catalog
from headgate_coordinator.errors import UNSUPPORTED
from headgate_coordinator.sql.dialect import parse_condition
from headgate_coordinator.sql.errors import did_you_mean, one_of, quoted
from headgate_coordinator.sql.parse.cursor import Cursor
from headgate_coordinator.sql.parse.query import take_query
from headgate_coordinator.sql.statements import (
    DescribeStatement,
    ExplainStatement,
    ShowKind,
    ShowStatement,
    WatchStatement,
)

_SHOWN = {
    "AGENTS": ShowKind.AGENTS,
    "WORKERS": ShowKind.AGENTS,
    "NETWORK LINKS": ShowKind.NETWORK_LINKS,
    "LINKS": ShowKind.NETWORK_LINKS,
    "LOGICAL SOURCES": ShowKind.LOGICAL_SOURCES,
    "SOURCES": ShowKind.LOGICAL_SOURCES,
    "PHYSICAL SOURCES": ShowKind.PHYSICAL_SOURCES,
    "SINKS": ShowKind.SINKS,
    "QUERIES": ShowKind.QUERIES,
    "FRAGMENTS": ShowKind.FRAGMENTS,
    "TOPICS": ShowKind.TOPICS,
    "PARTITIONS": ShowKind.PARTITIONS,
    "TRANSFERS": ShowKind.TRANSFERS,
}
_DESCRIBED = {
    "AGENT": ShowKind.AGENTS,
    "WORKER": ShowKind.AGENTS,
    "LOGICAL SOURCE": ShowKind.LOGICAL_SOURCES,
    "SOURCE": ShowKind.LOGICAL_SOURCES,
    "PHYSICAL SOURCE": ShowKind.PHYSICAL_SOURCES,
    "SINK": ShowKind.SINKS,
    "QUERY": ShowKind.QUERIES,
    "TOPIC": ShowKind.TOPICS,
}
_OWNED = {
    ShowKind.PHYSICAL_SOURCES: "logical source",
    ShowKind.FRAGMENTS: "query",
    ShowKind.PARTITIONS: "topic",
    ShowKind.TRANSFERS: "topic",
}
WATCHED = {
    "agents": catalog.RESOURCE_KIND_AGENT,
    "workers": catalog.RESOURCE_KIND_AGENT,
    "network_links": catalog.RESOURCE_KIND_NETWORK_LINK,
    "links": catalog.RESOURCE_KIND_NETWORK_LINK,
    "logical_sources": catalog.RESOURCE_KIND_LOGICAL_SOURCE,
    "sources": catalog.RESOURCE_KIND_LOGICAL_SOURCE,
    "physical_sources": catalog.RESOURCE_KIND_PHYSICAL_SOURCE,
    "sinks": catalog.RESOURCE_KIND_SINK,
    "queries": catalog.RESOURCE_KIND_QUERY,
    "fragments": catalog.RESOURCE_KIND_FRAGMENT,
    "topics": catalog.RESOURCE_KIND_TOPIC,
    "partitions": catalog.RESOURCE_KIND_PARTITION,
    "transfers": catalog.RESOURCE_KIND_TRANSFER,
}
_FORMATS = {"TEXT": catalog.EXPLAIN_FORMAT_TEXT, "DOT": catalog.EXPLAIN_FORMAT_DOT}


def _accept_kind(cursor: Cursor, kinds: dict[str, ShowKind]) -> ShowKind | None:
    for words, kind in kinds.items():
        if cursor.accept(*words.split(" ")):
            return kind
    return None


def take_show(cursor: Cursor, start: int) -> ShowStatement:
    """The statement after SHOW."""
    kind = _accept_kind(cursor, _SHOWN)
    if kind is None:
        raise cursor.refusal(
            f"expected what to show, found {cursor.found()}",
            suggestion=did_you_mean(cursor.word(), _SHOWN) or one_of(ShowKind),
        )
    owner, like, limit = None, None, None
    if cursor.at("FOR"):
        if kind not in _OWNED:
            raise cursor.refusal(f"SHOW {kind} takes no FOR")
        cursor.accept("FOR")
        cursor.accept(*_OWNED[kind].upper().split(" "))
        owner = cursor.take_topic() if _OWNED[kind] == "topic" else cursor.take_name(_OWNED[kind])
    if cursor.accept("LIKE"):
        like = cursor.take_string("a pattern")
    where = _where(cursor, ("LIMIT",))
    if cursor.accept("LIMIT"):
        limit = cursor.take_integer("LIMIT", 1, 1_000_000)
    cursor.expect_end(("FOR", "LIKE", "WHERE", "LIMIT"))
    return ShowStatement(
        text=cursor.text_between(start, cursor.tokens[-1].end + 1),
        source=cursor.source,
        offset=start,
        verb=f"SHOW {kind}",
        kind=kind,
        owner=owner,
        like=like,
        where=where,
        limit=limit,
    )


def _where(cursor: Cursor, ends: tuple[str, ...]) -> exp.Expr | None:
    """The condition after WHERE, up to one of the words that end it."""
    if not cursor.accept("WHERE"):
        return None
    tokens: list[Token] = []
    at = cursor.offset
    while not cursor.done and cursor.word() not in ends:
        tokens.append(cursor.tokens[cursor.index])
        cursor.index += 1
    if not tokens:
        raise cursor.refusal("expected a condition after WHERE", at)
    return parse_condition(tokens, cursor.source, cursor.limits)


def take_describe(cursor: Cursor, start: int) -> DescribeStatement:
    """The statement after DESCRIBE."""
    # A lone word is a name, whatever it says: DESCRIBE sink.
    kind = _accept_kind(cursor, _DESCRIBED) if len(cursor.tokens) - cursor.index > 1 else None
    name = cursor.take_topic() if kind is ShowKind.TOPICS else cursor.take_name("resource")
    cursor.expect_end()
    return DescribeStatement(
        text=cursor.text_between(start, cursor.tokens[-1].end + 1),
        source=cursor.source,
        offset=start,
        verb="DESCRIBE",
        name=name,
        kind=kind,
    )


def take_explain(cursor: Cursor, start: int) -> ExplainStatement:
    """The statement after EXPLAIN."""
    format_ = catalog.EXPLAIN_FORMAT_TEXT
    if cursor.accept("(", "FORMAT"):
        cursor.accept("=")
        format_ = _FORMATS[cursor.take_word_of(_FORMATS, "a format")]
        cursor.expect(")")
    elif cursor.word() in ("ANALYZE", "VERBOSE"):
        raise cursor.refusal(f"EXPLAIN takes no {cursor.word()}", reason=UNSUPPORTED)
    inner = cursor.offset
    name = None
    if cursor.accept("CREATE"):
        cursor.expect("QUERY", where="after EXPLAIN CREATE")
        if cursor.accept("IF"):
            cursor.expect("NOT", "EXISTS")
        name = cursor.take_name("query")
        cursor.expect("AS", where="after the name of the query")
    query = take_query(cursor, inner, name=name)
    return ExplainStatement(
        text=cursor.text_between(start, inner) + (query.shown_text or query.text),
        source=cursor.source,
        offset=start,
        verb="EXPLAIN",
        query=query,
        format=format_,
    )


def take_watch(cursor: Cursor, start: int) -> WatchStatement:
    """The statement after WATCH: `SELECT columns FROM kind [WHERE condition]`, and nothing more of a SELECT."""
    cursor.expect("SELECT", where="after WATCH")
    columns: list[str] = []
    places: list[int] = []
    if not cursor.accept("*"):
        while not columns or cursor.accept(","):
            places.append(cursor.offset)
            columns.append(_column(cursor))
    cursor.expect("FROM", where="or `,` after the columns")
    at = cursor.offset
    word = cursor.take_name("kind of resource")
    if word not in WATCHED:
        raise cursor.refusal(
            f"{quoted(word)} cannot be watched", at, did_you_mean(word, WATCHED) or f"there are {one_of(WATCHED)}"
        )
    where = _where(cursor, ())
    if not cursor.done:
        raise cursor.refusal(f"unexpected {cursor.found()}", suggestion="WATCH takes SELECT, FROM and WHERE only")
    return WatchStatement(
        text=cursor.text_between(start, cursor.tokens[-1].end + 1),
        source=cursor.source,
        offset=start,
        verb="WATCH",
        kind=WATCHED[word],
        columns=tuple(columns),
        column_offsets=tuple(places),
        where=where,
    )


def _column(cursor: Cursor) -> str:
    """A field of the resource, with dots where it is inside another: `waiting.reason`."""
    parts = [_column_part(cursor)]
    while cursor.accept("."):
        parts.append(_column_part(cursor))
    if cursor.at("AS") or cursor.at("("):
        raise cursor.refusal("WATCH takes fields of the resource as they are", suggestion="name the fields, or write *")
    return ".".join(parts)


def _column_part(cursor: Cursor) -> str:
    token = cursor.current
    if token is None or not (
        token.token_type is TokenType.IDENTIFIER
        or (token.text[:1].isalpha() and token.token_type is not TokenType.STRING)
    ):
        raise cursor.expected("a field of the resource")
    cursor.index += 1
    return token.text.lower()
