"""The values that stand for types, and their canonical spelling."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MAX_DECIMAL_PRECISION = 38
MAX_LENGTH = 1_000_000


class Kind(StrEnum):
    """Families of types. The last three are of expressions only and cannot be declared."""

    BOOL = "BOOL"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    FLOAT32 = "FLOAT32"
    FLOAT64 = "FLOAT64"
    DECIMAL = "DECIMAL"
    VARCHAR = "VARCHAR"
    CHAR = "CHAR"
    BINARY = "BINARY"
    DATE = "DATE"
    TIMESTAMP = "TIMESTAMP"
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"
    NULL = "NULL"
    DAY_TIME_INTERVAL = "INTERVAL DAY TO SECOND"
    YEAR_MONTH_INTERVAL = "INTERVAL YEAR TO MONTH"


@dataclass(frozen=True, slots=True)
class StructField:
    """One field of a STRUCT. Its name keeps its case and is compared without it."""

    name: str
    type: DataType
    not_null: bool = False


@dataclass(frozen=True, slots=True)
class DataType:
    """A type. Which of the parts are set depends on the kind; the functions below make only meaningful ones."""

    kind: Kind
    # DECIMAL
    precision: int = 0
    scale: int = 0
    # CHAR(n); VARCHAR(n), 0 for any length
    length: int = 0
    # ARRAY; the values of a MAP
    element: DataType | None = None
    # MAP
    key: DataType | None = None
    # STRUCT
    fields: tuple[StructField, ...] = ()

    def __str__(self) -> str:
        return spelling(self)

    @property
    def is_integer(self) -> bool:
        return self.kind in INTEGERS

    @property
    def is_unsigned(self) -> bool:
        return self.kind in UNSIGNED

    @property
    def is_float(self) -> bool:
        return self.kind in (Kind.FLOAT32, Kind.FLOAT64)

    @property
    def is_numeric(self) -> bool:
        return self.is_integer or self.is_float or self.kind is Kind.DECIMAL

    @property
    def is_text(self) -> bool:
        return self.kind in (Kind.VARCHAR, Kind.CHAR)

    @property
    def is_nested(self) -> bool:
        return self.kind in (Kind.ARRAY, Kind.MAP, Kind.STRUCT)

    @property
    def is_interval(self) -> bool:
        return self.kind in (Kind.DAY_TIME_INTERVAL, Kind.YEAR_MONTH_INTERVAL)


SIGNED = (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64)
UNSIGNED = (Kind.UINT8, Kind.UINT16, Kind.UINT32, Kind.UINT64)
INTEGERS = SIGNED + UNSIGNED

BOOL = DataType(Kind.BOOL)
INT8, INT16, INT32, INT64 = (DataType(kind) for kind in SIGNED)
UINT8, UINT16, UINT32, UINT64 = (DataType(kind) for kind in UNSIGNED)
FLOAT32, FLOAT64 = DataType(Kind.FLOAT32), DataType(Kind.FLOAT64)
VARCHAR = DataType(Kind.VARCHAR)
BINARY = DataType(Kind.BINARY)
DATE = DataType(Kind.DATE)
TIMESTAMP = DataType(Kind.TIMESTAMP)
NULL = DataType(Kind.NULL)
DAY_TIME_INTERVAL = DataType(Kind.DAY_TIME_INTERVAL)
YEAR_MONTH_INTERVAL = DataType(Kind.YEAR_MONTH_INTERVAL)


def decimal(precision: int, scale: int = 0) -> DataType:
    """DECIMAL(precision, scale); a ValueError outside 1..38 and 0..precision."""
    if not 1 <= precision <= MAX_DECIMAL_PRECISION:
        raise ValueError(f"the precision of a DECIMAL is from 1 to {MAX_DECIMAL_PRECISION}, not {precision}")
    if not 0 <= scale <= precision:
        raise ValueError(f"the scale of DECIMAL({precision},{scale}) is not from 0 to its precision")
    return DataType(Kind.DECIMAL, precision=precision, scale=scale)


def char(length: int) -> DataType:
    return DataType(Kind.CHAR, length=_length(length))


def varchar(length: int = 0) -> DataType:
    """VARCHAR(length), or VARCHAR of any length for 0."""
    return DataType(Kind.VARCHAR, length=_length(length) if length else 0)


def array(element: DataType) -> DataType:
    return DataType(Kind.ARRAY, element=element)


def map_of(key: DataType, value: DataType) -> DataType:
    """MAP<key, value>; a ValueError where the key is, or contains, a MAP: Spark has no equality for those."""
    if _contains_map(key):
        raise ValueError("the key of a MAP cannot contain a MAP")
    return DataType(Kind.MAP, key=key, element=value)


def struct(*fields: StructField) -> DataType:
    """STRUCT of the fields; a ValueError where there is none, or a name comes twice without regard to case."""
    if not fields:
        raise ValueError("a STRUCT has at least one field")
    seen: set[str] = set()
    for field in fields:
        if field.name.lower() in seen:
            raise ValueError(f"the field {field.name!r} comes twice in a STRUCT")
        seen.add(field.name.lower())
    return DataType(Kind.STRUCT, fields=fields)


def _length(length: int) -> int:
    if not 1 <= length <= MAX_LENGTH:
        raise ValueError(f"a length is from 1 to {MAX_LENGTH:,}, not {length}")
    return length


def _contains_map(type_: DataType) -> bool:
    if type_.kind is Kind.MAP:
        return True
    if type_.kind is Kind.ARRAY:
        return _contains_map(element_of(type_))
    return any(_contains_map(field.type) for field in type_.fields)


def element_of(type_: DataType) -> DataType:
    """The type of an ARRAY's elements or a MAP's values."""
    if type_.element is None:
        raise ValueError(f"{type_} has no elements")
    return type_.element


def key_of(type_: DataType) -> DataType:
    """The type of a MAP's keys."""
    if type_.key is None:
        raise ValueError(f"{type_} has no keys")
    return type_.key


def spelling(type_: DataType) -> str:
    """The canonical spelling."""
    match type_.kind:
        case Kind.DECIMAL:
            return f"DECIMAL({type_.precision},{type_.scale})"
        case Kind.CHAR | Kind.VARCHAR if type_.length:
            return f"{type_.kind}({type_.length})"
        case Kind.ARRAY:
            return f"ARRAY<{element_of(type_)}>"
        case Kind.MAP:
            return f"MAP<{key_of(type_)}, {element_of(type_)}>"
        case Kind.STRUCT:
            fields = (f"{field_name(f.name)}: {f.type}{' NOT NULL' if f.not_null else ''}" for f in type_.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case kind:
            return str(kind)


def field_name(name: str) -> str:
    plain = name.isascii() and name.replace("_", "a").isalnum() and not name[0].isdigit()
    return name if plain else "`" + name.replace("`", "``") + "`"
