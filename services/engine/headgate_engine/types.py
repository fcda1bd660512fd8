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
_TOKEN = re.compile(r"\s*(`(?:[^`]|``)+`|\w+|[<>(),:])")


class UnknownType(ValueError):
    """A type that this engine cannot read."""


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def spark_type(spelling: str) -> str:
    """A type as Spark spells it."""
    tokens = list(_tokens(spelling))
    try:
        text, rest = _type(tokens)
    except IndexError:
        raise UnknownType(f"{spelling}: it ends too early") from None
    if rest:
        raise UnknownType(f"{spelling}: {' '.join(rest)} is left over")
    return text


def _tokens(text: str) -> Iterator[str]:
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise UnknownType(f"{text}: cannot be read at character {at + 1}")
        yield found[1]
        at = found.end()


def _type(tokens: list[str]) -> tuple[str, list[str]]:
    if not tokens:
        raise UnknownType("a type is missing")
    name, rest = tokens[0].upper(), tokens[1:]
    match name:
        case "ARRAY":
            element, rest = _type(_expect(rest, "<"))
            return f"array<{element}>", _expect(rest, ">")
        case "MAP":
            key, rest = _type(_expect(rest, "<"))
            value, rest = _type(_expect(rest, ","))
            return f"map<{key},{value}>", _expect(rest, ">")
        case "STRUCT":
            return _struct(_expect(rest, "<"))
        case "DECIMAL":
            precision, scale = rest[1], rest[3]
            return f"decimal({precision},{scale})", _expect(rest[4:], ")")
    if name not in _SCALARS:
        raise UnknownType(f"there is no type {tokens[0]}")
    if rest[:1] == ["("]:
        rest = _expect(rest[2:], ")")
    return _SCALARS[name], rest


def _struct(rest: list[str]) -> tuple[str, list[str]]:
    fields = []
    while True:
        name = rest[0]
        type_, rest = _type(_expect(rest[1:], ":"))
        # Spark takes every column for nullable: so does all of Headgate's SQL.
        if [word.upper() for word in rest[:2]] == ["NOT", "NULL"]:
            rest = rest[2:]
        fields.append(f"{name if name.startswith('`') else quote(name)}:{type_}")
        if rest[:1] != [","]:
            return f"struct<{','.join(fields)}>", _expect(rest, ">")
        rest = rest[1:]


def _expect(tokens: list[str], wanted: str) -> list[str]:
    if tokens[:1] != [wanted]:
        raise UnknownType(f"expected {wanted}, found {tokens[0] if tokens else 'the end'}")
    return tokens[1:]


def ddl(schema: catalog.Schema) -> str:
    """Columns as Spark's DDL."""
    return ", ".join(f"{quote(field.name)} {spark_type(field.type)}" for field in schema.fields)


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
