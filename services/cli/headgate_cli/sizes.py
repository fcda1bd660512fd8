"""Sizes as people write them: 64MiB, 1GiB, or a bare number of bytes."""

from __future__ import annotations

import re

import typer

_UNITS = {"": 1, "b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
_SIZE = re.compile(r"(\d{1,15})\s*([a-z]*)")


def size(written: str) -> int:
    """The number of bytes that a size stands for; a usage error where it stands for none."""
    match = _SIZE.fullmatch(written.strip().lower())
    if match is None or match.group(2) not in _UNITS:
        raise typer.BadParameter(f"{written!r} is not a size; write 64MiB, 1GiB or a number of bytes")
    return int(match.group(1)) * _UNITS[match.group(2)]


def text(number: int) -> str:
    """A size in the largest unit that it is a whole number of, as `size` reads it."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number and number % factor == 0:
            return f"{number // factor}{unit}"
    return str(number)
