"""Plans as Spark SQL: one WITH query for each step, so that a person can read it.

Names are given anew at every step and depend on nothing but the step itself and what it reads. Steps that do the same
are therefore spelled the same, are written once, and read by all that need them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from headgate_coordinator.sql.algebra import (
    Aggregate,
    AssignWindow,
    Call,
    Column,
    Expr,
    Filter,
    Inline,
    Join,
    JoinKind,
    Literal,
    Node,
    Project,
    Scan,
    Union,
    Window,
    columns_in,
    conjunction,
    conjuncts,
)
from headgate_coordinator.sql.nodes import WindowKind
from headgate_coordinator.sql.spark.expressions import ExpressionWriter, duration_text, quote
from headgate_coordinator.sql.types import BOOL

_JOINS = {
    JoinKind.INNER: "JOIN",
    JoinKind.LEFT: "LEFT JOIN",
    JoinKind.RIGHT: "RIGHT JOIN",
    JoinKind.FULL: "FULL JOIN",
    JoinKind.SEMI: "LEFT SEMI JOIN",
}


@dataclass(frozen=True, slots=True)
class InputView:
    """A view that a scan reads. `filtered`: whether what was pushed into the scan has been applied already."""

    name: str
    filtered: bool


@dataclass(frozen=True, slots=True)
class _Relation:
    """Something that can stand in FROM, and what its columns are called there (already quoted)."""

    name: str
    columns: Mapping[Column, str]


@dataclass(slots=True)
class QueryWriter:
    """Writes one plan. `views` are the views of each scan, by its identity in the plan."""

    views: Mapping[int, Sequence[InputView]]
    _steps: dict[str, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)
    # What each step selects, by its text.
    _selected: dict[str, list[str]] = field(default_factory=dict)

    def write(self, node: Node, outputs: Sequence[tuple[str, Column]]) -> str:
        """The whole query; its columns are `outputs`, in order."""
        relation = self._relation(node)
        items = [_item(relation.columns[column], quote(name)) for name, column in outputs]
        last = _select(items, relation.name, "")
        if self._steps:
            body, name = next(reversed(self._steps.items()))
            if name == relation.name and self._selected[body] == items:
                del self._steps[body]
                last = body
        if not self._steps:
            return last
        steps = ",\n".join(f"{name} AS (\n{_indented(body)}\n)" for body, name in self._steps.items())
        return f"WITH {steps}\n{last}"

    def _step(self, kind: str, body: str, columns: Mapping[Column, str]) -> _Relation:
        name = self._steps.get(body)
        if name is None:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            name = f"{kind}_{self._counts[kind]}"
            self._steps[body] = name
            self._selected[body] = list(columns.values())
        return _Relation(name, columns)

    def _relation(self, node: Node) -> _Relation:
        match node:
            case Scan():
                return self._scan(node, ())
            case Filter():
                return self._filter(node)
            case Project():
                below, where = self._input(node.input)
                writer = ExpressionWriter(below.columns)
                names = _named(node.columns)
                items = [_item(writer.write(item), names[column]) for column, item in node.items]
                return self._step("projected", _select(items, below.name, where), names)
            case AssignWindow():
                return self._assign_window(node)
            case Aggregate():
                return self._aggregate(node)
            case Join():
                return self._join(node)
            case Union():
                return self._union(node)
            case Inline():
                return self._inline(node)
            case _:
                raise AssertionError(f"{type(node).__name__} is rewritten before it is written")

    def _input(self, node: Node) -> tuple[_Relation, str]:
        """What an operator reads, and the condition on it, which it can check by itself."""
        if not isinstance(node, Filter):
            return self._relation(node), ""
        if isinstance(node.input, Scan):
            return self._scan(node.input, (node.predicate,)), ""
        below = self._relation(node.input)
        return below, ExpressionWriter(below.columns).write(node.predicate)

    def _filter(self, node: Filter) -> _Relation:
        below, where = self._input(node)
        if not where:
            return below
        names = _named(node.columns)
        items = [_item(below.columns[column], names[column]) for column in node.columns]
        return self._step("filtered", _select(items, below.name, where), names)

    def _scan(self, node: Scan, predicates: Sequence[Expr]) -> _Relation:
        names = {column: quote(column.name) for column in node.columns}
        writer = ExpressionWriter({column: quote(column.name) for column in columns_in(*predicates, *node.pushed)})
        branches = []
        for view in self.views[id(node)]:
            kept = conjunction([*(() if view.filtered else node.pushed), *predicates])
            branches.append((view.name, writer.write(kept) if kept is not None else ""))
        if len(branches) == 1 and not branches[0][1]:
            return _Relation(branches[0][0], names)
        items = [names[column] for column in node.columns]
        body = "\nUNION ALL\n".join(_select(items, view, where) for view, where in branches)
        return self._step("source", body, names)

    def _assign_window(self, node: AssignWindow) -> _Relation:
        below, where = self._input(node.input)
        assert isinstance(node.time, Column)
        names = _named(node.columns)
        items = [_item(below.columns[column], names[column]) for column in node.input.columns]
        items.append(_item(_window(node.window, below.columns[node.time]), names[node.column]))
        return self._step("windowed", _select(items, below.name, where), names)

    def _aggregate(self, node: Aggregate) -> _Relation:
        below, where = self._input(node.input)
        writer = ExpressionWriter(below.columns)
        names = _named(node.columns)
        keys = [_key(writer.write(item), item) for _, item in node.keys]
        items = [_item(key, names[column]) for key, (column, _) in zip(keys, node.keys, strict=True)]
        items += [_item(writer.write(agg), names[column]) for column, agg in node.aggregates]
        body = _select(items, below.name, where)
        if keys:
            body += f"\nGROUP BY {', '.join(keys)}"
        return self._step("grouped", body, names)

    def _join(self, node: Join) -> _Relation:
        left, right = self._relation(node.left), self._relation(node.right)
        parts = conjuncts(node.condition)
        texts: list[str] = []
        if node.kind in (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL):
            left, parts = self._decided(left, "l", parts, texts)
            right, parts = self._decided(right, "r", parts, texts)
        inside = {column: f"l.{name}" for column, name in left.columns.items()}
        inside |= {column: f"r.{name}" for column, name in right.columns.items()}
        names = _named(node.columns)
        items = [_item(inside[column], names[column]) for column in node.columns]
        if node.kind is JoinKind.FULL:
            parts = [*parts, *_keys_present(parts)]
        whole = conjunction(parts)
        assert whole is not None
        condition = ExpressionWriter(inside).write(whole)
        if texts:
            condition = " AND ".join((f"({condition})", *texts))
        body = f"SELECT {', '.join(items)}\nFROM {left.name} AS l {_JOINS[node.kind]} {right.name} AS r ON {condition}"
        return self._step("joined", body, names)

    def _decided(
        self, side: _Relation, alias: str, parts: Sequence[Expr], texts: list[str]
    ) -> tuple[_Relation, list[Expr]]:
        """Computes conditions of one side below an outer join, which is then told of their results; answers the others.

        Of such a comparison as `l.amount > 1` Spark would take the 1 for a bound of event time: it would keep the rows
        of that side for ever, and never give those without a partner.
        """
        own = [part for part in parts if (used := columns_in(part)) and used <= set(side.columns)]
        if not own:
            return side, list(parts)
        condition = conjunction(own)
        assert condition is not None
        taken = set(side.columns.values())
        name = next(name for number in count(1) if (name := f"condition_{number}") not in taken)
        items = [*side.columns.values(), _item(ExpressionWriter(side.columns).write(condition), name)]
        texts.append(f"{alias}.{name}")
        decided = self._step("decided", _select(items, side.name, ""), dict(side.columns))
        return decided, [part for part in parts if part not in own]

    def _union(self, node: Union) -> _Relation:
        names = _named(node.columns)
        parts = []
        for branch in node.branches:
            below, where = self._input(branch)
            pairs = zip(branch.columns, node.columns, strict=False)
            items = [_item(below.columns[mine], names[column]) for mine, column in pairs]
            parts.append(_select(items, below.name, where))
        return self._step("united", "\nUNION ALL\n".join(parts), names)

    def _inline(self, node: Inline) -> _Relation:
        below, where = self._input(node.input)
        writer = ExpressionWriter(below.columns)
        kept = [below.columns[column] for column in node.kept]
        taken = [*kept, f"posexplode({writer.write(node.array)}) AS (place, item)"]
        inner = self._step("listed", _select(taken, below.name, where), {})
        names = _named(node.columns)
        items = [_item(below.columns[column], names[column]) for column in node.kept]
        items += [_item(f"item.c{i}", names[column]) for i, column in enumerate(node.items, start=1)]
        if node.number is not None:
            items.append(_item("place + 1", names[node.number]))
        return self._step("first", _select(items, inner.name, ""), names)


def _named(columns: Sequence[Column]) -> dict[Column, str]:
    """A name for each column, unique without regard to case."""
    taken: set[str] = set()
    names: dict[Column, str] = {}
    for column in columns:
        base = column.name or "column"
        name, number = base, 1
        while name.lower() in taken:
            number += 1
            name = f"{base}_{number}"
        taken.add(name.lower())
        names[column] = quote(name)
    return names


def _key(written: str, item: Expr) -> str:
    """A key of GROUP BY: a bare number would be the place of a column."""
    return f"({written} + 0)" if isinstance(item, Literal) and isinstance(item.value, int) else written


def _item(written: str, name: str) -> str:
    return written if written == name else f"{written} AS {name}"


def _keys_present(parts: Sequence[Expr]) -> list[Expr]:
    """What a FULL join must say beside its equalities. Spark looks partners up by a hash of the keys without comparing
    them again, and takes NULL for equal to NULL; in other joins it drops rows with such keys before."""
    found: list[Expr] = []
    for part in parts:
        if isinstance(part, Call) and part.op == "=" and all(side.nullable for side in part.args):
            missing = Call("is_null", (part.args[0],), BOOL, False)
            found.append(Call("not", (missing,), BOOL, False))
    return found


def _select(items: Sequence[str], relation: str, where: str) -> str:
    body = f"SELECT {', '.join(items)}\nFROM {relation}"
    return f"{body}\nWHERE {where}" if where else body


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))


def _window(window: Window, time: str) -> str:
    size = duration_text(window.size_us)
    if window.kind is WindowKind.TUMBLING and not window.offset_us:
        return f"window({time}, {size})"
    step = duration_text(window.step_us)
    if not window.offset_us:
        return f"window({time}, {size}, {step})"
    return f"window({time}, {size}, {step}, {duration_text(window.offset_us)})"
