"""Moves filters towards the sources, drops columns that nobody reads, and takes needless operators out.

A filter moves only where it removes the same rows: never below a limit, never into the side of an outer join that it
would make lose its partnerless rows, and below groups only if it speaks of their keys alone. What is computed once
stays computed once, unless it is cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from headgate_coordinator.sql.algebra import (
    Aggregate,
    AssignWindow,
    Call,
    Column,
    Distinct,
    Expr,
    Filter,
    Inline,
    Join,
    JoinKind,
    Literal,
    Node,
    Project,
    Scan,
    TopN,
    Union,
    columns_in,
    conjunction,
    conjuncts,
    substitute,
    walk,
    with_inputs,
)
from headgate_coordinator.sql.fold import fold
from headgate_coordinator.sql.functions import SCALARS
from headgate_coordinator.sql.nodes import WindowKind
from headgate_coordinator.sql.pushdown import is_pushable
from headgate_coordinator.sql.sharing import shared_parts
from headgate_coordinator.sql.spark import predicate_text

# A filter that would grow beyond so many parts by moving below a projection stays above it.
_MAX_MOVED = 40


def push_filters(node: Node) -> Node:
    """The plan with every filter as near to the sources as it may be."""
    return _push(node, [])


def _push(node: Node, predicates: Sequence[Expr]) -> Node:
    match node:
        case Filter():
            return _push(node.input, [*conjuncts(node.predicate), *predicates])
        case Project():
            items = dict(node.items)
            return _split(node, predicates, lambda p: _moved(p, items), lambda below: (_push(node.input, below),))
        case AssignWindow():
            return _split(
                node,
                predicates,
                lambda p: p if node.column not in columns_in(p) else None,
                lambda below: (_push(node.input, below),),
            )
        case Aggregate():
            keys = {
                key: item
                for key, item in node.keys
                if not (isinstance(node.input, AssignWindow) and _is_session(node.input, item))
            }
            return _split(
                node,
                predicates,
                lambda p: _moved(p, keys) if columns_in(p) and columns_in(p) <= set(keys) else None,
                lambda below: (_push(node.input, below),),
            )
        case Distinct():
            return replace(node, input=_push(node.input, predicates))
        case Join():
            return _push_join(node, predicates)
        case Union():
            branches = []
            for branch in node.branches:
                mapping: dict[Column, Expr] = dict(zip(node.columns, branch.columns, strict=False))
                branches.append(_push(branch, [substitute(p, mapping) for p in predicates]))
            return replace(node, branches=tuple(branches))
        case _:
            return _filtered(with_inputs(node, tuple(_push(part, []) for part in node.inputs)), predicates)


def _is_session(assigned: AssignWindow, item: Expr) -> bool:
    return assigned.window.kind is WindowKind.SESSION and assigned.column in columns_in(item)


def _split(node: Node, predicates: Sequence[Expr], move: object, rebuild: object) -> Node:
    """Pushes what `move` translates to the inputs, and keeps the rest above."""
    below: list[Expr] = []
    above: list[Expr] = []
    for predicate in predicates:
        moved = move(predicate)  # type: ignore[operator]
        if moved is None:
            above.append(predicate)
        else:
            below.append(moved)
    return _filtered(with_inputs(node, rebuild(below)), above)  # type: ignore[operator]


def _moved(predicate: Expr, items: dict[Column, Expr]) -> Expr | None:
    """The predicate in terms of what its columns are computed from; None where that would not be the same, or dear."""
    moved = substitute(predicate, items)
    if moved.size > _MAX_MOVED or any(isinstance(part, Call) and not is_stable(part) for part in walk(moved)):
        return None
    return fold(moved)


def is_stable(call: Call) -> bool:
    """Whether a function gives the same result for the same row whenever it is asked."""
    function = SCALARS.get(call.op)
    return function is None or function.stable


def _push_join(node: Join, predicates: Sequence[Expr]) -> Node:
    left, right = set(node.left.columns), set(node.right.columns)
    to_left: list[Expr] = []
    to_right: list[Expr] = []
    above: list[Expr] = []
    condition: list[Expr] = []
    keeps_left = node.kind in (JoinKind.LEFT, JoinKind.FULL, JoinKind.ANTI)
    keeps_right = node.kind in (JoinKind.RIGHT, JoinKind.FULL)
    for predicate in predicates:
        columns = columns_in(predicate)
        if columns <= left and node.kind not in (JoinKind.RIGHT, JoinKind.FULL):
            to_left.append(predicate)
        elif columns <= right and node.kind in (JoinKind.INNER, JoinKind.RIGHT):
            to_right.append(predicate)
        elif node.kind is JoinKind.INNER:
            condition.append(predicate)
        else:
            above.append(predicate)
    for part in conjuncts(node.condition):
        columns = columns_in(part)
        if columns and columns <= left and not keeps_left:
            to_left.append(part)
        elif columns and columns <= right and not keeps_right:
            to_right.append(part)
        else:
            condition.append(part)
    joined = replace(
        node, left=_push(node.left, to_left), right=_push(node.right, to_right), condition=conjunction(condition)
    )
    return _filtered(joined, above)


def _filtered(node: Node, predicates: Iterable[Expr]) -> Node:
    predicate = conjunction(predicates)
    return node if predicate is None else Filter(node, predicate)


def push_into_scans(node: Node) -> Node:
    """The plan with what agents can check moved from filters into the scans below them.

    Where a source is scanned more than once, only what all scans ask for moves: they share one reading of it.
    """
    asked: dict[str, list[frozenset[str]]] = {}
    _collect(node, False, asked)
    common = {name: frozenset.intersection(*texts) for name, texts in asked.items()}
    return _into_scans(node, common)


def pushable_parts(predicate: Expr) -> dict[str, Expr]:
    """The parts of a predicate that agents can check, by their text."""
    return {predicate_text(part): part for part in conjuncts(predicate) if is_pushable(part)}


def _collect(node: Node, filtered: bool, asked: dict[str, list[frozenset[str]]]) -> None:
    if isinstance(node, Scan) and not filtered:
        asked.setdefault(node.source.logical.name, []).append(frozenset())
    if isinstance(node, Filter) and isinstance(node.input, Scan):
        texts = frozenset(pushable_parts(node.predicate))
        asked.setdefault(node.input.source.logical.name, []).append(texts)
    for part in node.inputs:
        _collect(part, isinstance(node, Filter), asked)


def _into_scans(node: Node, common: dict[str, frozenset[str]]) -> Node:
    if not (isinstance(node, Filter) and isinstance(node.input, Scan)):
        return with_inputs(node, tuple(_into_scans(part, common) for part in node.inputs))
    scan = node.input
    moving = common[scan.source.logical.name]
    pushed = tuple(part for text, part in pushable_parts(node.predicate).items() if text in moving)
    rest = conjunction(part for part in conjuncts(node.predicate) if part not in pushed)
    scan = replace(scan, pushed=pushed)
    return scan if rest is None else replace(node, input=scan, predicate=rest)


def prune(node: Node, needed: set[Column]) -> Node:
    """The plan without columns that nobody reads. `needed` are those of its output that are.

    Parts that are the same keep the columns that any of them needs, so that they stay the same.
    """
    pruner = _Pruner(shared_parts(node))
    pruned = pruner.prune(node, needed)
    # What one use needs may add to what the others keep, and so on down; there are so many parts and no more.
    for _ in range(len(pruner.groups)):
        if not pruner.grown:
            break
        pruner.grown = False
        pruned = pruner.prune(node, needed)
    return pruned


class _Pruner:
    """Drops columns. `wanted` are the places of columns that the parts of each group need."""

    def __init__(self, groups: dict[int, int]) -> None:
        self.groups = groups
        self.wanted: dict[int, set[int]] = {}
        self.grown = False

    def prune(self, node: Node, needed: set[Column]) -> Node:
        group = self.groups.get(id(node))
        if group is None:
            return self._prune(node, needed)
        wanted = self.wanted.setdefault(group, set())
        mine = {place for place, column in enumerate(node.columns) if column in needed}
        if not mine <= wanted:
            wanted |= mine
            self.grown = True
        return self._prune(node, needed | {node.columns[place] for place in wanted})

    def _prune(self, node: Node, needed: set[Column]) -> Node:
        match node:
            case Scan():
                used = set(needed)
                if node.event_time is not None:
                    used |= columns_in(node.event_time.expression)
                return replace(node, fields=_some(node.fields, used))
            case Filter():
                return replace(node, input=self.prune(node.input, needed | columns_in(node.predicate)))
            case Project():
                kept = {column for column, _ in node.items} & needed or {_cheapest(node.columns)}
                items = tuple((column, item) for column, item in node.items if column in kept)
                return Project(self.prune(node.input, columns_in(*(item for _, item in items))), items)
            case AssignWindow():
                below = needed - {node.column}
                for time in (node.time, *(entry.column for entry in node.times)):
                    if time is not None:
                        below |= columns_in(time)
                return replace(node, input=self.prune(node.input, below))
            case Aggregate():
                aggregates = tuple((column, agg) for column, agg in node.aggregates if column in needed)
                below = columns_in(*(item for _, item in node.keys), *(agg for _, agg in aggregates))
                return replace(node, input=self.prune(node.input, below), aggregates=aggregates)
            case Distinct():
                return replace(node, input=self.prune(node.input, set(node.columns)))
            case Join():
                used = needed | columns_in(*conjuncts(node.condition))
                if node.outer_time is not None:
                    used |= columns_in(node.outer_time)
                left, right = used & set(node.left.columns), used & set(node.right.columns)
                return replace(node, left=self.prune(node.left, left), right=self.prune(node.right, right))
            case Union():
                places = [i for i, column in enumerate(node.columns) if column in needed] or [0]
                branches = []
                for branch in node.branches:
                    kept_columns = tuple(branch.columns[i] for i in places)
                    items = tuple((column, column) for column in kept_columns)
                    branches.append(self.prune(Project(branch, items), set(kept_columns)))
                return Union(tuple(branches), tuple(node.columns[i] for i in places))
            case TopN():
                below = needed - ({node.number} if node.number is not None else set())
                below |= columns_in(*node.partition, *(term.expr for term in node.order))
                pruned = self.prune(node.input, below)
                kept = {column for column in pruned.columns if column in below}
                if len(kept) < len(pruned.columns):
                    # Whole rows are kept until the window ends: nothing more than is needed.
                    pruned = Project(pruned, tuple((column, column) for column in pruned.columns if column in kept))
                return replace(node, input=pruned)
            case Inline():
                below = columns_in(node.array) | (needed & set(node.kept))
                kept_ = tuple(column for column in node.kept if column in needed)
                return replace(node, input=self.prune(node.input, below), kept=kept_)


def _some(fields: tuple[Column, ...], used: set[Column]) -> tuple[Column, ...]:
    return tuple(column for column in fields if column in used) or (_cheapest(fields),)


def _cheapest(columns: Sequence[Column]) -> Column:
    """The column to keep where none is needed, only the number of rows."""
    return min(columns, key=lambda column: (column.type.is_nested, column.type.is_text, column.id))


def collapse(node: Node) -> Node:
    """The plan without projections that only pass on, and with those merged that compute nothing twice."""
    node = with_inputs(node, tuple(collapse(part) for part in node.inputs))
    if not isinstance(node, Project):
        return node
    below = node.input
    if isinstance(below, Project):
        items = dict(below.items)
        computed = [item for _, item in node.items if isinstance(item, Column) and isinstance(items.get(item), Call)]
        if len(set(computed)) == len(computed) and all(_mergeable(item, items) for _, item in node.items):
            merged = tuple((column, fold(substitute(item, items))) for column, item in node.items)
            return collapse(Project(below.input, merged))
    if all(column == item for column, item in node.items) and node.columns == below.columns:
        return below
    return node


def _mergeable(item: Expr, items: dict[Column, Expr]) -> bool:
    """Whether what an expression reads can be put in its place: window_time must stay a column of its own."""
    return isinstance(item, Column) or all(_is_cheap(items.get(column, column)) for column in columns_in(item))


def _is_cheap(expr: Expr) -> bool:
    """Whether an expression may be written several times over: not a long text."""
    return isinstance(expr, Column) or (isinstance(expr, Literal) and expr.size <= 4)
