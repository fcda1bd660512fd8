"""Relational operators. Each knows its inputs and the columns that it gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.algebra.expressions import Agg, Column, Expr
from headgate_coordinator.sql.nodes import WindowKind
from headgate_coordinator.sql.types import TIMESTAMP, StructField, struct

type_of_window = struct(StructField("start", TIMESTAMP), StructField("end", TIMESTAMP))


@dataclass(frozen=True, slots=True)
class Window:
    """The shape of a window, in microseconds. Windows of equal shape have equal bounds."""

    kind: WindowKind
    size_us: int
    advance_us: int = 0
    offset_us: int = 0

    @property
    def step_us(self) -> int:
        """How far apart the bounds of such windows are."""
        return self.advance_us or self.size_us


@dataclass(frozen=True, slots=True)
class Source:
    """A logical source as a query reads it: what it is and what feeds it."""

    logical: catalog.LogicalSource
    physical: tuple[catalog.PhysicalSource, ...]

    def __hash__(self) -> int:
        return hash(self.logical.uid)


class QueryLateness(int):
    """A lateness that comes from the query as a whole, told apart from those that its windows state."""


@dataclass(frozen=True, slots=True)
class EventTime:
    """What gives rows of a scan their time: `expression` over the scan's columns, as the extra column `column`.

    A plain timestamp column is its own expression. `lateness_us` is how far behind the latest row others may be.
    """

    column: Column
    expression: Expr
    lateness_us: int


@dataclass(frozen=True, slots=True)
class Scan:
    """The rows of a logical source. `event_time`, once known, carries the watermark.

    `pushed` are conditions that the rows fulfil: agents apply them where they read the source. They may speak of
    columns that are not among `fields`, because nothing else needs them.
    """

    source: Source
    fields: tuple[Column, ...]
    offset: int | None = None
    event_time: EventTime | None = None
    pushed: tuple[Expr, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return ()

    @property
    def columns(self) -> tuple[Column, ...]:
        if self.event_time is None or self.event_time.column in self.fields:
            return self.fields
        return (*self.fields, self.event_time.column)


@dataclass(frozen=True, slots=True)
class Filter:
    """The rows for which the predicate is true."""

    input: Node
    predicate: Expr
    offset: int | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


@dataclass(frozen=True, slots=True)
class Project:
    """One row for each row, made of expressions."""

    input: Node
    items: tuple[tuple[Column, Expr], ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(column for column, _ in self.items)


@dataclass(frozen=True, slots=True)
class WindowTime:
    """How one relation below an `AssignWindow` tells its time; `column` is None where the relation has no such
    column."""

    relation: str
    columns: frozenset[Column]
    column: Expr | None


@dataclass(frozen=True, slots=True)
class AssignWindow:
    """Each row once for each window it is in, with the window as the struct column `column`.

    `time` is the expression that the user named; None means the time at which a row is processed. `times` has one entry
    for each relation of a join below, for a join within the window. A SESSION is a window only together with the groups
    of the Aggregate above.
    """

    input: Node
    window: Window
    time: Expr | None
    column: Column
    lateness_us: int
    offset: int | None = None
    times: tuple[WindowTime, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.input.columns, self.column)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """One row for each group."""

    input: Node
    keys: tuple[tuple[Column, Expr], ...]
    aggregates: tuple[tuple[Column, Agg], ...]
    offset: int | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*(column for column, _ in self.keys), *(column for column, _ in self.aggregates))


@dataclass(frozen=True, slots=True)
class Distinct:
    """Each row once within its window."""

    input: Node
    offset: int | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns


class JoinKind(StrEnum):
    """Which rows without a partner stay."""

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    # The left rows that have a partner, once.
    SEMI = "SEMI"
    # The left rows that have none.
    ANTI = "ANTI"


@dataclass(frozen=True, slots=True)
class Join:
    """Pairs of rows for which the condition is true.

    `outer_time` is, for IN and EXISTS of a windowed sub-select, the time of an outer row where nothing else tells it:
    its column of the name that the sub-select's time has.
    """

    kind: JoinKind
    left: Node
    right: Node
    condition: Expr | None
    offset: int | None = None
    outer_time: Expr | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.left, self.right)

    @property
    def columns(self) -> tuple[Column, ...]:
        if self.kind in (JoinKind.SEMI, JoinKind.ANTI):
            return self.left.columns
        left, right = self.left.columns, self.right.columns
        if self.kind in (JoinKind.RIGHT, JoinKind.FULL):
            left = tuple(replace(column, nullable=True) for column in left)
        if self.kind in (JoinKind.LEFT, JoinKind.FULL):
            right = tuple(replace(column, nullable=True) for column in right)
        return (*left, *right)


@dataclass(frozen=True, slots=True)
class Union:
    """The rows of all inputs. Column i of each input becomes `columns[i]`."""

    branches: tuple[Node, ...]
    columns: tuple[Column, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.branches


@dataclass(frozen=True, slots=True)
class Order:
    """One term of ORDER BY."""

    expr: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class TopN:
    """The first `limit` rows of each partition of each window, in order; `number` is their place from 1.

    `limit` is None until the filter on `number` above is found.
    """

    input: Node
    partition: tuple[Expr, ...]
    order: tuple[Order, ...]
    limit: int | None
    number: Column | None = None
    offset: int | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.input.columns if self.number is None else (*self.input.columns, self.number)


@dataclass(frozen=True, slots=True)
class Inline:
    """One row for each element of the array of structs `array`, whose fields become `items`; `number` counts from 1.

    Not written by users: a rewritten TopN ends in it.
    """

    input: Node
    array: Expr
    items: tuple[Column, ...]
    number: Column | None
    kept: tuple[Column, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    @property
    def columns(self) -> tuple[Column, ...]:
        return (*self.kept, *self.items) if self.number is None else (*self.kept, *self.items, self.number)


Node = Scan | Filter | Project | AssignWindow | Aggregate | Distinct | Join | Union | TopN | Inline


def with_inputs(node: Node, inputs: tuple[Node, ...]) -> Node:
    """The same operator over other inputs."""
    if isinstance(node, Scan):
        return node
    if isinstance(node, Join):
        left, right = inputs
        return node if left is node.left and right is node.right else replace(node, left=left, right=right)
    if isinstance(node, Union):
        return replace(node, branches=inputs)
    (only,) = inputs
    return node if only is node.input else replace(node, input=only)


def walk_plan(node: Node) -> Iterator[Node]:
    """The operator and all below it, the uppermost first."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(current.inputs))
