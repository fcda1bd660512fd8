"""What decoding gives, and what every decoded value must obey whatever its format.

A decoder turns a block of whole records into one Arrow batch. Records that cannot be rows are left out and told as
faults, with their place in the block, so that one bad row costs nothing but itself. Values are exact or refused: a
number out of range, digits that a DECIMAL has no room for, text longer than its type, or NULL where there may be none
make a record malformed; nothing is rounded, wrapped or cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from headgate_agent.fragments.types import Column, arrow_schema
from headgate_common.column_types import ColumnType

# Days and microseconds since 1970 of 0001-01-01 and of the end of 9999-12-31.
_DAYS = (-719_162, 2_932_896)
_MICROS = (_DAYS[0] * 86_400_000_000, (_DAYS[1] + 1) * 86_400_000_000 - 1)
_SHOWN = 80

# What is read; it does not change while it is decoded.
Data = bytes | bytearray


@dataclass(frozen=True, slots=True)
class RowFault:
    """A record that is no row: where it begins in the block, its bytes, and what is wrong with it."""

    offset: int
    raw: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of a block in order, and the records that are none."""

    batch: pa.RecordBatch
    faults: tuple[RowFault, ...] = ()


class Decoder(Protocol):
    """Rows from a stream of bytes.

    `whole` says how many bytes of `data` are whole records; with `final`, nothing follows `data`, so that all of it is.
    `decode` takes whole records only. `header` is None where a stream begins with rows; otherwise it takes the first
    record and gives the decoder for those after it.
    """

    @property
    def wants_header(self) -> bool: ...

    def with_header(self, record: bytes) -> Decoder: ...

    def first(self, data: Data, final: bool) -> int: ...

    def whole(self, data: Data, final: bool) -> int: ...

    def decode(self, data: Data) -> Decoded: ...


def assemble(columns: Sequence[Column], parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches of the same columns as one."""
    if len(parts) == 1:
        return parts[0]
    schema = arrow_schema(columns)
    if not parts:
        return pa.RecordBatch.from_arrays([pa.array([], column.arrow) for column in columns], schema=schema)
    return pa.concat_batches(parts)


def one_array(column: Any) -> pa.Array:
    """A column of a table as one array."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def broken_rule(array: pa.Array, column: Column) -> str:
    """The rule of the column that some value breaks; empty if none is broken."""
    if column.not_null and array.null_count:
        return f"column {column.name} is NOT NULL and there is no value"
    fault = _broken(array, column.type)
    return f"column {column.name}: {fault}" if fault else ""


def _broken(array: pa.Array, type_: ColumnType) -> str:
    match type_.kind:
        case "VARCHAR" | "CHAR" if type_.length and len(array):
            # No text has more characters than bytes, which are quicker to count.
            if (pc.max(pc.binary_length(array)).as_py() or 0) <= type_.length:
                return ""
            longest = pc.max(pc.utf8_length(array)).as_py() or 0
            return (
                f"a text of {longest:,} characters where {type_.length:,} are the most"
                if longest > type_.length
                else ""
            )
        case "DECIMAL":
            # Readers look at the digits as they are written: those that the scale adds may be too many.
            try:
                array.validate(full=True)
            except pa.ArrowInvalid:
                return f"a number that {type_name(type_)} has no room for"
        case "DATE":
            return _outside(array.cast(pa.int32()), _DAYS)
        case "TIMESTAMP":
            return _outside(array.cast(pa.int64()), _MICROS)
        case "ARRAY" if type_.element is not None:
            return _broken(array.flatten(), type_.element)
        case "MAP" if type_.key is not None and type_.element is not None:
            keys, items = array.keys, array.items
            return _broken(keys, type_.key) or _broken(items, type_.element)
        case "STRUCT":
            valid = array.drop_null()
            for index, field in enumerate(type_.fields):
                inner = valid.field(index)
                if field.not_null and inner.null_count:
                    return f"the field {field.name} is NOT NULL and there is no value"
                fault = _broken(inner, field.type)
                if fault:
                    return fault
    return ""


def _outside(numbers: pa.Array, bounds: tuple[int, int]) -> str:
    if not len(numbers):
        return ""
    found = pc.min_max(numbers).as_py()
    if found["min"] is not None and (found["min"] < bounds[0] or found["max"] > bounds[1]):
        return "a time that is not from 0001-01-01 to 9999-12-31"
    return ""


def outside(array: pa.Array, kind: str) -> Any:
    """Which values of a DATE or TIMESTAMP are too early or too late; NULL where there is none."""
    low, high = _DAYS if kind == "DATE" else _MICROS
    numbers = array.cast(pa.int32() if kind == "DATE" else pa.int64())
    return pc.or_(pc.less(numbers, low), pc.greater(numbers, high))


def shown(text: str) -> str:
    """A value in a message."""
    return repr(text) if len(text) <= _SHOWN else repr(text[:_SHOWN]) + "..."


def type_name(type_: ColumnType) -> str:
    """A type in a message."""
    if type_.kind == "DECIMAL":
        return f"DECIMAL({type_.precision},{type_.scale})"
    return f"{type_.kind}({type_.length})" if type_.length else type_.kind
