"""Lengths of time as people write them: `5 SEC`, `1m`, `250 milliseconds`, `1.5 hours`. Always microseconds inside."""

from __future__ import annotations

import re
from decimal import Decimal

UNITS: dict[str, int] = {
    unit: microseconds
    for microseconds, units in (
        (1, ("us", "microsecond", "microseconds")),
        (1_000, ("ms", "msec", "millisecond", "milliseconds")),
        (1_000_000, ("s", "sec", "secs", "second", "seconds")),
        (60_000_000, ("m", "min", "mins", "minute", "minutes")),
        (3_600_000_000, ("h", "hour", "hours")),
        (86_400_000_000, ("d", "day", "days")),
        (604_800_000_000, ("w", "week", "weeks")),
    )
    for unit in units
}
# A hundred years: far below where 64 bits of microseconds end.
MAX_DURATION_US = 36_525 * 86_400_000_000
_DURATION = re.compile(r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([A-Za-z]+)\s*")
_NO_FIXED_LENGTH = ("month", "months", "mon", "quarter", "quarters", "year", "years", "y")


def parse_duration(text: str) -> int:
    """Microseconds of a text such as '5 minutes'. A ValueError says what is wrong with it."""
    match = _DURATION.fullmatch(text) if len(text) <= 64 else None
    if match is None:
        raise ValueError("a duration is a number and a unit, such as '5 seconds' or '250ms'")
    return duration(match.group(1), match.group(2))


def duration(number: str, unit: str) -> int:
    """Microseconds of a number and a unit, as they stand in a statement."""
    factor = UNITS.get(unit.lower())
    if factor is None:
        if unit.lower() in _NO_FIXED_LENGTH:
            raise ValueError(f"{unit.upper()} has no fixed length; use DAYS or a smaller unit")
        raise ValueError(
            f"there is no unit of time {unit[:20]!r}; units are us, ms, s, m, h, d, w and their long names"
        )
    if len(number) > 30:
        raise ValueError("the duration is longer than a hundred years")
    exact = Decimal(number) * factor
    if exact != int(exact):
        raise ValueError("the duration is not a whole number of microseconds")
    if exact > MAX_DURATION_US:
        raise ValueError("the duration is longer than a hundred years")
    return int(exact)


def show_duration(microseconds: int) -> str:
    """The duration in the largest unit that it is a whole number of: '5 s', '90 m', '0 s'."""
    for factor, unit in (
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "m"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ):
        if microseconds and microseconds % factor == 0:
            return f"{microseconds // factor} {unit}"
    return f"{microseconds} us" if microseconds else "0 s"
