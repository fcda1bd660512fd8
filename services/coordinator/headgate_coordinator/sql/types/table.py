"""The table of all types: synonyms, and their form in Spark and Arrow. docs/sql/types.md and the tests read it too."""

from __future__ import annotations

from dataclasses import dataclass

from headgate_coordinator.sql.types.model import DataType, Kind, element_of, field_name, key_of


@dataclass(frozen=True, slots=True)
class TypeRow:
    """What there is to know about a family of types.

    `arrow` holds every value of the type and nothing else where Arrow has such a type. `spark` holds every value;
    where it holds more (Spark has no unsigned integers), `low` and `high` bound what may be stored. `spark_arrow` is
    the Arrow type of `spark`, which crosses between an edge and Spark.
    """

    kind: Kind
    declared_as: str
    synonyms: tuple[str, ...]
    spark: str
    arrow: str
    spark_arrow: str
    meaning: str
    low: int | None = None
    high: int | None = None
    # Decimal digits that any value of an integer type fits in.
    digits: int = 0


def _integer(kind: Kind, bits: int, synonyms: tuple[str, ...], spark: str, spark_arrow: str) -> TypeRow:
    unsigned = kind.startswith("U")
    low, high = (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return TypeRow(
        kind,
        kind,
        synonyms,
        spark,
        kind.lower(),
        spark_arrow,
        f"Whole numbers from {low:,} to {high:,}",
        low,
        high,
        len(str(high)),
    )


TYPES: dict[Kind, TypeRow] = {
    row.kind: row
    for row in (
        TypeRow(Kind.BOOL, "BOOL", ("BOOLEAN",), "boolean", "bool", "bool", "TRUE or FALSE"),
        _integer(Kind.INT8, 8, ("TINYINT", "BYTE"), "tinyint", "int8"),
        _integer(Kind.INT16, 16, ("SMALLINT", "SHORT"), "smallint", "int16"),
        _integer(Kind.INT32, 32, ("INT", "INTEGER"), "int", "int32"),
        _integer(Kind.INT64, 64, ("BIGINT", "LONG"), "bigint", "int64"),
        _integer(Kind.UINT8, 8, (), "smallint", "int16"),
        _integer(Kind.UINT16, 16, (), "int", "int32"),
        _integer(Kind.UINT32, 32, (), "bigint", "int64"),
        _integer(Kind.UINT64, 64, (), "decimal(20,0)", "decimal128(20, 0)"),
        TypeRow(Kind.FLOAT32, "FLOAT32", ("FLOAT", "REAL"), "float", "float", "float", "IEEE 754 numbers of 32 bits"),
        TypeRow(
            Kind.FLOAT64,
            "FLOAT64",
            ("DOUBLE", "DOUBLE PRECISION"),
            "double",
            "double",
            "double",
            "IEEE 754 numbers of 64 bits",
        ),
        TypeRow(
            Kind.DECIMAL,
            "DECIMAL(p,s)",
            ("NUMERIC", "DEC"),
            "decimal(p,s)",
            "decimal128(p, s)",
            "decimal128(p, s)",
            "Exact numbers of p digits, s of them after the point; p from 1 to 38, s from 0 to p. "
            "DECIMAL(p) is DECIMAL(p,0), DECIMAL is DECIMAL(10,0)",
        ),
        TypeRow(
            Kind.VARCHAR,
            "VARCHAR",
            ("TEXT", "VARSIZED", "STRING"),
            "string",
            "string",
            "string",
            "Unicode text; VARCHAR(n) of at most n characters",
        ),
        TypeRow(
            Kind.CHAR,
            "CHAR(n)",
            ("CHARACTER",),
            "string",
            "string",
            "string",
            "Unicode text of at most n characters, never padded; CHAR is CHAR(1)",
        ),
        TypeRow(Kind.BINARY, "BINARY", ("VARBINARY", "BYTES", "BYTEA"), "binary", "binary", "binary", "Bytes"),
        TypeRow(Kind.DATE, "DATE", (), "date", "date32[day]", "date32[day]", "Days from 0001-01-01 to 9999-12-31"),
        TypeRow(
            Kind.TIMESTAMP,
            "TIMESTAMP",
            ("TIMESTAMP_LTZ", "TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE", "DATETIME"),
            "timestamp",
            "timestamp[us, tz=UTC]",
            "timestamp[us, tz=UTC]",
            "Instants in microseconds, written and read in UTC",
        ),
        TypeRow(
            Kind.ARRAY,
            "ARRAY<T>",
            ("T[]",),
            "array<T>",
            "list<element: T>",
            "list<element: T>",
            "Any number of values of one type",
        ),
        TypeRow(
            Kind.MAP,
            "MAP<K,V>",
            (),
            "map<K,V>",
            "map<K, V>",
            "map<K, V>",
            "Values by key; a key is not NULL",
        ),
        TypeRow(
            Kind.STRUCT,
            "STRUCT<a: T, ...>",
            ("ROW",),
            "struct<a:T,...>",
            "struct<a: T, ...>",
            "struct<a: T, ...>",
            "Named fields",
        ),
    )
}


def spark_type(type_: DataType) -> str:
    """The type in Spark's spelling (of DDL and `simpleString`)."""
    match type_.kind:
        case Kind.DECIMAL:
            return f"decimal({type_.precision},{type_.scale})"
        case Kind.ARRAY:
            return f"array<{spark_type(element_of(type_))}>"
        case Kind.MAP:
            return f"map<{spark_type(key_of(type_))},{spark_type(element_of(type_))}>"
        case Kind.STRUCT:
            fields = (
                f"{field_name(f.name)}:{spark_type(f.type)}{' NOT NULL' if f.not_null else ''}" for f in type_.fields
            )
            return f"struct<{','.join(fields)}>"
        case Kind.NULL:
            return "void"
        case Kind.DAY_TIME_INTERVAL:
            return "interval day to second"
        case Kind.YEAR_MONTH_INTERVAL:
            return "interval year to month"
        case kind:
            return TYPES[kind].spark


def arrow_type(type_: DataType) -> str:
    """The Arrow type that holds the values, as `str(pyarrow.DataType)` spells it."""
    return _arrow(type_, spark=False)


def spark_arrow_type(type_: DataType) -> str:
    """The Arrow type in which Spark takes and gives the values."""
    return _arrow(type_, spark=True)


def _arrow(type_: DataType, spark: bool) -> str:
    match type_.kind:
        case Kind.DECIMAL:
            return f"decimal128({type_.precision}, {type_.scale})"
        case Kind.ARRAY:
            return f"list<element: {_arrow(element_of(type_), spark)}>"
        case Kind.MAP:
            return f"map<{_arrow(key_of(type_), spark)}, {_arrow(element_of(type_), spark)}>"
        case Kind.STRUCT:
            fields = (f"{f.name}: {_arrow(f.type, spark)}{' not null' if f.not_null else ''}" for f in type_.fields)
            return f"struct<{', '.join(fields)}>"
        case Kind.NULL:
            return "null"
        case Kind.DAY_TIME_INTERVAL:
            return "duration[us]"
        case Kind.YEAR_MONTH_INTERVAL:
            return "month_interval"
        case kind:
            row = TYPES[kind]
            return row.spark_arrow if spark else row.arrow
