"""Rows as JSON, one object a line, column by column: what the JSON parser reads back as the same rows.

Every column is a member, NULL is null, NaN and the infinities are the texts that Spark writes for them, times are ISO
8601 in UTC, BINARY is base64 and a MAP is an object.
"""

from __future__ import annotations

import base64
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headgate_agent.fragments.formats.text_values import as_text, joined_lines

_ESCAPED = r'["\\\x00-\x1f]'
_CONTROL = r"[\x00-\x1f]"


class JsonEncoder:
    def encode(self, batch: pa.RecordBatch) -> bytes:
        if not batch.num_rows:
            return b""
        parts: list[Any] = []
        for index, name in enumerate(batch.schema.names):
            parts.append(("," if index else "{") + json.dumps(name, ensure_ascii=False) + ":")
            parts.append(pc.fill_null(_column(batch.column(index)), "null"))
        return joined_lines(pc.binary_join_element_wise(*parts, "}", ""))


def _column(array: pa.Array) -> pa.Array:
    kind = array.type
    if pa.types.is_nested(kind):
        return pa.array([None if v is None else _text(v, kind) for v in array.to_pylist()], pa.string())
    text = as_text(array)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return text
    if pa.types.is_floating(kind):
        finite = pc.is_finite(array)
        return pc.if_else(finite, text, pc.binary_join_element_wise('"', text, '"', ""))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _strings(text)
    return pc.binary_join_element_wise('"', text, '"', "")


def _strings(text: pa.Array) -> pa.Array:
    if pc.any(pc.match_substring_regex(text, pattern=_ESCAPED), skip_nulls=True).as_py() is True:
        if pc.any(pc.match_substring_regex(text, pattern=_CONTROL), skip_nulls=True).as_py() is True:
            made = [None if value is None else json.dumps(value, ensure_ascii=False) for value in text.to_pylist()]
            return pa.array(made, pa.string())
        text = pc.replace_substring(text, pattern="\\", replacement="\\\\")
        text = pc.replace_substring(text, pattern='"', replacement='\\"')
    return pc.binary_join_element_wise('"', text, '"', "")


def _text(value: Any, kind: Any) -> str:
    """A value inside of a nested one."""
    if value is None:
        return "null"
    if pa.types.is_struct(kind):
        members = (f"{_name(field.name)}:{_text(value[field.name], field.type)}" for field in kind)
        return "{" + ",".join(members) + "}"
    if pa.types.is_map(kind):
        return "{" + ",".join(f"{_name(_key(k))}:{_text(item, kind.item_type)}" for k, item in value) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_text(item, kind.value_type) for item in value) + "]"
    if isinstance(value, float):
        if not math.isfinite(value):
            return _name(_number(value))
        return as_text(pa.array([value], kind))[0].as_py()  # type: ignore[no-any-return]
    if isinstance(value, (bool, int)):
        return json.dumps(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    return _name(_key(value))


def _name(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _key(value: Any) -> str:
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case bytes():
            return base64.b64encode(value).decode()
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0")
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case float():
            return _number(value)
        case _:
            return str(value)


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return repr(value).replace("inf", "Infinity")
