"""Formats of `format_string`, which are those of Java's Formatter.

A format that does not fit its arguments fails with the first row; `check_format` says it while the query is planned.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headgate_coordinator.sql.coercion import computed
from headgate_coordinator.sql.types import DataType, Kind

_SPECIFIER = re.compile(r"%(\d+\$|<)?([-#+ 0,(]*)(\d+)?(\.\d+)?([tT])?(.)", re.DOTALL)
_WHOLE = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64)
_FLOATING = (Kind.FLOAT32, Kind.FLOAT64)
# What each conversion takes, beside those that take anything.
_TAKES = {
    **dict.fromkeys("doxX", (_WHOLE, "an integer")),
    **dict.fromkeys("eEfgGaA", (_FLOATING, "FLOAT32 or FLOAT64")),
    **dict.fromkeys("cC", (_WHOLE[:3], "an integer of at most 32 bits")),
}
_ANYTHING = "sSbBhH"
_WITHOUT_ARGUMENT = "n%"


class FormatFault(Exception):
    """Why a format does not fit: which argument of FORMAT_STRING is wrong (0 is the format), and why."""

    def __init__(self, index: int, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.index = index
        self.message = message
        self.suggestion = suggestion


def check_format(text: str, types: Sequence[DataType]) -> None:
    """Refuses a format that the arguments of these types do not fit."""
    at = ordinary = last = 0
    while True:
        start = text.find("%", at)
        if start < 0:
            return
        found = _SPECIFIER.match(text, start)
        if found is None:
            raise FormatFault(0, "ends within a % sequence", "write %% for the sign itself")
        at = found.end()
        chosen, flags, width, precision, time, conversion = found.groups()
        if conversion in _WITHOUT_ARGUMENT and not time:
            if conversion == "n" and (flags or width or precision):
                raise FormatFault(0, f"has {found[0]}, and %n stands alone")
            continue
        if chosen == "<":
            position = last
        elif chosen:
            position = int(chosen[:-1])
        else:
            ordinary += 1
            position = ordinary
        last = position
        _check_specifier(found[0], conversion, time, flags, width, precision)
        if not 1 <= position <= len(types):
            raise FormatFault(0, f"has {found[0]} for argument {position} of {len(types)}")
        _check_type(found[0], conversion, types[position - 1], position)


def _check_specifier(
    shown: str, conversion: str, time: str | None, flags: str, width: str | None, precision: str | None
) -> None:
    if time:
        raise FormatFault(0, f"has {shown}: times are not taken", "use date_format")
    if conversion not in _TAKES and conversion not in _ANYTHING:
        raise FormatFault(0, f"has {shown}, which is no conversion", "write %% for the sign itself")
    if precision and conversion in "doxXcC":
        raise FormatFault(0, f"has {shown}, and %{conversion} takes no precision")
    if len(set(flags)) < len(flags):
        raise FormatFault(0, f"has {shown}, which says a flag twice")
    if ("-" in flags or "0" in flags) and not width:
        raise FormatFault(0, f"has {shown}, and its flag needs a width")
    if {"-", "0"} <= set(flags) or {"+", " "} <= set(flags):
        raise FormatFault(0, f"has {shown}, whose flags exclude each other")


def _check_type(shown: str, conversion: str, type_: DataType, position: int) -> None:
    kind = computed(type_).kind
    if kind in (Kind.DATE, Kind.TIMESTAMP, Kind.BINARY) or type_.is_nested or type_.is_interval:
        raise FormatFault(position, f"is {type_}, which %s would show as Spark stores it", "CAST(x AS VARCHAR)")
    taken = _TAKES.get(conversion)
    if taken is not None and kind not in taken[0]:
        raise FormatFault(position, f"is {type_}, and {shown} takes {taken[1]}", "CAST it, or use %s")
