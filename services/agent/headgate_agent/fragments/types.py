"""Types of columns as an agent needs them: the Arrow type that holds the values.

`arrow_type` is the type in which rows are decoded and travel on an edge from a source; `spark_arrow_type` the one in
which Spark gives rows, which an edge to a sink may carry (Spark has no unsigned integers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headgate.catalog import v1 as catalog
from headgate_common.column_types import ColumnType, read_type

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


@dataclass(frozen=True, slots=True)
class Column:
    """A column as declared. `arrow` is the Arrow type of its values."""

    name: str
    type: ColumnType
    arrow: pa.DataType
    not_null: bool = False


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
