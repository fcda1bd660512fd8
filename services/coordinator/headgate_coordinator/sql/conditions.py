"""Conditions over one resource: the WHERE of WATCH and SHOW, and `WatchRequest.where`.

A condition is compiled once into a plain function. Logic is SQL's, with three values: a comparison with NULL is neither
true nor false, and a resource belongs only where the condition is true. Enums are compared with their short names
(`state = 'ACTIVE'`), times with ISO 8601 strings, durations with strings such as '5 seconds'.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.message import Message
from sqlglot import exp

from headgate.catalog import v1 as catalog
from headgate_common.durations import parse_duration
from headgate_coordinator.errors import UNSUPPORTED
from headgate_coordinator.sql.arguments import unread_names
from headgate_coordinator.sql.errors import SourceText, StatementError, Step, did_you_mean, one_of, quoted
from headgate_coordinator.sql.fields import Field, FieldError, FieldType, find_field, project
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.nodes import offset_of
from headgate_coordinator.sql.parse import parse_where
from headgate_coordinator.sql.types import Kind, from_tree

Predicate = Callable[[Message], bool]
Truth = Callable[[Message], bool | None]
Read = Callable[[Message], Any]

_COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], bool]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_ARITHMETIC: dict[type[exp.Expr], Callable[[Any, Any], Any]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
}


@dataclass(frozen=True, slots=True)
class _Value:
    """A compiled value: what it is, how to read it, and the literal or field that it came from."""

    type: FieldType | None
    read: Read
    literal: Any = None
    field: Field | None = None
    node: exp.Expr | None = None

    @property
    def is_null(self) -> bool:
        return self.type is None


def compile_text(kind: catalog.ResourceKind.ValueType, text: str, limits: StatementLimits | None = None) -> Predicate:
    """The function of a condition that stands alone. `StatementError` where it is none."""
    where, source = parse_where(text, limits)
    return compile_where(kind, where, source)


def compile_where(kind: catalog.ResourceKind.ValueType, where: exp.Expr, source: SourceText) -> Predicate:
    """The function of a condition over resources of a kind. `StatementError` for what it cannot mean."""
    truth = _Compiler(kind, source).truth(where)
    problems = [
        source.problem(Step.BIND, offset_of(node), f"{what} is not offered", "", UNSUPPORTED)
        for node, what in unread_names(where)
    ]
    if problems:
        raise StatementError(problems, source)
    return lambda resource: truth(resource) is True


def compile_columns(
    kind: catalog.ResourceKind.ValueType,
    columns: Iterable[str],
    source: SourceText | None = None,
    offsets: Sequence[int] = (),
) -> Callable[[Message], Message] | None:
    """What makes of a resource one with these fields (and its identity) only; None where there are no columns: all.

    `offsets` say where in the text of `source` each column was written.
    """
    listed = tuple(columns)
    if not listed:
        return None
    text = source or SourceText(", ".join(listed))
    if source is None:
        offsets = [sum(len(before) + 2 for before in listed[:index]) for index in range(len(listed))]
    problems = []
    for index, column in enumerate(listed):
        try:
            project(kind, (column,))
        except FieldError as error:
            offset = offsets[index] if index < len(offsets) else None
            problems.append(text.problem(Step.BIND, offset, error.message, error.suggestion))
    if problems:
        raise StatementError(problems, text)
    return project(kind, listed)


def like(pattern: str, escape: str = "\\", ignore_case: bool = False) -> Callable[[str], bool]:
    """SQL's LIKE as a function: `%` for any characters, `_` for one.

    What stands between two `%` has a fixed length and is found from left to right, so time is bounded by the product of
    both lengths; one regular expression for all would go back without bounds.
    """
    segments: list[list[str]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            segments[-1].append(re.escape(next(characters, escape)))
        elif character == "%":
            segments.append([])
        else:
            segments[-1].append("." if character == "_" else re.escape(character))
    flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
    compiled = [re.compile("".join(segment), flags) for segment in segments]
    if len(compiled) == 1:
        return lambda text: compiled[0].fullmatch(text) is not None
    first, *middle, last = compiled
    lengths = [len(segment) for segment in segments]

    def matches(text: str) -> bool:
        if len(text) < sum(lengths) or not first.match(text) or not last.fullmatch(text, len(text) - lengths[-1]):
            return False
        position, end = lengths[0], len(text) - lengths[-1]
        for segment in middle:
            found = segment.search(text, position, end)
            if found is None:
                return False
            position = found.end()
        return True

    return matches


class _Compiler:
    def __init__(self, kind: catalog.ResourceKind.ValueType, source: SourceText) -> None:
        self._kind = kind
        self._source = source

    def _refusal(
        self, node: exp.Expr | None, message: str, suggestion: str = "", step: Step = Step.TYPE
    ) -> StatementError:
        return StatementError([self._source.problem(step, offset_of(node), message, suggestion)], self._source)

    def _misplaced(self, node: exp.Expr) -> StatementError:
        start = offset_of(node)
        shown = quoted(self._source.text[start : start + 40]) if start is not None else "this"
        usage = "it takes fields, values, comparisons, AND, OR and NOT"
        return self._refusal(node, f"{shown} cannot stand in a condition over resources", usage, Step.BIND)

    def truth(self, node: exp.Expr) -> Truth:
        match node:
            case exp.Paren():
                return self.truth(node.this)
            case exp.And():
                return _all([self.truth(part) for part in node.flatten()])
            case exp.Or():
                return _any([self.truth(part) for part in node.flatten()])
            case exp.Not():
                return _negated(self.truth(node.this))
            case exp.Boolean():
                constant = bool(node.this)
                return lambda resource: constant
            case exp.Null():
                return lambda resource: None
            case exp.Is():
                return self._is(node)
            case exp.In():
                return self._in(node)
            case exp.Between():
                above = self._compare(exp.GTE, node, node.this, node.args["low"])
                return _all([above, self._compare(exp.LTE, node, node.this, node.args["high"])])
            case exp.Like() | exp.ILike():
                return self._like(node, node.this, node.expression, "\\")
            case exp.Escape():
                return self._like(node.this, node.this.this, node.this.expression, node.expression.name)
            case exp.NullSafeEQ() | exp.NullSafeNEQ():
                same = self._same(node, node.this, node.expression)
                return same if isinstance(node, exp.NullSafeEQ) else _negated(same)
            case exp.Column() | exp.Dot():
                value = self.value(node)
                if value.type is not FieldType.BOOL:
                    raise self._refusal(node, f"{quoted(_name(node))} is no condition", "compare it with a value")
                return value.read
        if type(node) in _COMPARISONS:
            return self._compare(type(node), node, node.this, node.expression)
        raise self._misplaced(node)

    def value(self, node: exp.Expr) -> _Value:
        match node:
            case exp.Paren():
                return self.value(node.this)
            case exp.Null():
                return _Value(None, lambda resource: None, node=node)
            case exp.Boolean():
                return _constant(FieldType.BOOL, bool(node.this), node)
            case exp.Literal() if node.is_string:
                return _constant(FieldType.TEXT, node.name, node)
            case exp.Literal():
                return _constant(FieldType.NUMBER, self._number(node), node)
            case exp.Neg():
                inner = self._numeric(node.this)
                return _Value(FieldType.NUMBER, _unary(inner.read), node=node)
            case exp.Cast() if isinstance(node.this, exp.Literal) and node.this.is_string and _is_time(node):
                return _constant(FieldType.TEXT, node.this.name, node)
            case exp.Interval() if node.this is not None:
                unit = node.args.get("unit")
                return _constant(FieldType.TEXT, f"{node.this.name} {unit.name if unit else ''}".strip(), node)
            case exp.Column() | exp.Dot():
                try:
                    field = find_field(self._kind, _path(node))
                except FieldError as error:
                    raise self._refusal(node, error.message, error.suggestion, Step.BIND) from None
                return _Value(field.type, field.read, field=field, node=node)
        if type(node) in _ARITHMETIC:
            left, right = self._numeric(node.this), self._numeric(node.expression)
            return _Value(FieldType.NUMBER, _binary(_ARITHMETIC[type(node)], left.read, right.read), node=node)
        raise self._misplaced(node)

    def _number(self, node: exp.Literal) -> int | float:
        text = node.name
        if len(text) > 40:
            raise self._refusal(node, "the number is too long")
        return int(text) if text.isdigit() else float(text)

    def _numeric(self, node: exp.Expr) -> _Value:
        value = self.value(node)
        if value.type not in (FieldType.NUMBER, None):
            raise self._refusal(node, f"expected a number, found {value.type}")
        return value

    def _compare(self, kind: type[exp.Expr], node: exp.Expr, left: exp.Expr, right: exp.Expr) -> Truth:
        mine, theirs = self._matched(node, self.value(left), self.value(right))
        compare = _COMPARISONS[kind]
        ordered = kind not in (exp.EQ, exp.NEQ)
        if ordered and FieldType.ENUM in (mine.type, theirs.type):
            raise self._refusal(node, "states have no order", "compare them with = or IN")
        read_mine, read_theirs = mine.read, theirs.read

        def truth(resource: Message) -> bool | None:
            one, other = read_mine(resource), read_theirs(resource)
            return None if one is None or other is None else compare(one, other)

        return truth

    def _same(self, node: exp.Expr, left: exp.Expr, right: exp.Expr) -> Truth:
        mine, theirs = self._matched(node, self.value(left), self.value(right))
        read_mine, read_theirs = mine.read, theirs.read
        return lambda resource: read_mine(resource) == read_theirs(resource)

    def _matched(self, node: exp.Expr, left: _Value, right: _Value) -> tuple[_Value, _Value]:
        """Both sides as values of one type: a string beside an enum, time or duration is read as one."""
        if left.is_null or right.is_null or left.type is right.type:
            same_enum = left.field and right.field and left.field.enum is not right.field.enum
            if left.type is FieldType.ENUM and same_enum:
                raise self._refusal(node, "these are states of different things")
            return left, right
        if right.type is FieldType.TEXT and right.field is None:
            return left, self._read_as(left, right)
        if left.type is FieldType.TEXT and left.field is None:
            return self._read_as(right, left), right
        raise self._refusal(node, f"a {left.type} cannot be compared with a {right.type}")

    def _read_as(self, wanted: _Value, given: _Value) -> _Value:
        text = given.literal
        try:
            match wanted.type:
                case FieldType.ENUM if wanted.field is not None:
                    return _constant(FieldType.ENUM, self._enum(wanted.field, text, given.node), given.node)
                case FieldType.TIME:
                    moment = datetime.fromisoformat(text)
                    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
                    return _constant(FieldType.TIME, moment, given.node)
                case FieldType.DURATION:
                    return _constant(FieldType.DURATION, timedelta(microseconds=parse_duration(text)), given.node)
        except ValueError:
            raise self._refusal(given.node, f"{quoted(text)} is not a {wanted.type}") from None
        raise self._refusal(given.node, f"expected a {wanted.type}, found the text {quoted(text)}")

    def _enum(self, field: Field, text: str, node: exp.Expr | None) -> int:
        names = field.short_names()
        if text.upper() not in names:
            suggestion = did_you_mean(text, names) or f"there are {one_of(names)}"
            raise self._refusal(node, f"{quoted(field.path)} is never {quoted(text)}", suggestion)
        return names[text.upper()]

    def _is(self, node: exp.Is) -> Truth:
        if isinstance(node.expression, exp.Null):
            read = self.value(node.this).read
            return lambda resource: read(resource) is None
        if isinstance(node.expression, exp.Boolean):
            truth, wanted = self.truth(node.this), bool(node.expression.this)
            return lambda resource: truth(resource) is wanted
        raise self._refusal(node, "IS is followed by NULL, TRUE or FALSE here")

    def _in(self, node: exp.In) -> Truth:
        if node.args.get("query") is not None or node.args.get("unnest") is not None or not node.expressions:
            raise self._refusal(node, "IN takes a list of values here", "", Step.BIND)
        return _any([self._compare(exp.EQ, node, node.this, item) for item in node.expressions])

    def _like(self, node: exp.Expr, left: exp.Expr, right: exp.Expr, escape: str) -> Truth:
        value, pattern = self.value(left), self.value(right)
        if value.type is FieldType.ENUM and value.field is not None:
            by_number = {number: name for name, number in value.field.short_names().items()}
            read = _named(value.read, by_number)
        elif value.type is FieldType.TEXT:
            read = value.read
        else:
            raise self._refusal(left, "LIKE is for texts")
        if pattern.type is not FieldType.TEXT or pattern.literal is None or len(escape) != 1:
            raise self._refusal(right, "expected a pattern in single quotes after LIKE")
        matches = like(pattern.literal, escape, isinstance(node, exp.ILike))

        def truth(resource: Message) -> bool | None:
            text = read(resource)
            return None if text is None else matches(text)

        return truth


def _is_time(node: exp.Cast) -> bool:
    """Whether a cast is that of TIMESTAMP '...' or DATE '...', which a text says as well."""
    try:
        kind = from_tree(node.args["to"]).kind
    except ValueError:
        return False
    return kind in (Kind.TIMESTAMP, Kind.DATE) and not isinstance(node, exp.TryCast)


def _named(read: Read, names: dict[int, str]) -> Read:
    return lambda resource: names.get(read(resource))


def _constant(type_: FieldType, value: Any, node: exp.Expr | None) -> _Value:
    return _Value(type_, lambda resource: value, literal=value, node=node)


def _all(parts: list[Truth]) -> Truth:
    def truth(resource: Message) -> bool | None:
        unknown = False
        for part in parts:
            value = part(resource)
            if value is False:
                return False
            unknown = unknown or value is None
        return None if unknown else True

    return truth


def _any(parts: list[Truth]) -> Truth:
    def truth(resource: Message) -> bool | None:
        unknown = False
        for part in parts:
            value = part(resource)
            if value is True:
                return True
            unknown = unknown or value is None
        return None if unknown else False

    return truth


def _negated(inner: Truth) -> Truth:
    def truth(resource: Message) -> bool | None:
        value = inner(resource)
        return None if value is None else not value

    return truth


def _unary(read: Read) -> Read:
    def negative(resource: Message) -> Any:
        value = read(resource)
        return None if value is None else -value

    return negative


def _binary(apply: Callable[[Any, Any], Any], left: Read, right: Read) -> Read:
    def value(resource: Message) -> Any:
        one, other = left(resource), right(resource)
        return None if one is None or other is None else apply(one, other)

    return value


def _path(node: exp.Expr) -> list[str]:
    if isinstance(node, exp.Dot):
        return [*_path(node.this), node.expression.name]
    return [node.args[key].name for key in ("catalog", "db", "table", "this") if node.args.get(key)]


def _name(node: exp.Expr) -> str:
    return ".".join(_path(node))
