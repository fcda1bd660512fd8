"""Rows from JSON: one object a record, values by column name, missing ones NULL, other members ignored.

Whole blocks go through pyarrow's JSON reader; a block that it refuses is halved until the records that are to blame
stand alone. What it cannot read into (MAP anywhere; DATE and BINARY inside of nested types) is read record by record,
with the same rules: a whole number for integers, a number or its text for DECIMAL, ISO 8601 text for times, base64 for
BINARY, an object for MAP and STRUCT, and nothing taken for something else.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from headgate_agent.fragments.formats.rows import (
    Data,
    Decoded,
    RowFault,
    assemble,
    broken_rule,
    one_array,
    shown,
    type_name,
)
from headgate_agent.fragments.types import Column, arrow_schema
from headgate_common.column_types import ColumnType

_FEW = 8
_PATIENCE = 200
_BRACE = ord("{")
_NULL_AFTER = re.compile(rb"\}[ \t\r\n]*n")
_NOT_FINITE = (b'"NaN"', b'"Infinity"', b'"-Infinity"')


class _Refused(Exception):
    """A block in which some record is malformed; the message says why where it is known."""


class JsonDecoder:
    """A `Decoder` of JSON objects with a delimiter between them."""

    def __init__(self, columns: Sequence[Column], options: Mapping[str, str]) -> None:
        self._columns = tuple(columns)
        self._delimiter = options.get("tuple_delimiter", "\n").encode()
        self._by_hand = any(_needs_hand(column.type, nested=False) for column in columns)
        self._floats = any(column.type.is_float for column in columns)
        self._read_schema = pa.schema([(column.name, _read_type(column)) for column in columns])

    @property
    def wants_header(self) -> bool:
        return False

    def with_header(self, record: bytes) -> JsonDecoder:
        raise TypeError("JSON has no header")

    def first(self, data: Data, final: bool) -> int:
        found = data.find(self._delimiter)
        return found + len(self._delimiter) if found >= 0 else len(data) if final else 0

    def whole(self, data: Data, final: bool) -> int:
        if final:
            return len(data)
        found = data.rfind(self._delimiter)
        return found + len(self._delimiter) if found >= 0 else 0

    def decode(self, data: Data) -> Decoded:
        if self._delimiter == b"\n" and not self._by_hand:
            try:
                return Decoded(self._convert(data, data.count(b"\n") + (not data.endswith(b"\n"))))
            except _Refused:
                pass
        records = self._records(bytes(data))
        batches: list[pa.RecordBatch] = []
        faults: list[RowFault] = []
        refused = 0
        stack = [(0, len(records))] if records else []
        while stack:
            low, high = stack.pop()
            part = records[low:high]
            if high - low > 1 and refused < _PATIENCE:
                try:
                    batches.append(self._convert(b"\n".join(text for _, text in part), len(part)))
                    continue
                except _Refused:
                    refused += 1
            if high - low > _FEW and refused < _PATIENCE:
                middle = (low + high) // 2
                stack += [(middle, high), (low, middle)]
                continue
            for offset, text in part:
                try:
                    batches.append(self._alone(text))
                except _Refused as error:
                    faults.append(RowFault(offset, text, str(error)))
        return Decoded(assemble(self._columns, batches), tuple(faults))

    def _records(self, data: bytes) -> list[tuple[int, bytes]]:
        """The records that are not blank, each on one line, with where they begin."""
        found = []
        at = 0
        for piece in data.split(self._delimiter):
            text = piece.strip(b" \t\r\n")
            if text:
                # Newlines between tokens mean nothing; inside of text they are malformed and stay so.
                one_line = text if self._delimiter == b"\n" or b"\n" not in text else _on_one_line(text)
                found.append((at, one_line))
            at += len(piece) + len(self._delimiter)
        return found

    def _convert(self, data: Data, records: int) -> pa.RecordBatch:
        return self._checked(self._by_python(data) if self._by_hand else self._by_pyarrow(data, records))

    def _checked(self, arrays: list[pa.Array]) -> pa.RecordBatch:
        for array, column in zip(arrays, self._columns, strict=True):
            fault = broken_rule(array, column)
            if fault:
                raise _Refused(fault)
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self._columns))

    def _alone(self, text: bytes) -> pa.RecordBatch:
        if not text.startswith(b"{"):
            raise _Refused("expected one JSON object in a row")
        if not _is_safe(text):
            return self._checked(self._by_python(text))
        try:
            return self._convert(text, 1)
        except _Refused:
            # What has no spelling as a number is written as text, by Spark and by the sinks here.
            if not self._floats or not any(name in text for name in _NOT_FINITE):
                raise
            return self._checked(self._by_python(text))

    def _by_pyarrow(self, data: Data, records: int) -> list[pa.Array]:
        if not _is_safe(data):
            raise _Refused
        try:
            table = pyarrow.json.read_json(
                pa.BufferReader(data),
                read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(data) + 1),
                parse_options=pyarrow.json.ParseOptions(
                    explicit_schema=self._read_schema, unexpected_field_behavior="ignore"
                ),
            )
            # One object over two lines, and two on one, are read without complaint.
            if table.num_rows != records:
                raise _Refused("expected one JSON object in a row")
            return [self._finished(one_array(table.column(column.name)), column) for column in self._columns]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _Refused(str(error).split("\n")[0][:300]) from error

    @staticmethod
    def _finished(array: pa.Array, column: Column) -> pa.Array:
        # Bytes inside of text are not looked at by the reader.
        if column.type.is_text or column.type.is_nested or column.type.kind in ("DATE", "BINARY"):
            array.validate(full=True)
        if column.type.kind == "DATE":
            return array.cast(column.arrow)
        if column.type.kind == "BINARY":
            return pa.array([None if text is None else _bytes(text) for text in array.to_pylist()], pa.binary())
        return array

    def _by_python(self, data: Data) -> list[pa.Array]:
        rows = [_object(line) for line in data.split(b"\n") if line.strip()]
        arrays = []
        for column in self._columns:
            try:
                values = [_value(row.get(column.name), column.type) for row in rows]
                arrays.append(pa.array(values, column.arrow))
            except (_Refused, pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
                raise _Refused(f"column {column.name}: {str(error)[:300]}") from error
        return arrays


def _is_safe(data: Data) -> bool:
    """Whether every line begins with an object and none has a null after one: a null that stands alone brings the
    process down in pyarrow's reader."""
    if _NULL_AFTER.search(data):
        return False
    content = np.frombuffer(data, np.uint8)
    starts = np.flatnonzero(content[:-1] == 10) + 1
    return len(content) > 0 and content[0] == _BRACE and bool(np.all(content[starts] == _BRACE))


def _on_one_line(text: bytes) -> bytes:
    """A pretty-printed object on one line. A newline inside of text stays malformed, as another control byte."""
    pieces = text.split(b'"')
    inside, made = False, []
    for piece in pieces:
        made.append(piece.replace(b"\n", b"\x01" if inside else b" "))
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        if not (inside and backslashes % 2):
            inside = not inside
    return b'"'.join(made)


def _read_type(column: Column) -> pa.DataType:
    return pa.string() if column.type.kind in ("DATE", "BINARY") else column.arrow


def _needs_hand(type_: ColumnType, nested: bool) -> bool:
    if type_.kind == "MAP" or (nested and type_.kind in ("DATE", "BINARY")):
        return True
    inner = [field.type for field in type_.fields] + ([type_.element] if type_.element else [])
    return any(_needs_hand(part, nested=True) for part in inner)


def _object(line: Data) -> dict[str, Any]:
    try:
        found = json.loads(line, parse_float=Decimal, parse_int=_whole, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _Refused(str(error)[:300]) from error
    if not isinstance(found, dict):
        raise _Refused("expected one JSON object in a row")
    return found


def _whole(text: str) -> int | float:
    # -0 is a number of its own where it becomes a float.
    return -0.0 if text == "-0" else int(text)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("a member comes twice")
    return made


def _bytes(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise _Refused(f"{shown(text)} is not base64") from error


def _value(value: Any, type_: ColumnType) -> Any:
    """A value of JSON as Arrow takes it for the type; `_Refused` if it is none of the type."""
    if value is None:
        return None
    match type_.kind:
        case "BOOL" if isinstance(value, bool):
            return value
        case "FLOAT32" | "FLOAT64" if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            return float(value)
        case "FLOAT32" | "FLOAT64" if value in ("NaN", "Infinity", "-Infinity"):
            return float(value)
        case "DECIMAL" if isinstance(value, (int, Decimal, str)) and not isinstance(value, bool):
            return _decimal(value, type_)
        case "VARCHAR" | "CHAR" if isinstance(value, str):
            return value
        case "BINARY" if isinstance(value, str):
            return _bytes(value)
        case "DATE" | "TIMESTAMP" if isinstance(value, str):
            return _time(value, type_)
        case "ARRAY" if isinstance(value, list) and type_.element is not None:
            return [_value(item, type_.element) for item in value]
        case "MAP" if isinstance(value, dict) and type_.element is not None and type_.key is not None:
            return [(_key(key, type_.key), _value(item, type_.element)) for key, item in value.items()]
        case "STRUCT" if isinstance(value, dict):
            return {field.name: _value(value.get(field.name), field.type) for field in type_.fields}
        case _ if type_.is_integer and isinstance(value, int) and not isinstance(value, bool):
            return value
        case _ if isinstance(value, float) and value == 0 and (type_.is_integer or type_.kind == "DECIMAL"):
            return 0
    raise _Refused(f"{shown(str(value))} is not a {type_name(type_)}")


def _key(text: str, type_: ColumnType) -> Any:
    """A member's name as the key of a MAP: text as it is, anything else as JSON spells it."""
    if type_.is_text or type_.kind in ("BINARY", "DATE", "TIMESTAMP", "DECIMAL"):
        return _value(text, type_)
    try:
        return _value(json.loads(text, parse_float=Decimal), type_)
    except ValueError as error:
        raise _Refused(f"{shown(text)} is not a {type_name(type_)}") from error


def _decimal(value: Any, type_: ColumnType) -> Decimal:
    try:
        return Decimal(value)
    except InvalidOperation as error:
        raise _Refused(f"{shown(str(value))} is not a {type_name(type_)}") from error


def _time(text: str, type_: ColumnType) -> date | datetime:
    try:
        if type_.kind == "DATE":
            return date.fromisoformat(text)
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _Refused(f"{shown(text)} is not a {type_name(type_)}") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
