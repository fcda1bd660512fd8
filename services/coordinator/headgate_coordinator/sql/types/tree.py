"""Between our types and the types in sqlglot's tree."""

from __future__ import annotations

from sqlglot import exp

from headgate_coordinator.sql.types import model
from headgate_coordinator.sql.types.model import DataType, Kind, StructField, element_of, key_of

_DType = exp.DType
_TO_TREE = {
    Kind.BOOL: _DType.BOOLEAN,
    Kind.INT8: _DType.TINYINT,
    Kind.INT16: _DType.SMALLINT,
    Kind.INT32: _DType.INT,
    Kind.INT64: _DType.BIGINT,
    Kind.UINT8: _DType.UTINYINT,
    Kind.UINT16: _DType.USMALLINT,
    Kind.UINT32: _DType.UINT,
    Kind.UINT64: _DType.UBIGINT,
    Kind.FLOAT32: _DType.FLOAT,
    Kind.FLOAT64: _DType.DOUBLE,
    Kind.DECIMAL: _DType.DECIMAL,
    Kind.VARCHAR: _DType.TEXT,
    Kind.CHAR: _DType.CHAR,
    Kind.BINARY: _DType.BINARY,
    Kind.DATE: _DType.DATE,
    Kind.TIMESTAMP: _DType.TIMESTAMPTZ,
    Kind.ARRAY: _DType.ARRAY,
    Kind.MAP: _DType.MAP,
    Kind.STRUCT: _DType.STRUCT,
    Kind.NULL: _DType.NULL,
}
_FROM_TREE = {
    **{dtype: kind for kind, dtype in _TO_TREE.items()},
    _DType.VARCHAR: Kind.VARCHAR,
    _DType.VARBINARY: Kind.BINARY,
    _DType.TIMESTAMP: Kind.TIMESTAMP,
    _DType.TIMESTAMPLTZ: Kind.TIMESTAMP,
}


def to_tree(type_: DataType) -> exp.DataType:
    """The type as sqlglot's optimiser and Spark generator know it."""
    if type_.is_interval:
        unit = exp.IntervalSpan(
            this=exp.var("DAY" if type_.kind is Kind.DAY_TIME_INTERVAL else "YEAR"),
            expression=exp.var("SECOND" if type_.kind is Kind.DAY_TIME_INTERVAL else "MONTH"),
        )
        return exp.DataType(this=exp.Interval(unit=unit))
    dtype = _TO_TREE[type_.kind]
    match type_.kind:
        case Kind.DECIMAL:
            return exp.DataType(this=dtype, expressions=[_parameter(type_.precision), _parameter(type_.scale)])
        case Kind.CHAR:
            return exp.DataType(this=dtype, expressions=[_parameter(type_.length)])
        case Kind.VARCHAR if type_.length:
            return exp.DataType(this=_DType.VARCHAR, expressions=[_parameter(type_.length)])
        case Kind.ARRAY:
            return exp.DataType(this=dtype, expressions=[to_tree(element_of(type_))], nested=True)
        case Kind.MAP:
            parts = [to_tree(key_of(type_)), to_tree(element_of(type_))]
            return exp.DataType(this=dtype, expressions=parts, nested=True)
        case Kind.STRUCT:
            return exp.DataType(this=dtype, expressions=[_field_to_tree(f) for f in type_.fields], nested=True)
        case _:
            return exp.DataType(this=dtype)


def _parameter(value: int) -> exp.DataTypeParam:
    return exp.DataTypeParam(this=exp.Literal.number(value))


def _field_to_tree(field: StructField) -> exp.ColumnDef:
    constraints = [exp.ColumnConstraint(kind=exp.NotNullColumnConstraint())] if field.not_null else []
    return exp.ColumnDef(
        this=exp.to_identifier(field.name, quoted=True), kind=to_tree(field.type), constraints=constraints
    )


def from_tree(tree: exp.DataType) -> DataType:
    """The type that a node of the dialect's own parser stands for; a ValueError for one that cannot be declared."""
    kind = _FROM_TREE.get(tree.this)
    if kind is None:
        raise ValueError(f"there is no type {tree.sql(dialect='spark')}")
    parameters = [int(p.name) for p in tree.expressions if isinstance(p, exp.DataTypeParam)]
    nested = [p for p in tree.expressions if isinstance(p, exp.DataType)]
    match kind:
        case Kind.DECIMAL:
            return model.decimal(*parameters) if parameters else model.decimal(10, 0)
        case Kind.CHAR:
            return model.char(*(parameters or [1]))
        case Kind.VARCHAR:
            return model.varchar(*parameters)
        case Kind.ARRAY:
            return model.array(from_tree(nested[0]))
        case Kind.MAP:
            return model.map_of(from_tree(nested[0]), from_tree(nested[1]))
        case Kind.STRUCT:
            return model.struct(*(_field_from_tree(f) for f in tree.expressions))
        case _:
            return DataType(kind)


def _field_from_tree(field: exp.Expr) -> StructField:
    if not isinstance(field, exp.ColumnDef) or not isinstance(field.kind, exp.DataType):
        raise ValueError("a field of a STRUCT needs a name and a type")
    not_null = any(isinstance(c.kind, exp.NotNullColumnConstraint) for c in field.constraints)
    return StructField(field.name, from_tree(field.kind), not_null)
