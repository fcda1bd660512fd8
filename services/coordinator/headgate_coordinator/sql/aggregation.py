"""Aggregates, DISTINCT and the first n rows of a window in forms that Spark runs on a stream.

Spark refuses DISTINCT in an aggregate of a stream, knows no order of rows, and has no row numbers there. So exact
DISTINCT collects the set of values, FIRST and LAST take the value at the least or greatest event time, and the first n
rows are a list of all rows of the window, sorted and cut. Where the order of rows would show in a result, ties are
broken by value, so that running a batch again gives the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headgate_coordinator.sql.algebra import (
    Agg,
    Aggregate,
    Call,
    Column,
    Expr,
    Ids,
    Inline,
    Literal,
    Node,
    Order,
    Project,
    TopN,
    conjunction,
)
from headgate_coordinator.sql.coercion import is_orderable
from headgate_coordinator.sql.types import (
    BOOL,
    INT32,
    VARCHAR,
    StructField,
    array,
    struct,
)


@dataclass(frozen=True, slots=True)
class Computed:
    """An aggregate as Spark computes it, and what is made of it afterwards."""

    aggregate: Agg
    finish: Expr | None
    column: Column


def rewrite_aggregate(column: Column, agg: Agg, time: Expr | None, ids: Ids) -> Computed:
    """How Spark computes an aggregate. `time` is the event time of the rows, which FIRST and LAST go by."""
    match agg.op:
        case "min" | "max" if agg.distinct:
            return Computed(replace(agg, distinct=False), None, column)
        case "count" | "sum" | "avg" if agg.distinct:
            return _distinct(column, agg, ids)
        case "collect_list" | "collect_set" if agg.distinct or agg.op == "collect_set":
            collected = replace(agg, op="collect_set", distinct=False)
            return _finished(column, collected, ids, "sort_array")
        case "collect_list":
            return _in_order(column, agg, time, ids)
        case "first" | "last":
            assert time is not None
            return Computed(_by(agg, "min_by" if agg.op == "first" else "max_by", time), None, column)
        case "max_by" | "min_by":
            value, order = agg.args
            kept = conjunction([part for part in (agg.filter, _not_null(order)) if part is not None])
            return Computed(_by(replace(agg, args=(value,), filter=kept), agg.op, order), None, column)
        case "any_value":
            return Computed(replace(agg, op="min", ignore_nulls=False), None, column)
        case _:
            return Computed(agg, None, column)


def needs_time(agg: Agg) -> bool:
    """Whether an aggregate goes by event time."""
    return agg.op in ("first", "last")


def uses_time(agg: Agg) -> bool:
    """Whether an aggregate goes by event time where there is one."""
    return needs_time(agg) or (agg.op == "collect_list" and not agg.distinct)


def _not_null(expr: Expr) -> Expr | None:
    return Call("not", (Call("is_null", (expr,), BOOL, False),), BOOL, False) if expr.nullable else None


def _by(agg: Agg, op: str, order: Expr) -> Agg:
    """The value at the least or greatest `order`; ties go by the value itself."""
    (value,) = agg.args
    kept = agg.filter
    if agg.ignore_nulls:
        kept = conjunction([part for part in (agg.filter, _not_null(value)) if part is not None])
    key = _struct(order, value) if is_orderable(value.type) else order
    return replace(agg, op=op, args=(value, key), filter=kept, ignore_nulls=False)


def _struct(*values: Expr) -> Call:
    type_ = struct(*(StructField(f"f{i}", value.type) for i, value in enumerate(values, start=1)))
    return Call("struct", values, type_, False)


def _distinct(column: Column, agg: Agg, ids: Ids) -> Computed:
    values = agg.args
    if len(values) > 1:
        # A row counts if none of its values is NULL.
        whole: Expr = _struct(*values)
        present = [part for part in (_not_null(value) for value in values) if part is not None]
        if present:
            condition = conjunction(present)
            assert condition is not None
            whole = Call("case", (condition, whole), whole.type, True)
    else:
        whole = values[0]
    collected = Agg("collect_set", (whole,), array(whole.type), False, False, agg.filter)
    op = {"count": "count_of_array", "sum": "sum_of_array", "avg": "avg_of_array"}[agg.op]
    return _finished(column, collected, ids, op)


def _in_order(column: Column, agg: Agg, time: Expr | None, ids: Ids) -> Computed:
    (value,) = agg.args
    if time is None:
        return _finished(column, agg, ids, "sort_array")
    kept = conjunction([part for part in (agg.filter, _not_null(value)) if part is not None])
    pair = _struct(time, value)
    collected = Agg("collect_list", (pair,), array(pair.type), False, False, kept)
    return _finished(column, collected, ids, "values_in_order")


def _finished(column: Column, agg: Agg, ids: Ids, op: str) -> Computed:
    raw = ids.column(column.name, agg.type, agg.nullable)
    return Computed(agg, Call(op, (raw,), column.type, column.nullable), raw)


def top_n(node: TopN, input_: Node, window: tuple[Column, ...], ids: Ids) -> Node:
    """The first rows of each partition of each window: all rows in a list, sorted, cut, and taken apart again.

    `window` are the columns that tell windows apart.
    """
    assert node.limit is not None
    carried = tuple(column for column in input_.columns if column not in window and column in node.input.columns)
    terms, fields, values = _sort_terms(node.order, carried)
    type_ = struct(*fields)
    row = Call("struct", tuple(values), type_, False)
    listed = ids.column("rows", array(type_), False)
    partition = tuple(
        (ids.column("part", expr.type, expr.nullable) if not isinstance(expr, Column) else expr, expr)
        for expr in node.partition
        if expr not in window
    )
    collected = Agg("collect_list", (row,), array(type_), False)
    keys = tuple((column, column) for column in window)
    grouped = Aggregate(input_, (*keys, *partition), ((listed, collected),), node.offset)
    first = Call(
        "first_sorted", (listed, Literal(node.limit, INT32), Literal(";".join(terms), VARCHAR)), array(type_), False
    )
    return Inline(grouped, first, carried, node.number, window)


def _sort_terms(order: Sequence[Order], carried: Sequence[Column]) -> tuple[list[str], list[StructField], list[Expr]]:
    """How rows are compared (`field:desc:nulls`), and the fields of the struct that stands for a row.

    The fields named c1, c2, ... are the columns in order, those named o1, ... what is sorted by beside them.
    """
    fields = [StructField(f"c{i}", column.type) for i, column in enumerate(carried, start=1)]
    values: list[Expr] = list(carried)
    terms: list[str] = []
    for number, term in enumerate(order, start=1):
        if term.expr in carried:
            name = f"c{list(carried).index(term.expr) + 1}"  # type: ignore[arg-type]
        else:
            name = f"o{number}"
            fields.append(StructField(name, term.expr.type))
            values.append(term.expr)
        terms.append(f"{name}:{'desc' if term.descending else 'asc'}:{'first' if term.nulls_first else 'last'}")
    sorted_by = {term.split(":")[0] for term in terms}
    terms.extend(
        f"{field.name}:asc:first" for field in fields if field.name not in sorted_by and is_orderable(field.type)
    )
    return terms, fields, values


def project_finished(node: Aggregate, computed: Sequence[tuple[Column, Computed]]) -> Node:
    """The aggregate with what is made of its results afterwards."""
    if all(part.finish is None for _, part in computed):
        return node
    items: list[tuple[Column, Expr]] = [(key, key) for key, _ in node.keys]
    items.extend((column, part.finish if part.finish is not None else column) for column, part in computed)
    return Project(node, tuple(items))
