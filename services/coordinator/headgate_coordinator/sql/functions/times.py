"""Patterns of dates and times, as `date_format` and `to_timestamp` take them.

They are those of Java's DateTimeFormatter without what Spark refuses. A pattern that Spark cannot read fails there with
the first row; `check_time_pattern` says it while the query is planned.
"""

from __future__ import annotations

import re

# How often each letter may stand in a row; Spark's own bounds where they are narrower than Java's.
_COUNTS = {
    **dict.fromkeys("GMLEQq", 4),
    **dict.fromkeys("dhHkKms", 2),
    **dict.fromkeys("Xx", 5),
    "y": 6,
    "D": 3,
    "S": 9,
    "a": 1,
    "F": 1,
    "z": 4,
    "Z": 5,
    "g": 19,
}
# Letters that stand in a row exactly so often.
_EXACT = {"V": (2,), "O": (1, 4), "v": (1, 4)}
# Letters that can be written and not read.
_WRITTEN_ONLY = set("EFqQ")
_WEEKS = set("YWw")
_RUN = re.compile(r"(.)\1*", re.DOTALL)


class TimePatternFault(Exception):
    """Why a text is no pattern of a time, and what to write instead."""

    def __init__(self, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion


def check_time_pattern(pattern: str, reading: bool) -> None:
    """Refuses what Spark cannot format with, or, where `reading`, cannot parse with."""
    parts = pattern.split("'")
    if len(parts) % 2 == 0:
        raise TimePatternFault("has a quote that is not closed", "write two for the quote itself")
    depth = 0
    for part in parts[::2]:
        for run in _RUN.finditer(part):
            letter, count = run[1], len(run[0])
            if letter == "[":
                depth += count
            elif letter == "]":
                depth -= count
                if depth < 0:
                    raise TimePatternFault("has a ] without its [")
            elif letter in "{}#":
                raise TimePatternFault(f"has {letter}, which is reserved", f"quote it: '{letter}'")
            elif letter.isascii() and letter.isalpha():
                _check_letter(letter, count, reading)


def _check_letter(letter: str, count: int, reading: bool) -> None:
    if letter in _WEEKS:
        raise TimePatternFault(f"has {letter}, which counts weeks", "use extract(WEEK FROM ts)")
    if letter not in _COUNTS and letter not in _EXACT:
        raise TimePatternFault(f"has the letter {letter}, which means nothing in a pattern", "quote it: 'T'")
    if reading and letter in _WRITTEN_ONLY:
        raise TimePatternFault(f"has {letter}, which a time can be written with and not read")
    exact = _EXACT.get(letter)
    if exact is not None and count not in exact:
        raise TimePatternFault(
            f"has {letter} {count} times in a row", f"write {' or '.join(letter * n for n in exact)}"
        )
    if exact is None and count > _COUNTS[letter]:
        raise TimePatternFault(f"has {letter} {count} times in a row, where at most {_COUNTS[letter]} have a meaning")
