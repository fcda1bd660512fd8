"""Typed expressions and relational operators: what a bound statement is made of until it becomes Spark SQL.

Everything here is an immutable value. A `Column` is known by its id, which is unique within a plan, so that an
expression means the same wherever it stands and no operator needs aliases. Operators hold no place in the statement
except `offset`, for problems that show only when the whole plan is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.nodes import WindowKind
from headgate_coordinator.sql.types import BOOL, TIMESTAMP, DataType, StructField, struct

type_of_window = struct(StructField("start", TIMESTAMP), StructField("end", TIMESTAMP))

Value = None | bool | int | float | Decimal | str | bytes | date | datetime


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an operator's output. Two columns are the same if their ids are."""

    id: int
    name: str = field(compare=False)
    type: DataType = field(compare=False)
    nullable: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Intervals are microseconds or months as int."""

    value: Value
    type: DataType

    @property
    def nullable(self) -> bool:
        return self.value is None


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar operator or function of `functions.SCALARS`, applied."""

    op: str
    args: tuple[Expr, ...]
    type: DataType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Agg:
    """An aggregate function of `functions.AGGREGATES`, applied to the rows of a group."""

    op: str
    args: tuple[Expr, ...]
    type: DataType
    nullable: bool = True
    distinct: bool = False
    filter: Expr | None = None
    ignore_nulls: bool = False


Expr = Column | Literal | Call | Agg

TRUE = Literal(True, BOOL)
FALSE = Literal(False, BOOL)


def children(expr: Expr) -> tuple[Expr, ...]:
    if isinstance(expr, Call):
        return expr.args
    if isinstance(expr, Agg):
        return expr.args if expr.filter is None else (*expr.args, expr.filter)
    return ()


def walk(expr: Expr) -> Iterator[Expr]:
    """The expression and all below it."""
    stack = [expr]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(children(current))


def columns_in(*exprs: Expr) -> set[Column]:
    """The columns that the expressions read."""
    return {part for expr in exprs for part in walk(expr) if isinstance(part, Column)}


def transform(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with `change` applied to every part, the innermost first."""
    if isinstance(expr, Call):
        args = tuple(transform(arg, change) for arg in expr.args)
        if args != expr.args:
            expr = replace(expr, args=args)
    elif isinstance(expr, Agg):
        args = tuple(transform(arg, change) for arg in expr.args)
        kept = transform(expr.filter, change) if expr.filter is not None else None
        expr = replace(expr, args=args, filter=kept)
    return change(expr)


def substitute(expr: Expr, by: Mapping[Column, Expr]) -> Expr:
    """The expression with columns replaced."""
    if not by:
        return expr
    return transform(expr, lambda part: by.get(part, part) if isinstance(part, Column) else part)


def conjuncts(predicate: Expr | None) -> list[Expr]:
    """The parts that must all be true for the predicate to be true."""
    if predicate is None:
        return []
    if isinstance(predicate, Call) and predicate.op == "and":
        return [part for arg in predicate.args for part in conjuncts(arg)]
    return [predicate]


def conjunction(parts: Iterable[Expr]) -> Expr | None:
    """The predicate that is true where all parts are; None for no parts."""
    unique = tuple(dict.fromkeys(parts))
    if not unique:
        return None
    if len(unique) == 1:
        return unique[0]
    return Call("and", unique, BOOL, any(part.nullable for part in unique))


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


class Ids:
    """Gives columns of one plan their ids."""

    def __init__(self) -> None:
        self._next = 0

    def column(self, name: str, type_: DataType, nullable: bool = True) -> Column:
        self._next += 1
        return Column(self._next, name, type_, nullable)
