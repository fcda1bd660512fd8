"""`ALTER TOPIC name SET (...)` and `RESET (...)`, as a request of the API. Nothing else is altered in place."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.log import v1 as log
from headgate_coordinator.catalog.log import settings
from headgate_coordinator.errors import INVALID_CONFIG, UNSUPPORTED
from headgate_coordinator.sql.parse.cursor import Cursor
from headgate_coordinator.sql.parse.options import Option, refuse_twice, take_names, take_settings
from headgate_coordinator.sql.statements import RequestStatement

_RECREATE = "drop it, then create it, in one bundle"


def take_alter(cursor: Cursor, start: int) -> RequestStatement:
    """The statement after ALTER."""
    if not cursor.accept("TOPIC"):
        raise cursor.refusal(
            f"expected TOPIC after ALTER, found {cursor.found()}",
            suggestion=f"only the settings of a topic are altered in place; anything else: {_RECREATE}",
            reason=UNSUPPORTED,
        )
    request = log.AlterTopicRequest(name=cursor.take_topic())
    given: list[Option] = []
    reset: list[Option] = []
    while True:
        if cursor.at("SET", "("):
            cursor.index += 1
            given += take_settings(cursor)
        elif cursor.at("RESET", "("):
            cursor.index += 1
            reset += take_names(cursor)
        else:
            break
    if not given and not reset:
        raise cursor.expected("SET (setting = value, ...) or RESET (setting, ...)")
    cursor.expect_end(("SET", "RESET"))
    refuse_twice(cursor, [*given, *reset])
    _refuse_fixed(cursor, [*given, *reset])
    try:
        request.settings.CopyFrom(settings.from_text({option.key: option.value for option in given}))
        request.fields.extend(settings.names_of([option.key for option in (*given, *reset)]))
    except settings.BadSetting as bad:
        at = next(option.offset for option in (*given, *reset) if option.key == bad.key)
        raise cursor.refusal(bad.message, at, bad.suggestion, INVALID_CONFIG) from None
    return RequestStatement(
        text=cursor.text_between(start, cursor.tokens[-1].end + 1),
        source=cursor.source,
        offset=start,
        verb="ALTER TOPIC",
        request=request,
    )


def _refuse_fixed(cursor: Cursor, options: Sequence[Option]) -> None:
    for option in options:
        if option.scope:
            raise cursor.refusal(f"{option.scope} has no place here", option.offset)
        why = settings.fixed(option.key)
        if why:
            raise cursor.refusal(why, option.offset, "create another topic", INVALID_CONFIG)
