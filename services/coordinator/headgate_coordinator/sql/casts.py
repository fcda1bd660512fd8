"""What CAST is defined for, and what a literal text means where a time is wanted."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from headgate_coordinator.sql.coercion import computed
from headgate_coordinator.sql.types import DataType, Kind, element_of, key_of

_INSTANT = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2})(?:[ T](\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)\s*(Z|UTC|[+-]\d{2}:\d{2})?)?"
)


def parse_instant(text: str) -> datetime | None:
    """The instant that a literal such as '2026-01-31 12:00:00.5' means, in UTC unless it says otherwise."""
    match = _INSTANT.fullmatch(text.strip()) if len(text) <= 64 else None
    if match is None:
        return None
    day, clock, zone = match.groups()
    try:
        year, month, number = (int(part) for part in day.split("-"))
        hour = minute = 0
        second, micro = 0, 0
        if clock:
            parts = clock.split(":")
            hour, minute = int(parts[0]), int(parts[1])
            if len(parts) > 2:
                whole, _, fraction = parts[2].partition(".")
                second, micro = int(whole), int(fraction.ljust(6, "0")) if fraction else 0
        moment = datetime(year, month, number, hour, minute, second, micro, tzinfo=UTC)
        if zone and zone[0] in "+-":
            return datetime.fromisoformat(moment.replace(tzinfo=None).isoformat() + zone).astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return moment


def castable(source: DataType, target: DataType) -> bool:
    """Whether CAST is defined. Numbers and times are not: how to count must be said."""
    if source.kind is Kind.NULL:
        return not target.is_interval
    if source.is_interval or target.is_interval:
        return False
    source, wide = computed(source), computed(target)
    if source == wide or wide.kind is Kind.VARCHAR:
        return True
    match source.kind, wide.kind:
        case Kind.VARCHAR, _:
            return not wide.is_nested
        case Kind.ARRAY, Kind.ARRAY:
            return castable(element_of(source), element_of(wide))
        case Kind.MAP, Kind.MAP:
            return castable(key_of(source), key_of(wide)) and castable(element_of(source), element_of(wide))
        case Kind.STRUCT, Kind.STRUCT:
            return len(source.fields) == len(wide.fields) and all(
                castable(mine.type, theirs.type) for mine, theirs in zip(source.fields, wide.fields, strict=True)
            )
        case (Kind.DATE, Kind.TIMESTAMP) | (Kind.TIMESTAMP, Kind.DATE):
            return True
        case _:
            return (source.is_numeric or source.kind is Kind.BOOL) and (wide.is_numeric or wide.kind is Kind.BOOL)


def cast_hint(source: DataType, target: DataType) -> str:
    if target.kind is Kind.TIMESTAMP and source.is_numeric:
        return "use timestamp_seconds, timestamp_millis or timestamp_micros"
    if source.kind is Kind.TIMESTAMP and target.is_numeric:
        return "use unix_seconds, unix_millis or unix_micros"
    if source.is_interval and target.is_numeric:
        return "subtract unix_micros of the two timestamps instead"
    if source.kind is Kind.DATE and target.is_numeric:
        return "use unix_date"
    return ""
