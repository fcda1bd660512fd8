"""Typed expressions over columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal

from headgate_coordinator.sql.types import BOOL, DataType

Value = None | bool | int | float | Decimal | str | bytes | date | datetime


@dataclass(frozen=True, slots=True)
class Column:
    """A column of an operator's output. Two columns are the same if their ids are."""

    id: int
    name: str = field(compare=False)
    type: DataType = field(compare=False)
    nullable: bool = field(default=True, compare=False)

    @property
    def size(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant. Intervals are microseconds or months as int."""

    value: Value
    type: DataType

    @property
    def nullable(self) -> bool:
        return self.value is None

    @property
    def size(self) -> int:
        """A long text counts as several parts: it is written out wherever it stands."""
        return 1 + len(self.value) // 64 if isinstance(self.value, (str, bytes)) else 1


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar operator or function of `functions.SCALARS`, applied.

    `size` is the number of parts of the whole expression, as often as each stands in it: an expression may hold another
    many times over. It and the hash are known from the start, so that asking for them takes no walk.
    """

    op: str
    args: tuple[Expr, ...]
    type: DataType
    nullable: bool = True
    size: int = field(init=False, compare=False, repr=False)
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(arg.size for arg in self.args))
        object.__setattr__(self, "_hash", hash((self.op, self.args, self.type, self.nullable)))

    def __hash__(self) -> int:
        return self._hash


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
    size: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", 1 + sum(part.size for part in children(self)))


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


class Ids:
    """Gives columns of one plan their ids."""

    def __init__(self) -> None:
        self._next = 0

    def column(self, name: str, type_: DataType, nullable: bool = True) -> Column:
        self._next += 1
        return Column(self._next, name, type_, nullable)
