"""`DROP ...` and `STOP QUERY`, as requests of the API."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_coordinator.errors import UNSUPPORTED
from headgate_coordinator.sql.errors import did_you_mean, one_of
from headgate_coordinator.sql.parse.create import take_link
from headgate_coordinator.sql.parse.cursor import Cursor
from headgate_coordinator.sql.statements import RequestStatement, Statement

_KINDS = ("LOGICAL SOURCE", "PHYSICAL SOURCE", "SINK", "QUERY", "AGENT", "NETWORK LINK", "TOPIC")
_MODES = {"SOFT": catalog.STOP_MODE_SOFT, "HARD": catalog.STOP_MODE_HARD}
_ELSEWHERE = {
    "SOURCE": "write DROP LOGICAL SOURCE or DROP PHYSICAL SOURCE",
    "TABLE": "write DROP LOGICAL SOURCE or DROP SINK",
    "VIEW": "write DROP QUERY",
    "MATERIALIZED": "write DROP QUERY",
}
_WEEK_US = 604_800_000_000


def take_drop(cursor: Cursor, start: int) -> Statement:
    """The statement after DROP."""
    if cursor.accept("LOGICAL", "SOURCE"):
        exists, name = _named(cursor, "logical source")
        return _made(
            cursor,
            start,
            "DROP LOGICAL SOURCE",
            catalog.DropLogicalSourceRequest(name=name, allow_missing=exists),
            exists,
        )
    if cursor.accept("PHYSICAL", "SOURCE"):
        exists, name = _named(cursor, "physical source")
        return _made(
            cursor,
            start,
            "DROP PHYSICAL SOURCE",
            catalog.DropPhysicalSourceRequest(name=name, allow_missing=exists),
            exists,
        )
    if cursor.accept("SINK"):
        exists, name = _named(cursor, "sink")
        return _made(cursor, start, "DROP SINK", catalog.DropSinkRequest(name=name, allow_missing=exists), exists)
    if cursor.accept("AGENT") or cursor.accept("WORKER"):
        exists, name = _named(cursor, "agent")
        force = cursor.accept("FORCE")
        request = catalog.DropAgentRequest(name=name, allow_missing=exists, force=force)
        return _made(cursor, start, "DROP AGENT", request, exists)
    if cursor.accept("QUERY"):
        exists, name = _named(cursor, "query")
        mode, drain = _stop_mode(cursor)
        return _made(
            cursor,
            start,
            "DROP QUERY",
            catalog.DropQueryRequest(name=name, allow_missing=exists, mode=mode, drain_deadline=drain),
            exists,
        )
    if cursor.accept("NETWORK", "LINK"):
        exists = _if_exists(cursor)
        sending, receiving = take_link(cursor)
        return _made(
            cursor,
            start,
            "DROP NETWORK LINK",
            catalog.DropNetworkLinkRequest(from_agent=sending, to_agent=receiving, allow_missing=exists),
            exists,
        )
    if cursor.accept("TOPIC"):
        exists = _if_exists(cursor)
        topic = log.DropTopicRequest(name=cursor.take_topic(), allow_missing=exists)
        return _made(cursor, start, "DROP TOPIC", topic, exists)
    if cursor.word() in _ELSEWHERE:
        raise cursor.refusal(
            f"there is no DROP {cursor.word()}", suggestion=_ELSEWHERE[cursor.word()], reason=UNSUPPORTED
        )
    raise cursor.refusal(
        f"expected what to drop, found {cursor.found()}",
        suggestion=did_you_mean(f"{cursor.word()} {cursor.word(1)}", _KINDS)
        or did_you_mean(cursor.word(), _KINDS)
        or one_of(_KINDS),
    )


def take_stop(cursor: Cursor, start: int) -> Statement:
    """The statement after STOP."""
    cursor.expect("QUERY", where="after STOP")
    name = cursor.take_name("query")
    mode, drain = _stop_mode(cursor)
    request = catalog.StopQueryRequest(name=name, mode=mode, drain_deadline=drain)
    return _made(cursor, start, "STOP QUERY", request, False)


def _if_exists(cursor: Cursor) -> bool:
    if cursor.accept("IF"):
        cursor.expect("EXISTS")
        return True
    return False


def _named(cursor: Cursor, what: str) -> tuple[bool, str]:
    exists = _if_exists(cursor)
    return exists, cursor.take_name(what)


def _stop_mode(cursor: Cursor) -> tuple[catalog.StopMode.ValueType, Duration | None]:
    """`[SOFT [WITHIN 30 SEC] | HARD]`."""
    mode = _MODES.get(cursor.accept_any(_MODES), catalog.STOP_MODE_UNSPECIFIED)
    if not cursor.accept("WITHIN"):
        return mode, None
    if mode == catalog.STOP_MODE_HARD:
        cursor.index -= 1
        raise cursor.refusal("a HARD stop drains nothing, so it takes no WITHIN")
    at = cursor.offset
    microseconds = cursor.take_duration()
    if not 0 < microseconds <= _WEEK_US:
        raise cursor.refusal("a drain takes more than 0 and at most 7 days", at)
    return mode, Duration(seconds=microseconds // 1_000_000, nanos=microseconds % 1_000_000 * 1_000)


def _made(cursor: Cursor, start: int, verb: str, request: Message, if_exists: bool) -> RequestStatement:
    if cursor.word() in ("CASCADE", "RESTRICT"):
        raise cursor.refusal(
            f"DROP takes no {cursor.word()}",
            suggestion="what refers to it is listed in the error; drop that first",
            reason=UNSUPPORTED,
        )
    cursor.expect_end(("SOFT", "HARD", "WITHIN", "FORCE"))
    return RequestStatement(
        text=cursor.text_between(start, cursor.tokens[-1].end + 1),
        source=cursor.source,
        offset=start,
        verb=verb,
        request=request,
        if_exists=if_exists,
    )
