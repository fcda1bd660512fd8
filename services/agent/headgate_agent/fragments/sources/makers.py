"""How a GENERATOR source makes up the values of a column, from the number of the row and nothing else.

Random numbers come from a hash of (seed, column, row), so that any rows can be made again, alone and in any order, and
are the same ones. `now()` is the one exception: it is the time at which a row is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.types import Column
from headgate_common.column_types import ColumnType
from headgate_common.durations import parse_duration
from headgate_common.errors import HeadgateError

Words = npt.NDArray[np.uint64]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = 2**64 - 1
_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\((.*)\)\s*", re.DOTALL)
_ARGUMENT = re.compile(r"\s*(?:'((?:[^']|'')*)'|([^',()\s][^',()]*?))\s*(,|$)")
_DAY_US = 86_400_000_000
# 60 digits: more than any DECIMAL and its sums have.
_EXACT = Context(prec=60, rounding=ROUND_HALF_EVEN)
_WHOLE = {
    kind: (
        0 if kind.startswith("U") else -(2 ** (bits - 1)),
        2**bits - 1 if kind.startswith("U") else 2 ** (bits - 1) - 1,
    )
    for kind, bits in (
        *((f"INT{bits}", bits) for bits in (8, 16, 32, 64)),
        *((f"UINT{bits}", bits) for bits in (8, 16, 32, 64)),
    )
}


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows to be made: their numbers, from 0 on, and the time in microseconds since 1970."""

    first: int
    count: int
    now_us: int

    def numbers(self) -> Words:
        return np.arange(self.first, self.first + self.count, dtype=np.uint64)


Maker = Callable[[Rows], pa.Array]


def maker_of(call: str, column: Column, seed: int) -> Maker:
    """The maker that a plan names for a column; PLAN_UNSUPPORTED if it cannot be made."""
    match = _CALL.fullmatch(call)
    arguments = _arguments(match.group(2)) if match else None
    if match is None or arguments is None:
        raise HeadgateError(PLAN_UNSUPPORTED, f"column {column.name}: {call!r} makes no values")
    try:
        return _Making(column, Draws(seed, column.name)).of(match.group(1).lower(), arguments)
    except (ValueError, ArithmeticError, KeyError, IndexError, pa.ArrowInvalid) as error:
        raise HeadgateError(PLAN_UNSUPPORTED, f"column {column.name}: {call!r} makes no values: {error}") from error


class Draws:
    """Random words of a column by row: a counter under a key, mixed until nothing of the counter is seen."""

    def __init__(self, seed: int, name: str) -> None:
        self._key = seed & _MASK
        for byte in name.encode():
            self._key = _mix_one(self._key ^ byte)

    def words(self, numbers: Words, stream: int = 0) -> Words:
        key = _mix_one(self._key + (stream + 1) * _GOLDEN)
        with np.errstate(over="ignore"):
            state = (numbers + np.uint64(1)) * np.uint64(_GOLDEN) + np.uint64(key)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return state ^ (state >> np.uint64(31))

    def units(self, numbers: Words, stream: int = 0) -> npt.NDArray[np.float64]:
        """Numbers from 0 up to, not including, 1."""
        return (self.words(numbers, stream) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def below(self, numbers: Words, bound: int, stream: int = 0) -> Words:
        """Whole numbers from 0 up to, not including, a bound of at most 2**64."""
        if bound >= 2**64:
            return self.words(numbers, stream)
        return self.words(numbers, stream) % np.uint64(bound)


class _Making:
    def __init__(self, column: Column, draws: Draws) -> None:
        self._type = column.type
        self._arrow = column.arrow
        self._draws = draws

    def of(self, name: str, arguments: Sequence[str]) -> Maker:
        match name, arguments:
            case "sequence", _:
                start, step = (*(Decimal(a) for a in arguments), *(Decimal(0), Decimal(1))[len(arguments) :])
                return self._sequence(start, step)
            case "uniform", [low, high]:
                return self._uniform(Decimal(low), Decimal(high))
            case "normal", [mean, deviation]:
                return self._normal(float(mean), float(deviation))
            case "choice", [_, *_]:
                return self._choice(arguments)
            case "constant", [value]:
                return self._choice([value])
            case "text", [length]:
                return self._text(int(length))
            case "chance", [share]:
                chance = float(share)
                return lambda rows: pa.array(self._draws.units(rows.numbers()) < chance)
            case "now", []:
                return lambda rows: self._micros(np.full(rows.count, rows.now_us, np.int64))
            case "clock", [start, step]:
                return self._clock(_moment(start), parse_duration(step))
            case _:
                raise ValueError("this agent does not know how")

    def _sequence(self, start: Decimal, step: Decimal) -> Maker:
        if self._type.is_float:
            first, by = float(start), float(step)
            return lambda rows: self._floats(first + by * rows.numbers().astype(np.float64))
        unit = Decimal(10) ** self._type.scale
        low, high = self._bounds()
        first_whole, by_whole, size = int(start * unit), int(step * unit), high - low + 1
        if size <= 2**64:

            def quick(rows: Rows) -> pa.Array:
                # Whole numbers wrap around within the type, as the words under them do.
                with np.errstate(over="ignore"):
                    steps = rows.numbers() * np.uint64(by_whole & _MASK) + np.uint64(first_whole & _MASK)
                if size < 2**64:
                    exact = (
                        first_whole - low + by_whole * rows.first,
                        first_whole - low + by_whole * (rows.first + rows.count),
                    )
                    if not all(0 <= bound < size for bound in exact):
                        return wrapped(rows)
                return self._whole(steps.view(np.int64) if low < 0 else steps)

            def wrapped(rows: Rows) -> pa.Array:
                made = [
                    (first_whole + by_whole * number - low) % size + low
                    for number in range(rows.first, rows.first + rows.count)
                ]
                return self._whole(np.array(made, np.int64 if low < 0 else np.uint64))

            return quick
        return lambda rows: self._decimals(
            [(first_whole + by_whole * n - low) % size + low for n in range(rows.first, rows.first + rows.count)]
        )

    def _uniform(self, low: Decimal, high: Decimal) -> Maker:
        if self._type.is_float:
            base, width = float(low), float(high) - float(low)
            return lambda rows: self._floats(base + width * self._draws.units(rows.numbers()))
        unit = Decimal(10) ** self._type.scale
        least, most = self._bounds()
        bottom = max(least, int((low * unit).to_integral_value("ROUND_CEILING", _EXACT)))
        top = min(most, int((high * unit).to_integral_value("ROUND_FLOOR", _EXACT)))
        if bottom > top:
            raise ValueError("there is no value of the type between low and high")
        span = top - bottom + 1
        if span > 2**64 or bottom < -(2**63) or top >= (2**63 if bottom < 0 else 2**64):

            def wide(rows: Rows) -> pa.Array:
                upper, lower = (self._draws.words(rows.numbers(), stream).tolist() for stream in (0, 1))
                return self._decimals([bottom + ((a << 64) | b) % span for a, b in zip(upper, lower, strict=True)])

            return wide

        def made(rows: Rows) -> pa.Array:
            with np.errstate(over="ignore"):
                words = self._draws.below(rows.numbers(), span) + np.uint64(bottom & _MASK)
            return self._whole(words.view(np.int64) if bottom < 0 else words)

        return made

    def _normal(self, mean: float, deviation: float) -> Maker:
        def made(rows: Rows) -> pa.Array:
            numbers = rows.numbers()
            # Box and Muller; the first is never 0.
            length = np.sqrt(-2.0 * np.log(1.0 - self._draws.units(numbers, 0)))
            values = mean + deviation * length * np.cos(2.0 * np.pi * self._draws.units(numbers, 1))
            if self._type.is_float:
                return self._floats(values)
            low, high = self._bounds()
            scaled = [round(value) for value in (values * 10.0**self._type.scale).tolist()]
            clipped = [min(max(value, low), high) for value in scaled]
            if self._type.kind == "DECIMAL":
                return self._decimals(clipped)
            return pa.array(clipped, self._arrow)

        return made

    def _choice(self, arguments: Sequence[str]) -> Maker:
        values = pa.array([_constant(text, self._type) for text in arguments], self._arrow)
        if self._type.length and any(len(text) > self._type.length for text in arguments):
            raise ValueError(f"a text longer than {self._type.length} characters")

        def made(rows: Rows) -> pa.Array:
            chosen = self._draws.below(rows.numbers(), len(arguments)).astype(np.int64)
            return values.take(pa.array(chosen))

        return made

    def _text(self, length: int) -> Maker:
        length = min(length, self._type.length or length)
        words = -(-length // 8)

        def made(rows: Rows) -> pa.Array:
            numbers = rows.numbers()
            drawn = np.stack([self._draws.words(numbers, stream) for stream in range(words)], axis=1)
            letters = (drawn.view(np.uint8).reshape(rows.count, words * 8)[:, :length] % 26 + ord("a")).astype(np.uint8)
            offsets = np.arange(rows.count + 1, dtype=np.int32) * np.int32(length)
            content = np.ascontiguousarray(letters)
            return pa.Array.from_buffers(pa.string(), rows.count, [None, pa.py_buffer(offsets), pa.py_buffer(content)])

        return made

    def _clock(self, start: int, step: int) -> Maker:
        def made(rows: Rows) -> pa.Array:
            return self._micros(np.int64(start) + np.int64(step) * rows.numbers().astype(np.int64))

        return made

    def _bounds(self) -> tuple[int, int]:
        if self._type.kind == "DECIMAL":
            most: int = 10**self._type.precision - 1
            return -most, most
        return _WHOLE[self._type.kind]

    def _whole(self, numbers: npt.NDArray[Any]) -> pa.Array:
        if self._type.kind != "DECIMAL":
            return pa.array(numbers).cast(self._arrow)
        # A DECIMAL is its digits as a number of 128 bits: the word, and what extends its sign.
        both = np.zeros((len(numbers), 2), np.int64)
        both[:, 0] = numbers.view(np.int64)
        both[:, 1] = -1 * (numbers < 0)
        return pa.Array.from_buffers(self._arrow, len(numbers), [None, pa.py_buffer(both)])

    def _decimals(self, digits: Sequence[int]) -> pa.Array:
        scale = -self._type.scale
        return pa.array([Decimal(d).scaleb(scale, _EXACT) for d in digits], self._arrow)

    def _floats(self, numbers: npt.NDArray[np.float64]) -> pa.Array:
        return pa.array(numbers.astype(np.float32) if self._type.kind == "FLOAT32" else numbers)

    def _micros(self, micros: npt.NDArray[np.int64]) -> pa.Array:
        if self._type.kind == "DATE":
            return pa.array((micros // _DAY_US).astype(np.int32)).cast(pa.date32())
        if self._type.kind == "TIMESTAMP":
            return pa.array(micros).cast(self._arrow)
        return pa.array(micros).cast(self._arrow)


def _arguments(text: str) -> list[str] | None:
    if not text.strip():
        return []
    found: list[str] = []
    position = 0
    while True:
        match = _ARGUMENT.match(text, position)
        if match is None:
            return None
        quoted, bare, separator = match.groups()
        found.append(bare if quoted is None else quoted.replace("''", "'"))
        if not separator:
            return found
        position = match.end()


def _constant(text: str, type_: ColumnType) -> Any:
    if type_.is_text:
        return text
    match type_.kind:
        case "BOOL":
            if text.lower() not in ("true", "false"):
                raise ValueError(f"{text!r} is not true or false")
            return text.lower() == "true"
        case "DATE":
            return date.fromisoformat(text.strip())
        case "TIMESTAMP":
            return _moment(text)
        case "FLOAT32" | "FLOAT64":
            return float(text)
        case "DECIMAL":
            return Decimal(text)
        case _:
            number = Decimal(text)
            if number != int(number):
                raise ValueError(f"{text!r} is not a whole number")
            return int(number)


def _moment(text: str) -> int:
    """Microseconds since 1970 of an ISO 8601 text; UTC where no zone is said."""
    moment = datetime.fromisoformat(text.strip())
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _mix_one(word: int) -> int:
    word &= _MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)
