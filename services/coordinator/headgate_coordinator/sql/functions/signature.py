"""What a function takes and gives, in a form that the type-checker, the Spark writer, docs and tests all read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headgate_coordinator.sql.algebra import Expr, Literal
from headgate_coordinator.sql.coercion import computed, is_integral, is_orderable
from headgate_coordinator.sql.types import (
    BINARY,
    BOOL,
    DATE,
    DAY_TIME_INTERVAL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    TIMESTAMP,
    VARCHAR,
    DataType,
    Kind,
    StructField,
    array,
    decimal,
    map_of,
    struct,
)


class ArgumentFault(Exception):
    """An argument that the function cannot take: which one, why, and what to write instead."""

    def __init__(self, index: int, message: str, suggestion: str = "") -> None:
        super().__init__(message)
        self.index = index
        self.message = message
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True)
class Param:
    """What an argument must be. `samples` are types that tests try it with."""

    words: str
    accepts: Callable[[DataType], bool]
    samples: tuple[DataType, ...]
    # Only a constant will do, of a type that `accepts`.
    literal: bool = False


_SOME_STRUCT = struct(StructField("a", INT32), StructField("b", VARCHAR))
_INTS = (INT8, INT16, INT32, INT64)
_NUMBERS = (*_INTS, FLOAT32, FLOAT64, decimal(10, 2), decimal(38, 10), decimal(20, 0))
_SCALARS = (BOOL, *_NUMBERS, VARCHAR, BINARY, DATE, TIMESTAMP)


def _kinds(*kinds: Kind) -> Callable[[DataType], bool]:
    return lambda type_: computed(type_).kind in kinds


ANY = Param("any value", lambda _: True, (*_SCALARS, array(INT32), map_of(VARCHAR, INT32), _SOME_STRUCT))
ORDERABLE = Param("a value that can be sorted", is_orderable, (*_SCALARS, array(INT32), _SOME_STRUCT))
COMPARABLE = Param("a value that can be compared", is_orderable, (*_SCALARS, array(INT32), _SOME_STRUCT))
BOOLEAN = Param("BOOL", _kinds(Kind.BOOL), (BOOL,))
BOOLEAN_LITERAL = Param("TRUE or FALSE", _kinds(Kind.BOOL), (BOOL,), literal=True)
NUMBER = Param("a number", lambda type_: computed(type_).is_numeric, _NUMBERS)
INTEGER = Param("an integer", is_integral, _INTS)
# Where Spark takes INT and would not narrow a wider type by itself.
SMALL = Param("an integer of at most 32 bits", _kinds(Kind.INT8, Kind.INT16, Kind.INT32), _INTS[:3])
SMALL_LITERAL = Param("a literal integer", _kinds(Kind.INT8, Kind.INT16, Kind.INT32), (INT32,), literal=True)
FLOATING = Param("FLOAT32 or FLOAT64", _kinds(Kind.FLOAT32, Kind.FLOAT64), (FLOAT32, FLOAT64))
TEXT = Param("VARCHAR", _kinds(Kind.VARCHAR), (VARCHAR,))
TEXT_LITERAL = Param("a literal VARCHAR", _kinds(Kind.VARCHAR), (VARCHAR,), literal=True)
BYTES = Param("BINARY", _kinds(Kind.BINARY), (BINARY,))
TEXT_OR_BYTES = Param("VARCHAR or BINARY", _kinds(Kind.VARCHAR, Kind.BINARY), (VARCHAR, BINARY))
INSTANT = Param("TIMESTAMP", _kinds(Kind.TIMESTAMP), (TIMESTAMP,))
DAY = Param("DATE", _kinds(Kind.DATE), (DATE,))
TIME = Param("DATE or TIMESTAMP", _kinds(Kind.DATE, Kind.TIMESTAMP), (DATE, TIMESTAMP))
INTERVAL = Param("an interval of days to microseconds", _kinds(Kind.DAY_TIME_INTERVAL), (DAY_TIME_INTERVAL,))
ARRAY = Param("an ARRAY", _kinds(Kind.ARRAY), (array(INT32), array(VARCHAR)))
TEXT_ARRAY = Param("an ARRAY of VARCHAR", lambda t: computed(t) == array(VARCHAR), (array(VARCHAR),))
MAP = Param("a MAP", _kinds(Kind.MAP), (map_of(VARCHAR, INT32),))
ARRAY_OR_MAP = Param("an ARRAY or a MAP", _kinds(Kind.ARRAY, Kind.MAP), (array(INT32), map_of(VARCHAR, INT32)))
NESTED = Param(
    "an ARRAY, MAP or STRUCT",
    _kinds(Kind.ARRAY, Kind.MAP, Kind.STRUCT),
    (array(INT32), map_of(VARCHAR, INT32), _SOME_STRUCT),
)

Result = DataType | Callable[[Sequence[Expr]], DataType]


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the allow-list.

    `result` is a type, or works it out of the arguments and may raise ArgumentFault. `spark` is how Spark spells it,
    with {0}, {1} for arguments and {*} for all of them. `null_if` says when the result can be NULL: "any" argument is,
    "all" of them are, "always", or "never". An unstable function may differ when a batch is run again.
    """

    name: str
    params: tuple[Param, ...]
    result: Result
    optional: tuple[Param, ...] = ()
    variadic: Param | None = None
    spark: str = ""
    null_if: str = "any"
    stable: bool = True
    synonyms: tuple[str, ...] = ()
    group: str = ""

    @property
    def usage(self) -> str:
        """`substring(VARCHAR, an integer [, an integer])`, for messages and docs."""
        parts = [param.words for param in self.params]
        if self.variadic is not None:
            parts += [self.variadic.words, "..."]
        shown = ", ".join(parts)
        for param in self.optional:
            shown += f" [, {param.words}]" if shown else f"[{param.words}]"
        return f"{self.name}({shown})"

    def param(self, index: int) -> Param | None:
        """What the argument at `index` must be; None if there are not so many."""
        fixed = self.params + self.optional
        return fixed[index] if index < len(fixed) else self.variadic

    def result_type(self, args: Sequence[Expr]) -> DataType:
        return self.result(args) if callable(self.result) else self.result

    def result_nullable(self, args: Sequence[Expr]) -> bool:
        if self.null_if == "all":
            return all(arg.nullable for arg in args)
        if self.null_if == "any":
            return any(arg.nullable for arg in args)
        return self.null_if == "always"


def same(index: int = 0) -> Callable[[Sequence[Expr]], DataType]:
    """The type of an argument, as it was declared."""
    return lambda args: args[index].type


def as_computed(index: int = 0) -> Callable[[Sequence[Expr]], DataType]:
    """The type of an argument, as Spark computes with it."""
    return lambda args: computed(args[index].type)


def literal_int(args: Sequence[Expr], index: int, default: int) -> int:
    """The value of an argument that must be a literal integer."""
    if index >= len(args):
        return default
    arg = args[index]
    if isinstance(arg, Literal) and isinstance(arg.value, int):
        return arg.value
    raise ArgumentFault(index, "must be a literal integer")


def literal_text(args: Sequence[Expr], index: int) -> str:
    """The value of an argument that must be a literal text."""
    arg = args[index]
    if isinstance(arg, Literal) and isinstance(arg.value, str):
        return arg.value
    raise ArgumentFault(index, "must be a literal text")
