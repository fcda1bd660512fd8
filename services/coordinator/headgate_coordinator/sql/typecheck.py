"""Typed expressions out of operators and operands, or a TYPE problem at the place where they do not fit.

Every method answers an expression; where something is wrong it notes the problem and answers `BAD`, which fits anywhere
without a further problem, so that one mistake is reported once and independent ones together.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Final

from sqlglot import exp

from headgate_coordinator.errors import STATEMENT_TOO_LARGE, UNSUPPORTED
from headgate_coordinator.sql.algebra import Agg, Call, Expr, Literal, walk
from headgate_coordinator.sql.casts import cast_hint, castable, parse_instant
from headgate_coordinator.sql.coercion import (
    arithmetic,
    common_type,
    comparable,
    computed,
    interval_arithmetic,
    is_integral,
    is_orderable,
    time_arithmetic,
)
from headgate_coordinator.sql.errors import Problems, Step, did_you_mean, quoted
from headgate_coordinator.sql.functions import AGGREGATES, REFUSED, SCALARS, ArgumentFault, Function
from headgate_coordinator.sql.nodes import offset_of
from headgate_coordinator.sql.types import (
    BOOL,
    DATE,
    INT32,
    INT64,
    NULL,
    TIMESTAMP,
    VARCHAR,
    DataType,
    Kind,
    StructField,
    decimal,
    element_of,
    key_of,
    struct,
)

# Where something was written: the node, or the offset in the text. A node is asked only when there is a problem.
Place = exp.Expr | int | None

BAD: Final = Literal("not an expression", NULL)

_MAX_TYPE_PARTS = 10_000
_SYMBOL = {"<>": "<>", "<=>": "IS NOT DISTINCT FROM"}


def _offset(place: Place) -> int | None:
    return offset_of(place) if isinstance(place, exp.Expr) else place


def is_bad(*exprs: Expr | None) -> bool:
    return any(expr is BAD for expr in exprs)


class TypeChecker:
    """Builds typed expressions and notes what does not fit. `place` is where the operator or function was written."""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems

    def refuse(self, place: Place, message: str, suggestion: str = "") -> Literal:
        self.problems.add(Step.TYPE, _offset(place), message, suggestion)
        return BAD

    def unsupported(self, place: Place, message: str, suggestion: str = "") -> Literal:
        self.problems.add(Step.BIND, _offset(place), message, suggestion, UNSUPPORTED)
        return BAD

    def number(self, text: str, place: Place) -> Expr:
        """A literal number: INT32, INT64 or DECIMAL by its size, FLOAT64 where it has an exponent."""
        if "e" in text.lower():
            return Literal(float(text), self._double())
        if "." not in text:
            value = int(text) if len(text) <= 400 else 10**400
            for type_, bits in ((INT32, 31), (INT64, 63)):
                if -(2**bits) <= value < 2**bits:
                    return Literal(value, type_)
        exact = Decimal(text)
        scale = max(0, -int(exact.as_tuple().exponent))
        precision = max(len(exact.as_tuple().digits), scale, 1)
        if precision > 38:
            return self.refuse(place, "a number has more than 38 digits", "write it with an exponent, as FLOAT64")
        return Literal(exact, decimal(precision, scale))

    @staticmethod
    def _double() -> DataType:
        return DataType(Kind.FLOAT64)

    def negative(self, operand: Expr, place: Place) -> Expr:
        if is_bad(operand):
            return BAD
        if isinstance(operand, Literal) and isinstance(operand.value, (int, float, Decimal)):
            if operand.value is True or operand.value is False:
                return self.refuse(place, "a BOOL cannot be negated with -", "write NOT")
            if operand.value == 2**31 and operand.type == INT64:
                return Literal(-(2**31), INT32)
            if operand.value == 2**63:
                return Literal(-(2**63), INT64)
            return Literal(-operand.value, operand.type)
        if not (computed(operand.type).is_numeric or operand.type.is_interval):
            return self.refuse(place, f"- needs a number, not {operand.type}")
        return Call("neg", (operand,), computed(operand.type), operand.nullable)

    def arithmetic(self, op: str, left: Expr, right: Expr, place: Place) -> Expr:
        if is_bad(left, right):
            return BAD
        type_ = arithmetic(op, left, right)
        if type_ is None and op in ("+", "-"):
            type_ = time_arithmetic(op, left, right)
        if type_ is None and op in ("*", "/"):
            type_ = interval_arithmetic(op, left, right)
        if type_ is None:
            return self.refuse(
                place, f"{op.upper()} does not take {left.type} and {right.type}", _arithmetic_hint(op, left, right)
            )
        return Call(op, (left, right), type_, left.nullable or right.nullable)

    def bitwise(self, op: str, left: Expr, right: Expr, place: Place) -> Expr:
        if is_bad(left, right):
            return BAD
        if not (is_integral(left.type) and is_integral(right.type)):
            return self.refuse(place, f"{op} takes integers, not {left.type} and {right.type}")
        type_ = common_type((left.type, right.type))
        assert type_ is not None
        return Call(op, (left, right), computed(type_), left.nullable or right.nullable)

    def comparison(self, op: str, left: Expr, right: Expr, place: Place) -> Expr:
        if is_bad(left, right):
            return BAD
        left, right = self._instants(left, right, place)
        if is_bad(left, right):
            return BAD
        if not comparable(left.type, right.type):
            hint = "CAST one of them" if left.type.is_text != right.type.is_text else ""
            return self.refuse(
                place, f"{left.type} and {right.type} cannot be compared with {_SYMBOL.get(op, op)}", hint
            )
        nullable = op != "<=>" and (left.nullable or right.nullable)
        return Call(op, (left, right), BOOL, nullable)

    def _instants(self, left: Expr, right: Expr, place: Place) -> tuple[Expr, Expr]:
        """A literal text beside a date or timestamp is one too."""
        if isinstance(right, Literal) and isinstance(right.value, str):
            return left, self.as_instant(right, left.type, place)
        if isinstance(left, Literal) and isinstance(left.value, str):
            return self.as_instant(left, right.type, place), right
        return left, right

    def as_instant(self, literal: Literal, other: DataType, place: Place) -> Expr:
        if other.kind not in (Kind.DATE, Kind.TIMESTAMP) or literal is BAD:
            return literal
        assert isinstance(literal.value, str)
        parsed = parse_instant(literal.value)
        if parsed is None:
            return self.refuse(place, f"{quoted(literal.value)} is no {other}", f"write {_example(other)}")
        if other.kind is Kind.DATE and parsed.time() == datetime.min.time():
            return Literal(parsed.date(), DATE)
        return Literal(parsed, TIMESTAMP)

    def logical(self, op: str, operands: Sequence[Expr], place: Place) -> Expr:
        """AND, OR, NOT over any number of operands."""
        if is_bad(*operands):
            return BAD
        for operand in operands:
            if operand.type.kind not in (Kind.BOOL, Kind.NULL):
                return self.refuse(place, f"{op.upper()} takes BOOL, not {operand.type}")
        flat: list[Expr] = []
        for operand in map(_truth, operands):
            flat.extend(operand.args if isinstance(operand, Call) and operand.op == op and op != "not" else (operand,))
        return Call(op, tuple(flat), BOOL, any(operand.nullable for operand in operands))

    def condition(self, operand: Expr, clause: str, place: Place) -> Expr:
        """What stands after WHERE, HAVING, ON, WHEN or in FILTER."""
        if is_bad(operand):
            return BAD
        if operand.type.kind not in (Kind.BOOL, Kind.NULL):
            return self.refuse(place, f"{clause} needs a condition, not {operand.type}", "compare it with something")
        return _truth(operand)

    def is_null(self, operand: Expr) -> Expr:
        return BAD if is_bad(operand) else Call("is_null", (operand,), BOOL, False)

    def is_boolean(self, operand: Expr, value: bool, place: Place) -> Expr:
        if is_bad(operand) or is_bad(self.condition(operand, "IS TRUE", place)):
            return BAD
        return Call("<=>", (operand, Literal(value, BOOL)), BOOL, False)

    def in_list(self, operand: Expr, items: Sequence[Expr], place: Place) -> Expr:
        if is_bad(operand, *items):
            return BAD
        if operand.type.kind in (Kind.DATE, Kind.TIMESTAMP):
            items = [
                self.as_instant(item, operand.type, place)
                if isinstance(item, Literal) and isinstance(item.value, str)
                else item
                for item in items
            ]
            if is_bad(*items):
                return BAD
        types = dict.fromkeys(item.type for item in items)
        for type_ in types:
            if not comparable(operand.type, type_):
                return self.refuse(place, f"{type_} cannot be compared with {operand.type} in IN", "CAST it")
        # Spark compares all in one type.
        if common_type((operand.type, *types)) is None:
            return self.refuse(place, "the values in IN have no common type", "CAST them")
        return Call("in", (operand, *items), BOOL, operand.nullable or any(item.nullable for item in items))

    def like(self, op: str, operand: Expr, pattern: Expr, escape: str | None, place: Place) -> Expr:
        if is_bad(operand, pattern):
            return BAD
        for side in (operand, pattern):
            if not (side.type.is_text or side.type.kind is Kind.NULL):
                return self.refuse(place, f"{op.upper()} takes VARCHAR, not {side.type}", "CAST(x AS VARCHAR)")
        if isinstance(pattern, Literal) and isinstance(pattern.value, str):
            wrong = _misused_escape(pattern.value, escape or "\\")
            if wrong:
                return self.refuse(place, f"the pattern of {op.upper()} {wrong}", "write the escape character twice")
        args = (operand, pattern) if escape is None else (operand, pattern, Literal(escape, VARCHAR))
        return Call(op, args, BOOL, operand.nullable or pattern.nullable)

    def case(self, branches: Sequence[tuple[Expr, Expr]], default: Expr | None, place: Place) -> Expr:
        conditions = [self.condition(condition, "WHEN", place) for condition, _ in branches]
        values = [value for _, value in branches] + ([default] if default is not None else [])
        if is_bad(*conditions, *values):
            return BAD
        type_ = common_type(value.type for value in values)
        if type_ is None:
            shown = " and ".join(dict.fromkeys(str(value.type) for value in values if value.type != NULL))
            return self.refuse(place, f"the values of CASE have no common type: {shown}", "CAST them to one")
        args = [part for pair in zip(conditions, values, strict=False) for part in pair]
        if default is not None:
            args.append(default)
        nullable = default is None or any(value.nullable for value in values)
        return Call("case", tuple(args), type_, nullable)

    def cast(self, operand: Expr, target: DataType, attempt: bool, place: Place) -> Expr:
        if is_bad(operand):
            return BAD
        if (
            isinstance(operand, Literal)
            and isinstance(operand.value, str)
            and target.kind in (Kind.DATE, Kind.TIMESTAMP)
        ):
            parsed = parse_instant(operand.value)
            if parsed is not None:
                return Literal(parsed, TIMESTAMP) if target.kind is Kind.TIMESTAMP else Literal(parsed.date(), DATE)
            if not attempt:
                return self.refuse(place, f"{quoted(operand.value)} is no {target}", f"write {_example(target)}")
        if not castable(operand.type, target):
            return self.refuse(place, f"{operand.type} cannot be cast to {target}", cast_hint(operand.type, target))
        if operand.type == target:
            return operand
        nullable = operand.nullable or attempt
        return Call("try_cast" if attempt else "cast", (operand,), target, nullable)

    def field(self, operand: Expr, name: str, place: Place) -> Expr:
        if is_bad(operand):
            return BAD
        if operand.type.kind is not Kind.STRUCT:
            return self.refuse(place, f"{quoted(name)} is asked of {operand.type}, which has no fields")
        for field in operand.type.fields:
            if field.name.lower() == name.lower():
                return Call("field", (operand, Literal(field.name, VARCHAR)), field.type, True)
        names = [field.name for field in operand.type.fields]
        return self.refuse(place, f"there is no field {quoted(name)} in {operand.type}", did_you_mean(name, names))

    def index(self, operand: Expr, at: Expr, place: Place) -> Expr:
        """`array[0]` (from 0, as in Spark) and `map['key']`."""
        if is_bad(operand, at):
            return BAD
        if operand.type.kind is Kind.ARRAY:
            if not is_integral(at.type):
                return self.refuse(place, f"the index of an ARRAY is an integer, not {at.type}")
        elif operand.type.kind is not Kind.MAP:
            return self.refuse(place, f"{operand.type} has no elements")
        elif computed(at.type) != computed(key_of(operand.type)):
            return self.refuse(place, f"the keys of {operand.type} are not {at.type}", "CAST it")
        return Call("index", (operand, at), element_of(operand.type), True)

    def make_array(self, items: Sequence[Expr], place: Place) -> Expr:
        if is_bad(*items):
            return BAD
        type_ = common_type(item.type for item in items)
        if type_ is None:
            if not items:
                return self.refuse(place, "ARRAY() has no type", "write CAST(NULL AS ARRAY<INT32>)")
            return self.refuse(place, "the values of ARRAY have no common type", "CAST them to one")
        if type_ == NULL:
            return self.refuse(place, "an ARRAY of NULLs has no type", "CAST one of them")
        return Call("array", tuple(items), DataType(Kind.ARRAY, element=type_), False)

    def make_map(self, keys: Sequence[Expr], values: Sequence[Expr], place: Place) -> Expr:
        if is_bad(*keys, *values):
            return BAD
        if not keys or len(keys) != len(values):
            return self.refuse(place, "MAP takes keys and values in turn", "write MAP('a', 1, 'b', 2)")
        key, value = common_type(k.type for k in keys), common_type(v.type for v in values)
        if key is None or value is None or NULL in (key, value):
            return self.refuse(place, "the keys or values of MAP have no common type", "CAST them to one")
        if not is_orderable(key):
            return self.refuse(place, f"{key} cannot be a key of a MAP")
        args = tuple(part for pair in zip(keys, values, strict=True) for part in pair)
        return Call("map", args, DataType(Kind.MAP, key=key, element=value), False)

    def make_struct(self, names: Sequence[str], values: Sequence[Expr], place: Place) -> Expr:
        if is_bad(*values):
            return BAD
        if any(value.type == NULL for value in values):
            return self.refuse(place, "a field of a STRUCT is NULL without a type", "CAST(NULL AS VARCHAR)")
        try:
            type_ = struct(*(StructField(n, v.type) for n, v in zip(names, values, strict=True)))
        except ValueError as error:
            return self.refuse(place, str(error))
        if _is_huge(type_):
            self.problems.add(
                Step.TYPE,
                _offset(place),
                f"the STRUCT has more than {_MAX_TYPE_PARTS:,} fields, those inside it included",
                "leave out what is not needed",
                STATEMENT_TOO_LARGE,
            )
            return BAD
        return Call("struct", tuple(values), type_, False)

    def call(self, name: str, args: Sequence[Expr], place: Place, places: Sequence[Place]) -> Expr:
        """A scalar function by name."""
        function = SCALARS.get(name.lower())
        if function is None:
            return self._unknown(name, place)
        args = self._times_of_literals(function, args)
        if is_bad(*args) or not self._fits(function, name, args, place, places):
            return BAD
        try:
            type_ = function.result_type(args)
        except ArgumentFault as fault:
            return self._fault(name, fault, place, places)
        return Call(function.name, tuple(args), type_, function.result_nullable(args))

    def _times_of_literals(self, function: Function, args: Sequence[Expr]) -> Sequence[Expr]:
        """A literal text where a date or timestamp is wanted is one: datediff(d, '2026-01-31')."""
        changed = list(args)
        for index, arg in enumerate(args):
            param = function.param(index)
            if param is None or arg is BAD or not isinstance(arg, Literal) or not isinstance(arg.value, str):
                continue
            if param.accepts(VARCHAR):
                continue
            parsed = parse_instant(arg.value)
            if parsed is not None and param.accepts(TIMESTAMP):
                changed[index] = Literal(parsed, TIMESTAMP)
            elif parsed is not None and param.accepts(DATE):
                changed[index] = Literal(parsed.date(), DATE)
        return changed

    def aggregate(
        self,
        name: str,
        args: Sequence[Expr],
        place: Place,
        places: Sequence[Place],
        *,
        distinct: bool = False,
        ignore_nulls: bool = False,
    ) -> Expr:
        """An aggregate function by name; FILTER is added by `filtered`."""
        function = AGGREGATES[name.lower()]
        if is_bad(*args) or not self._fits(function, name, args, place, places):
            return BAD
        if any(isinstance(part, Agg) for arg in args for part in walk(arg)):
            return self.refuse(
                place, f"{name.upper()} cannot stand around another aggregate", "compute the inner one in a sub-select"
            )
        if distinct and function.name not in ("count", "sum", "avg", "min", "max", "collect_list", "collect_set"):
            return self.unsupported(place, f"{name.upper()} takes no DISTINCT", "use COUNT, SUM or AVG")
        if distinct and any(not is_orderable(arg.type) for arg in args):
            return self.refuse(place, f"DISTINCT cannot compare {args[0].type}")
        if ignore_nulls and function.name not in ("first", "last", "any_value"):
            return self.unsupported(
                place, f"{name.upper()} takes no IGNORE NULLS", "write FILTER (WHERE x IS NOT NULL)"
            )
        try:
            type_ = function.result_type(args)
        except ArgumentFault as fault:
            return self._fault(name, fault, place, places)
        return Agg(function.name, tuple(args), type_, function.result_nullable(args), distinct, None, ignore_nulls)

    def _unknown(self, name: str, place: Place) -> Literal:
        refused = REFUSED.get(name.lower())
        if refused:
            return self.unsupported(place, f"{name.upper()} cannot run as part of a continuous query", refused)
        self.problems.add(
            Step.BIND,
            _offset(place),
            f"there is no function {quoted(name)}",
            did_you_mean(name, (*SCALARS, *AGGREGATES)),
        )
        return BAD

    def _fits(
        self,
        function: Function,
        name: str,
        args: Sequence[Expr],
        place: Place,
        places: Sequence[Place],
    ) -> bool:
        fewest, most = len(function.params), len(function.params) + len(function.optional)
        if len(args) < fewest or (function.variadic is None and len(args) > most):
            self.refuse(place, f"{name.upper()} takes {_count(function)}, not {len(args)}", function.usage)
            return False
        for index, arg in enumerate(args):
            param = function.param(index)
            assert param is not None
            at = places[index] if index < len(places) else place
            if param.literal and not isinstance(arg, Literal):
                self.refuse(at, f"argument {index + 1} of {name.upper()} must be {param.words}")
                return False
            if arg.type != NULL and not param.accepts(arg.type):
                hint = "CAST(x AS VARCHAR)" if param.words == "VARCHAR" else ""
                self.refuse(at, f"argument {index + 1} of {name.upper()} must be {param.words}, not {arg.type}", hint)
                return False
            if arg.type == NULL and function.name not in _NULL_WELCOME:
                self.refuse(at, f"argument {index + 1} of {name.upper()} is NULL without a type", "CAST(NULL AS T)")
                return False
        return True

    def _fault(self, name: str, fault: ArgumentFault, place: Place, places: Sequence[Place]) -> Literal:
        at = places[fault.index] if fault.index < len(places) else place
        return self.refuse(at, f"argument {fault.index + 1} of {name.upper()} {fault.message}", fault.suggestion)


def _is_huge(type_: DataType) -> bool:
    """Whether a type has more parts than anyone needs: a STRUCT of a STRUCT, twice each, doubles with every level."""
    parts = 0
    stack = [type_]
    while stack:
        current = stack.pop()
        parts += 1
        if parts > _MAX_TYPE_PARTS:
            return True
        stack.extend(field.type for field in current.fields)
        stack.extend(inner for inner in (current.key, current.element) if inner is not None)
    return False


def _example(type_: DataType) -> str:
    return "'2026-01-31'" if type_.kind is Kind.DATE else "'2026-01-31 12:00:00'"


def _misused_escape(pattern: str, escape: str) -> str:
    """What is wrong with the escapes of a LIKE pattern; Spark fails on a row for the same reasons."""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                return f"ends with the escape character {escape}"
            if following not in ("_", "%", escape):
                return f"has {escape} before {following}, where only _, % and {escape} can be escaped"
    return ""


def _truth(operand: Expr) -> Expr:
    """An operand of a condition: NULL is a BOOL there."""
    return Literal(None, BOOL) if operand.type.kind is Kind.NULL else operand


def _count(function: Function) -> str:
    """How many arguments a function takes, in words."""
    fewest, most = len(function.params), len(function.params) + len(function.optional)
    if function.variadic is not None:
        return f"at least {fewest} argument{'' if fewest == 1 else 's'}"
    if fewest == most:
        return "no argument" if not most else f"{most} argument{'' if most == 1 else 's'}"
    return f"{fewest} to {most} arguments"


_NULL_WELCOME = ("coalesce", "ifnull", "nvl2", "greatest", "least", "isnull", "isnotnull", "count")


def _arithmetic_hint(op: str, left: Expr, right: Expr) -> str:
    types = (left.type, right.type)
    if op == "+" and any(type_.is_text for type_ in types):
        return "CAST text to a number, or join texts with ||"
    if any(type_.is_text for type_ in types):
        return "CAST text to a number"
    if any(type_.kind is Kind.TIMESTAMP for type_ in types) and any(type_.is_numeric for type_ in types):
        return "write an interval: ts + INTERVAL 5 SECONDS"
    return ""
