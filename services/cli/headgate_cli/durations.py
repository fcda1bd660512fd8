"""Durations as people write them: 90s, 5m, 1h30m, 250ms, or a bare number of seconds."""

from __future__ import annotations

import re

import typer

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")


def seconds(text: str | float) -> float:
    """The number of seconds that a duration stands for; a usage error where it stands for none."""
    written = str(text).strip().lower()
    if re.fullmatch(r"\d+(?:\.\d+)?", written):
        return float(written)
    if not written or _PART.sub("", written):
        raise typer.BadParameter(f"{text!r} is not a duration; write 90s, 5m, 1h30m or 250ms")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(written))


def text(milliseconds: int) -> str:
    """A duration in the largest unit that it is a whole number of, as `seconds` reads it."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"
