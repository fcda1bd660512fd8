"""Types of columns as an agent needs them: the canonical spelling read, and the Arrow type that holds the values.

The planner spells types canonically (docs/sql/types.md); an agent reads that one spelling and nothing else.
`arrow_type` is the type in which rows are decoded and travel on an edge from a source; `spark_arrow_type` the one in
which Spark gives rows, which an edge to a sink may carry (Spark has no unsigned integers).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.catalog import v1 as catalog

UTC_MICROS = pa.timestamp("us", "UTC")

_ARROW: dict[str, pa.DataType] = {
    "BOOL": pa.bool_(),
    "INT8": pa.int8(),
    "INT16": pa.int16(),
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "UINT8": pa.uint8(),
    "UINT16": pa.uint16(),
    "UINT32": pa.uint32(),
    "UINT64": pa.uint64(),
    "FLOAT32": pa.float32(),
    "FLOAT64": pa.float64(),
    "VARCHAR": pa.string(),
    "CHAR": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": UTC_MICROS,
}
_OF_SPARK: dict[str, pa.DataType] = {
    "UINT8": pa.int16(),
    "UINT16": pa.int32(),
    "UINT32": pa.int64(),
    "UINT64": pa.decimal128(20, 0),
}
_PIECE = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>\d+)|(?P<quoted>`(?:[^`]|``)*`)|(?P<sign>[<>(),:]))"
)
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class StructField:
    """A field of a STRUCT."""

    name: str
    type: ColumnType
    not_null: bool = False


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type: its family, and the parameters that the family has."""

    kind: str
    # DECIMAL
    precision: int = 0
    scale: int = 0
    # CHAR(n) and VARCHAR(n); 0 for any length
    length: int = 0
    # ARRAY; the values of a MAP
    element: ColumnType | None = None
    # MAP
    key: ColumnType | None = None
    # STRUCT
    fields: tuple[StructField, ...] = ()

    @property
    def is_text(self) -> bool:
        return self.kind in ("VARCHAR", "CHAR")

    @property
    def is_float(self) -> bool:
        return self.kind in ("FLOAT32", "FLOAT64")

    @property
    def is_integer(self) -> bool:
        return self.kind.startswith(("INT", "UINT"))

    @property
    def is_nested(self) -> bool:
        return self.kind in ("ARRAY", "MAP", "STRUCT")


@dataclass(frozen=True, slots=True)
class Column:
    """A column as declared. `arrow` is the Arrow type of its values."""

    name: str
    type: ColumnType
    arrow: pa.DataType
    not_null: bool = False


def read_type(text: str) -> ColumnType:
    """The type of a canonical spelling; a ValueError for anything else."""
    return _Reader(text).read()


def arrow_type(type_: ColumnType) -> pa.DataType:
    """The Arrow type that holds the values and nothing else."""
    return _arrow(type_, {})


def spark_arrow_type(type_: ColumnType) -> pa.DataType:
    """The Arrow type in which Spark takes and gives the values."""
    return _arrow(type_, _OF_SPARK)


def columns_of(schema: catalog.Schema) -> tuple[Column, ...]:
    """The columns of a plan's schema."""
    found = []
    for field in schema.fields:
        type_ = read_type(field.type)
        found.append(Column(field.name, type_, arrow_type(type_), field.not_null))
    return tuple(found)


def arrow_schema(columns: Sequence[Column]) -> Any:
    """The Arrow schema of columns; NOT NULL ones are not nullable."""
    return pa.schema([pa.field(column.name, column.arrow, nullable=not column.not_null) for column in columns])


def _arrow(type_: ColumnType, instead: dict[str, pa.DataType]) -> pa.DataType:
    match type_.kind:
        case "DECIMAL":
            return pa.decimal128(type_.precision, type_.scale)
        case "ARRAY":
            return pa.list_(pa.field("element", _arrow(_present(type_.element), instead)))
        case "MAP":
            return pa.map_(_arrow(_present(type_.key), instead), _arrow(_present(type_.element), instead))
        case "STRUCT":
            return pa.struct([pa.field(f.name, _arrow(f.type, instead), nullable=not f.not_null) for f in type_.fields])
        case kind:
            return instead.get(kind) or _ARROW[kind]


def _present(type_: ColumnType | None) -> ColumnType:
    if type_ is None:
        raise ValueError("a nested type without the type of what is in it")
    return type_


class _Reader:
    """Recursive descent over the canonical spelling; the depth is bounded."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> ColumnType:
        type_ = self._type()
        if self._text[self._at :].strip():
            raise self._wrong()
        return type_

    def _wrong(self) -> ValueError:
        return ValueError(f"not a type in canonical spelling: {self._text[:200]!r} at {self._at}")

    def _next(self, group: str) -> str | None:
        match = _PIECE.match(self._text, self._at)
        if match is None or match.lastgroup != group:
            return None
        self._at = match.end()
        return match.group(group)

    def _sign(self, sign: str) -> bool:
        saved = self._at
        if self._next("sign") == sign:
            return True
        self._at = saved
        return False

    def _expect(self, sign: str) -> None:
        if not self._sign(sign):
            raise self._wrong()

    def _number(self) -> int:
        digits = self._next("number")
        if digits is None:
            raise self._wrong()
        return int(digits)

    def _type(self) -> ColumnType:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("a type that nests too deeply")
        kind = self._next("word")
        type_ = self._of(kind)
        self._depth -= 1
        return type_

    def _of(self, kind: str | None) -> ColumnType:
        match kind:
            case "DECIMAL":
                self._expect("(")
                precision = self._number()
                self._expect(",")
                scale = self._number()
                self._expect(")")
                return ColumnType("DECIMAL", precision=precision, scale=scale)
            case "VARCHAR" | "CHAR":
                if not self._sign("("):
                    return ColumnType(kind)
                length = self._number()
                self._expect(")")
                return ColumnType(kind, length=length)
            case "ARRAY":
                self._expect("<")
                element = self._type()
                self._expect(">")
                return ColumnType("ARRAY", element=element)
            case "MAP":
                self._expect("<")
                key = self._type()
                self._expect(",")
                element = self._type()
                self._expect(">")
                return ColumnType("MAP", key=key, element=element)
            case "STRUCT":
                return self._struct()
            case str() if kind in _ARROW:
                return ColumnType(kind)
            case _:
                raise self._wrong()

    def _struct(self) -> ColumnType:
        self._expect("<")
        fields = [self._field()]
        while self._sign(","):
            fields.append(self._field())
        self._expect(">")
        return ColumnType("STRUCT", fields=tuple(fields))

    def _field(self) -> StructField:
        name = self._next("word")
        if name is None:
            quoted = self._next("quoted")
            if quoted is None:
                raise self._wrong()
            name = quoted[1:-1].replace("``", "`")
        self._expect(":")
        type_ = self._type()
        saved = self._at
        if self._next("word") == "NOT" and self._next("word") == "NULL":
            return StructField(name, type_, not_null=True)
        self._at = saved
        return StructField(name, type_)
