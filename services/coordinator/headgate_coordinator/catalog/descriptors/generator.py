"""How a GENERATOR source makes up the values of a column: `sequence(1)`, `uniform(0, 120)`, `choice('a', 'b')`, ..."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headgate_coordinator.sql.errors import did_you_mean, quoted
from headgate_coordinator.sql.types import TYPES, DataType, Kind


@dataclass(frozen=True, slots=True)
class ValueMaker:
    """One way to make up values: how many arguments it takes, and for which types."""

    name: str
    arguments: str
    least: int
    most: int
    meaning: str
    kinds: frozenset[Kind]
    numeric: bool = True


_NUMBERS = frozenset(
    kind for kind, row in TYPES.items() if row.low is not None or kind in (Kind.FLOAT32, Kind.FLOAT64, Kind.DECIMAL)
)
_TEXT = frozenset((Kind.VARCHAR, Kind.CHAR))
_TIMES = frozenset((Kind.TIMESTAMP, Kind.DATE))
_SCALARS = _NUMBERS | _TEXT | _TIMES | {Kind.BOOL}

MAKERS: dict[str, ValueMaker] = {
    maker.name: maker
    for maker in (
        ValueMaker("sequence", "start, step", 0, 2, "start, start + step, ...; 0 and 1 unless given", _NUMBERS),
        ValueMaker("uniform", "low, high", 2, 2, "evenly between low and high, both included", _NUMBERS),
        ValueMaker("normal", "mean, deviation", 2, 2, "normally distributed", _NUMBERS),
        ValueMaker("choice", "a, b, ...", 1, 100, "one of the values, evenly", _SCALARS, numeric=False),
        ValueMaker("constant", "value", 1, 1, "always the value", _SCALARS, numeric=False),
        ValueMaker("text", "length", 1, 1, "random lower-case letters", _TEXT),
        ValueMaker("chance", "share", 1, 1, "TRUE with this share, from 0 to 1", frozenset((Kind.BOOL,))),
        ValueMaker("now", "", 0, 0, "the agent's time when the row is made", _TIMES | {Kind.INT64, Kind.UINT64}),
        ValueMaker(
            "clock",
            "start, step",
            2,
            2,
            "an ISO 8601 timestamp, then step later for each row, such as `clock('2026-01-01T00:00:00Z', '1s')`",
            _TIMES,
            numeric=False,
        ),
    )
}

_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*", re.DOTALL)
_ARGUMENT = re.compile(r"\s*(?:'((?:[^']|'')*)'|([^',()\s][^',()]*?))\s*(,|$)")
_NUMBER = re.compile(r"[+-]?\d{1,30}(\.\d{1,30})?([eE][+-]?\d{1,3})?")


def maker_fault(text: str, type_: DataType | None = None) -> str:
    """What is wrong with the text of a maker, for a column of this type if it is known; empty if nothing."""
    match = _CALL.fullmatch(text) if len(text) <= 4096 else None
    if match is None:
        return f"expected a call such as uniform(0, 100), not {quoted(text)}"
    name = match.group(1).lower()
    maker = MAKERS.get(name)
    if maker is None:
        return f"there is no generator {quoted(name)}: {did_you_mean(name, MAKERS) or 'there are ' + ', '.join(MAKERS)}"
    arguments = _arguments(match.group(2))
    if arguments is None:
        return f"expected {name}({maker.arguments}), with values separated by commas"
    if not maker.least <= len(arguments) <= maker.most:
        return f"expected {name}({maker.arguments}), not {len(arguments)} arguments"
    if maker.numeric:
        wrong = next((a for a in arguments if not _NUMBER.fullmatch(a)), None)
        if wrong is not None:
            return f"{quoted(wrong)} is not a number"
        if name == "uniform" and float(arguments[0]) > float(arguments[1]):
            return "low is above high"
        if name == "chance" and not 0 <= float(arguments[0]) <= 1:
            return "a share is from 0 to 1"
        if name == "text" and not (arguments[0].isdigit() and 1 <= int(arguments[0]) <= 65_536):
            return "a length is a whole number from 1 to 65,536"
    if type_ is not None and type_.kind not in maker.kinds:
        return f"{name} makes no values of type {type_}"
    return ""


def _arguments(text: str) -> list[str] | None:
    if not text.strip():
        return []
    arguments: list[str] = []
    position = 0
    while True:
        match = _ARGUMENT.match(text, position)
        if match is None:
            return None
        quoted_value, bare, separator = match.groups()
        arguments.append(bare if quoted_value is None else quoted_value.replace("''", "'"))
        if not separator:
            return arguments
        position = match.end()


def default_maker(type_: DataType) -> str | None:
    """What makes the values of a column that nothing is said about; None where something must be said."""
    if type_.is_integer:
        high = min(TYPES[type_.kind].high or 0, 999)
        return f"uniform(0, {high})"
    if type_.is_float:
        return "uniform(0, 1)"
    if type_.kind is Kind.DECIMAL:
        return f"uniform(0, {'9' * min(type_.precision - type_.scale, 3) or '0'})"
    if type_.is_text:
        return f"text({min(type_.length or 8, 8)})"
    return {Kind.BOOL: "chance(0.5)", Kind.TIMESTAMP: "now()", Kind.DATE: "now()"}.get(type_.kind)
