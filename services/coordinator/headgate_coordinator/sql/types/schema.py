"""The rules for the columns of a source or sink, for SQL and API alike."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.errors import EMPTY_SCHEMA, INVALID_SCHEMA
from headgate_coordinator.sql.errors import quoted
from headgate_coordinator.sql.types.model import DataType
from headgate_coordinator.sql.types.text import TypeSyntaxError, parse_type

MAX_COLUMN_NAME = 255
_SHOWN = 10


@dataclass(frozen=True, slots=True)
class SchemaLimits:
    """What the coordinator is configured to accept."""

    max_columns: int = 2_000


@dataclass(frozen=True, slots=True)
class Column:
    """A column as declared."""

    name: str
    type: DataType
    not_null: bool = False


def validate_schema(schema: catalog.Schema, limits: SchemaLimits | None = None) -> catalog.Schema:
    """The schema with types in canonical spelling; EMPTY_SCHEMA, or INVALID_SCHEMA that lists what is wrong."""
    limits = limits or SchemaLimits()
    if not schema.fields:
        raise HeadgateError(EMPTY_SCHEMA, "a schema has at least one column")
    if len(schema.fields) > limits.max_columns:
        raise HeadgateError(
            INVALID_SCHEMA, f"a schema has at most {limits.max_columns:,} columns, not {len(schema.fields):,}"
        )
    checked = catalog.Schema()
    wrong: list[str] = []
    seen: set[str] = set()
    for ordinal, field in enumerate(schema.fields, start=1):
        fault = column_name_fault(field.name)
        if fault:
            wrong.append(f"column {ordinal}: {fault}")
        elif field.name.lower() in seen:
            wrong.append(f"column {quoted(field.name)} comes twice (case does not count)")
        seen.add(field.name.lower())
        try:
            checked.fields.add(name=field.name, type=str(parse_type(field.type)), not_null=field.not_null)
        except TypeSyntaxError as error:
            suggestion = f": {error.suggestion}" if error.suggestion else ""
            wrong.append(f"column {quoted(field.name)}: {error.message}{suggestion}")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN:,} more" if len(wrong) > _SHOWN else ""
        raise HeadgateError(INVALID_SCHEMA, "; ".join(wrong[:_SHOWN]) + more)
    return checked


def column_name_fault(name: str) -> str:
    """What is wrong with the name of a column; empty if nothing."""
    if not name:
        return "the name is empty"
    if len(name) > MAX_COLUMN_NAME:
        return f"the name is longer than {MAX_COLUMN_NAME} characters"
    if not name.isprintable():
        return f"the name {quoted(name)} has a control character"
    if name != name.strip():
        return f"the name {quoted(name)} begins or ends with a space"
    return ""


def columns_of(schema: catalog.Schema) -> tuple[Column, ...]:
    """The columns of a schema that `validate_schema` accepted, with their types read."""
    return tuple(Column(field.name, parse_type(field.type), field.not_null) for field in schema.fields)
