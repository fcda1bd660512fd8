"""Fits the columns of a query into those of its sink: by name, without regard to case, with safe widening only."""

from __future__ import annotations

from sqlglot import exp

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.algebra import Call, Column, Expr, Ids, Literal, Project
from headgate_coordinator.sql.binding import Bound
from headgate_coordinator.sql.coercion import computed
from headgate_coordinator.sql.errors import Problems, Step, did_you_mean, quoted
from headgate_coordinator.sql.nodes import offset_of
from headgate_coordinator.sql.types import Column as Declared
from headgate_coordinator.sql.types import Kind, columns_of, widens


def fit_to_sink(bound: Bound, sink: catalog.Sink, problems: Problems, ids: Ids) -> Project | None:
    """The query with exactly the columns of the sink, in its order and types; None where problems were noted."""
    given = _by_name(bound, sink, problems)
    if given is None:
        return None
    items: list[tuple[Column, Expr]] = []
    for declared in columns_of(sink.schema):
        column, place = given[declared.name.lower()]
        fitted = _fitted(column, declared, place, problems)
        if fitted is not None:
            items.append((ids.column(declared.name, declared.type, column.nullable), fitted))
    return None if problems else Project(bound.node, tuple(items))


def _by_name(bound: Bound, sink: catalog.Sink, problems: Problems) -> dict[str, tuple[Column, exp.Expr | None]] | None:
    wanted = [field.name for field in sink.schema.fields]
    folded = {name.lower() for name in wanted}
    named = {name.lower() for name, _ in bound.outputs}
    missing = [want for want in wanted if want.lower() not in named]
    given: dict[str, tuple[Column, exp.Expr | None]] = {}
    complete = True
    for position, (name, column) in enumerate(bound.outputs, start=1):
        place = bound.places[position - 1] if position <= len(bound.places) else None
        if not name:
            hint = f"AS {missing[0]}" if missing else f"the columns of {sink.name} are {', '.join(wanted)}"
            problems.add(Step.BIND, offset_of(place), f"column {position} has no name", f"write {hint}")
            complete = False
        elif name.lower() in given:
            problems.add(Step.BIND, offset_of(place), f"the column {quoted(name)} comes twice", "rename one with AS")
            complete = False
        elif name.lower() not in folded:
            hint = did_you_mean(name, missing) or (f"its columns are {', '.join(wanted[:20])}")
            problems.add(
                Step.TYPE, offset_of(place), f"the sink {quoted(sink.name)} has no column {quoted(name)}", hint
            )
            complete = False
        given.setdefault(name.lower(), (column, place))
    unnamed = any(not name for name, _ in bound.outputs)
    for name in wanted:
        if name.lower() not in given and complete and not unnamed:
            problems.add(
                Step.TYPE,
                offset_of(bound.places[-1]) if bound.places else None,
                f"the query gives no column {quoted(name)}, which the sink {quoted(sink.name)} has",
                did_you_mean(name, [n for n, _ in bound.outputs]),
            )
    return given if complete and all(name.lower() in given for name in wanted) else None


def _fitted(column: Column, declared: Declared, place: exp.Expr | None, problems: Problems) -> Expr | None:
    offset = offset_of(place)
    source, target = column.type, declared.type
    if source.is_interval:
        problems.add(
            Step.TYPE,
            offset,
            f"{quoted(declared.name)} is an interval, which cannot be stored",
            "subtract unix_micros of the two timestamps instead",
        )
        return None
    if not widens(source, target):
        problems.add(
            Step.TYPE,
            offset,
            f"{quoted(declared.name)} is {source}, and the sink's column is {target}",
            f"CAST it, if its values fit: CAST({declared.name} AS {target})",
        )
        return None
    if declared.not_null and column.nullable:
        problems.add(
            Step.TYPE,
            offset,
            f"{quoted(declared.name)} can be NULL, and the sink's column is NOT NULL",
            "use COALESCE, or filter with IS NOT NULL" if source.kind is not Kind.NULL else "",
        )
        return None
    if source.kind is Kind.NULL:
        return Literal(None, target)
    if computed(source) == computed(target):
        return column
    return Call("cast", (column,), target, column.nullable)
