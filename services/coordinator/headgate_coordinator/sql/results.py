"""Temporary queries: a SELECT without INTO, whose rows go to whoever asked for them.

Their sink is made of their columns. LIMIT without ORDER BY, which a continuous query cannot have, ends them.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.binding import Bound
from headgate_coordinator.sql.types import VARCHAR, DataType, Kind

# The name of the sink in messages; no sink can be created with it.
NAME = "result"


def without_limit(select: exp.Query) -> tuple[exp.Query, int | None]:
    """The query without its own LIMIT where nothing orders the rows, and that limit."""
    limit = select.args.get("limit")
    if not isinstance(limit, exp.Limit) or select.args.get("order") is not None:
        return select, None
    count = limit.expression
    if not isinstance(count, exp.Literal) or count.is_string or not str(count.this).isdigit() or int(count.this) < 1:
        return select, None
    if any(value for key, value in limit.args.items() if key != "expression"):
        return select, None
    unlimited = select.copy()
    unlimited.set("limit", None)
    return unlimited, int(count.this)


def result_of(bound: Bound | None, limit: int | None) -> tuple[Bound | None, catalog.Sink | None]:
    """The query with a name for each column, and the sink that takes them."""
    if bound is None:
        return None, None
    taken: set[str] = set()
    outputs = []
    for position, (name, column) in enumerate(bound.outputs, start=1):
        outputs.append((_unique(name or f"column{position}", taken), column))
    schema = catalog.Schema(fields=[catalog.Field(name=name, type=_stored(column.type)) for name, column in outputs])
    options = {"limit": str(limit)} if limit is not None else {}
    sink = catalog.Sink(name=NAME, type=catalog.SINK_TYPE_RESULT, schema=schema, options=options)
    return replace(bound, outputs=tuple(outputs)), sink


def _stored(kind: DataType) -> str:
    """The type that a column has; text where it has none of its own, which says what is wrong with an interval."""
    return str(VARCHAR) if kind.is_interval or kind.kind is Kind.NULL else str(kind)


def _unique(name: str, taken: set[str]) -> str:
    found, number = name, 1
    while found.lower() in taken:
        number += 1
        found = f"{name}_{number}"
    taken.add(found.lower())
    return found
