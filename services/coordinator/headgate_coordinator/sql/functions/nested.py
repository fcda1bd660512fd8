"""Functions of arrays, maps and structs."""

from __future__ import annotations

from collections.abc import Sequence

from headgate_coordinator.sql.algebra import Expr
from headgate_coordinator.sql.coercion import common_type, computed, is_orderable
from headgate_coordinator.sql.functions.signature import (
    ANY,
    ARRAY,
    ARRAY_OR_MAP,
    BOOLEAN_LITERAL,
    MAP,
    SMALL,
    TEXT,
    TEXT_ARRAY,
    ArgumentFault,
    Function,
    Param,
    as_computed,
)
from headgate_coordinator.sql.types import BOOL, INT32, INT64, VARCHAR, DataType, Kind, array, element_of, key_of


def _element(args: Sequence[Expr]) -> DataType:
    nested, at = args[0].type, computed(args[1].type)
    if nested.kind is Kind.ARRAY:
        if at.kind not in (Kind.INT8, Kind.INT16, Kind.INT32):
            raise ArgumentFault(1, f"must be an integer of at most 32 bits, not {args[1].type}")
    elif at != computed(key_of(nested)):
        raise ArgumentFault(1, f"must be {key_of(nested)}, as the keys are, not {args[1].type}")
    return element_of(nested)


def _holds(result: DataType) -> object:
    """For an array and a value that is compared with its elements."""

    def check(args: Sequence[Expr]) -> DataType:
        element = computed(element_of(args[0].type))
        if computed(args[1].type) != element:
            raise ArgumentFault(1, f"must be {element}, as the elements are, not {args[1].type}", "CAST it")
        if not is_orderable(element):
            raise ArgumentFault(0, "has elements that cannot be compared")
        return result

    return check


def _with_value(args: Sequence[Expr]) -> DataType:
    _holds(BOOL)(args)  # type: ignore[operator]
    return computed(args[0].type)


def _extreme(args: Sequence[Expr]) -> DataType:
    element = element_of(args[0].type)
    if not is_orderable(element):
        raise ArgumentFault(0, "has elements that cannot be sorted")
    return element


def _sorted(args: Sequence[Expr]) -> DataType:
    _extreme(args)
    return args[0].type


def _two_arrays(args: Sequence[Expr]) -> DataType:
    if computed(args[0].type) != computed(args[1].type):
        raise ArgumentFault(1, f"is {args[1].type}, which is not {args[0].type}")
    if not is_orderable(element_of(args[0].type)):
        raise ArgumentFault(0, "has elements that cannot be compared")
    return computed(args[0].type)


def _overlap(args: Sequence[Expr]) -> DataType:
    _two_arrays(args)
    return BOOL


def _flattened(args: Sequence[Expr]) -> DataType:
    inner = element_of(args[0].type)
    if inner.kind is not Kind.ARRAY:
        raise ArgumentFault(0, "must be an ARRAY of ARRAYs")
    return inner


def _concatenated(args: Sequence[Expr]) -> DataType:
    kinds = {computed(arg.type).kind for arg in args}
    if kinds in ({Kind.VARCHAR}, {Kind.BINARY}):
        return computed(args[0].type)
    if kinds == {Kind.ARRAY}:
        type_ = common_type(computed(arg.type) for arg in args)
        if type_ is not None:
            return type_
        raise ArgumentFault(1, f"is {args[1].type}, which does not go with {args[0].type}")
    wrong = next((i for i, arg in enumerate(args) if computed(arg.type).kind is not Kind.VARCHAR), 0)
    raise ArgumentFault(wrong, f"is {args[wrong].type}; concat takes VARCHAR, BINARY or ARRAY", "CAST(x AS VARCHAR)")


def _reversed(args: Sequence[Expr]) -> DataType:
    type_ = computed(args[0].type)
    if type_.kind not in (Kind.VARCHAR, Kind.ARRAY):
        raise ArgumentFault(0, f"must be VARCHAR or an ARRAY, not {args[0].type}")
    return type_


def _contains_key(args: Sequence[Expr]) -> DataType:
    if computed(args[1].type) != computed(key_of(args[0].type)):
        raise ArgumentFault(1, f"must be {key_of(args[0].type)}, as the keys are, not {args[1].type}")
    return BOOL


def _f(name: str, params: Sequence[Param], result: object, **more: object) -> Function:
    return Function(name, tuple(params), result, group="Arrays, maps and structs", **more)  # type: ignore[arg-type]


NESTED_FUNCTIONS = (
    _f("concat", [ANY], _concatenated, variadic=ANY),
    _f("reverse", [ANY], _reversed),
    _f("size", [ARRAY_OR_MAP], INT32, synonyms=("cardinality",)),
    _f("element_at", [ARRAY_OR_MAP, ANY], _element, null_if="always"),
    _f("try_element_at", [ARRAY_OR_MAP, ANY], _element, null_if="always"),
    _f("array_contains", [ARRAY, ANY], _holds(BOOL), null_if="always"),
    _f("array_position", [ARRAY, ANY], _holds(INT64)),
    _f("array_remove", [ARRAY, ANY], _with_value),
    _f("array_append", [ARRAY, ANY], _with_value),
    _f("array_prepend", [ARRAY, ANY], _with_value),
    _f("array_distinct", [ARRAY], _sorted),
    _f("array_min", [ARRAY], _extreme, null_if="always"),
    _f("array_max", [ARRAY], _extreme, null_if="always"),
    _f("array_join", [TEXT_ARRAY, TEXT], VARCHAR, optional=(TEXT,)),
    _f("array_union", [ARRAY, ARRAY], _two_arrays),
    _f("array_intersect", [ARRAY, ARRAY], _two_arrays),
    _f("array_except", [ARRAY, ARRAY], _two_arrays),
    _f("arrays_overlap", [ARRAY, ARRAY], _overlap, null_if="always"),
    _f("array_compact", [ARRAY], as_computed()),
    _f("sort_array", [ARRAY], _sorted, optional=(BOOLEAN_LITERAL,)),
    _f("slice", [ARRAY, SMALL, SMALL], as_computed()),
    _f("flatten", [ARRAY], _flattened),
    _f("map_keys", [MAP], lambda args: array(key_of(args[0].type))),
    _f("map_values", [MAP], lambda args: array(element_of(args[0].type))),
    _f("map_contains_key", [MAP, ANY], _contains_key),
)
