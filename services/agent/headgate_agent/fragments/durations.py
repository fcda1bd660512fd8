"""Lengths of time as plans spell them: `5 s`, `250 ms`."""

from __future__ import annotations

import re
from decimal import Decimal

_MICROS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "w": 604_800_000_000,
}
_LONG = {
    **dict.fromkeys(("microsecond", "microseconds"), "us"),
    **dict.fromkeys(("msec", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("week", "weeks"), "w"),
}
_DURATION = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]+)\s*")


def micros_of(text: str) -> int:
    """Microseconds of a duration; a ValueError for anything else."""
    match = _DURATION.fullmatch(text)
    unit = match.group(2).lower() if match else ""
    factor = _MICROS.get(_LONG.get(unit, unit))
    if match is None or factor is None:
        raise ValueError(f"not a duration: {text[:80]!r}")
    exact = Decimal(match.group(1)) * factor
    if exact != int(exact):
        raise ValueError(f"not a whole number of microseconds: {text[:80]!r}")
    return int(exact)
