"""Which types may stand for which without a cast."""

from __future__ import annotations

from headgate_coordinator.sql.types.model import DataType, Kind, element_of, key_of
from headgate_coordinator.sql.types.table import TYPES

# Integers that each float type holds exactly.
_EXACT_IN = {
    Kind.FLOAT32: (Kind.INT8, Kind.INT16, Kind.UINT8, Kind.UINT16),
    Kind.FLOAT64: (Kind.INT8, Kind.INT16, Kind.INT32, Kind.UINT8, Kind.UINT16, Kind.UINT32),
}


def widens(source: DataType, target: DataType) -> bool:
    """Whether every value of `source` is a value of `target` too, so that it may be stored there without a cast."""
    if source == target or source.kind is Kind.NULL:
        return True
    if source.is_integer and target.is_integer:
        narrow, wide = TYPES[source.kind], TYPES[target.kind]
        assert narrow.low is not None and narrow.high is not None and wide.low is not None and wide.high is not None
        return wide.low <= narrow.low and narrow.high <= wide.high
    if source.is_integer and target.kind is Kind.DECIMAL:
        return target.precision - target.scale >= TYPES[source.kind].digits
    match source.kind, target.kind:
        case _, Kind.FLOAT32 | Kind.FLOAT64 if source.is_integer:
            return source.kind in _EXACT_IN[target.kind]
        case Kind.FLOAT32, Kind.FLOAT64:
            return True
        case Kind.DECIMAL, Kind.DECIMAL:
            return target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale
        case ((Kind.CHAR | Kind.VARCHAR), (Kind.CHAR | Kind.VARCHAR)):
            return not target.length or 0 < source.length <= target.length
        case Kind.DATE, Kind.TIMESTAMP:
            return True
        case Kind.ARRAY, Kind.ARRAY:
            return widens(element_of(source), element_of(target))
        case Kind.MAP, Kind.MAP:
            return widens(key_of(source), key_of(target)) and widens(element_of(source), element_of(target))
        case Kind.STRUCT, Kind.STRUCT:
            return len(source.fields) == len(target.fields) and all(
                mine.name.lower() == theirs.name.lower()
                and widens(mine.type, theirs.type)
                and (mine.not_null or not theirs.not_null)
                for mine, theirs in zip(source.fields, target.fields, strict=True)
            )
        case _:
            return False
