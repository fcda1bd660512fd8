"""Types of Headgate (docs/sql/types.md) as Spark and Arrow have them.

The spelling is the canonical one, which is all that plans carry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headgate.catalog import v1 as catalog
from headgate_common.column_types import ColumnType, read_type
from headgate_engine.executor.required import ELEMENTS, VALUES, ColumnPath, step_to

_SCALARS = {
    "BOOL": "boolean",
    "INT8": "tinyint",
    "INT16": "smallint",
    "INT32": "int",
    "INT64": "bigint",
    "UINT8": "smallint",
    "UINT16": "int",
    "UINT32": "bigint",
    "UINT64": "decimal(20,0)",
    "FLOAT32": "float",
    "FLOAT64": "double",
    "VARCHAR": "string",
    "CHAR": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}


class UnknownType(ValueError):
    """A type that this engine cannot read."""


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def spark_type(spelling: str) -> str:
    """A type as Spark spells it."""
    try:
        return _spark(read_type(spelling))
    except ValueError as error:
        raise UnknownType(str(error)) from None


def _spark(type_: ColumnType) -> str:
    match type_:
        case ColumnType(kind="ARRAY", element=ColumnType() as element):
            return f"array<{_spark(element)}>"
        case ColumnType(kind="MAP", key=ColumnType() as key, element=ColumnType() as element):
            return f"map<{_spark(key)},{_spark(element)}>"
        case ColumnType(kind="STRUCT", fields=fields):
            # Spark takes every column for nullable: so does all of Headgate's SQL. `required` has what is NOT NULL.
            return f"struct<{','.join(f'{quote(field.name)}:{_spark(field.type)}' for field in fields)}>"
        case ColumnType(kind="DECIMAL", precision=precision, scale=scale):
            return f"decimal({precision},{scale})"
    return _SCALARS[type_.kind]


def ddl(schema: catalog.Schema) -> str:
    """Columns as Spark's DDL."""
    return ", ".join(f"{quote(field.name)} {spark_type(field.type)}" for field in schema.fields)


def required(schema: catalog.Schema) -> tuple[ColumnPath, ...]:
    """What may not be NULL: columns, and fields of STRUCTs in them, but for those in the keys of a MAP."""
    found: list[ColumnPath] = []
    for field in schema.fields:
        column = (step_to(field.name),)
        found += [column] if field.not_null else []
        found += _required(column, read_type(field.type))
    return tuple(found)


def _required(path: ColumnPath, type_: ColumnType) -> Iterator[ColumnPath]:
    match type_:
        case ColumnType(kind="ARRAY", element=ColumnType() as element):
            yield from _required((*path, ELEMENTS), element)
        case ColumnType(kind="MAP", element=ColumnType() as element):
            yield from _required((*path, VALUES), element)
        case ColumnType(kind="STRUCT", fields=fields):
            for field in fields:
                inner = (*path, step_to(field.name))
                if field.not_null:
                    yield inner
                yield from _required(inner, field.type)


def struct_of(schema: catalog.Schema) -> StructType:
    columns = StructType.fromDDL(ddl(schema))
    assert isinstance(columns, StructType)
    return columns


def arrow_of(columns: StructType) -> pa.Schema:
    """The Arrow types in which Spark takes and gives columns."""
    return to_arrow_schema(columns, timezone="UTC")


def spelled(columns: StructType) -> catalog.Schema:
    """Columns of a result, in Headgate's spelling."""
    return catalog.Schema(
        fields=[
            catalog.Field(name=field.name, type=_spelling(field.dataType.simpleString()), not_null=not field.nullable)
            for field in columns
        ]
    )


_BACK = {
    "boolean": "BOOL",
    "tinyint": "INT8",
    "smallint": "INT16",
    "int": "INT32",
    "bigint": "INT64",
    "float": "FLOAT32",
    "double": "FLOAT64",
    "string": "VARCHAR",
    "binary": "BINARY",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
}


def _spelling(simple: str) -> str:
    """Spark's own spelling where Headgate has no such type (intervals, timestamps without a zone)."""
    tokens = re.split(r"([<>,:])", simple)
    return "".join(
        _BACK.get(token, token.upper() if token in ("array", "map", "struct") else token) for token in tokens
    )
