"""Values as text, column by column: what CSV and JSON share. A text reads back as the same value of its type."""

from __future__ import annotations

import base64
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def as_text(array: pa.Array) -> pa.Array:
    """The values of a column that is not nested, as text; NULL stays NULL.

    Timestamps are ISO 8601 in UTC, dates likewise, BINARY is base64, and numbers have all of their digits.
    """
    kind = array.type
    if pa.types.is_string(kind):
        return array
    if pa.types.is_large_string(kind):
        return array.cast(pa.string())
    if pa.types.is_timestamp(kind):
        utc = array.cast(pa.timestamp("us", "UTC"))
        return pc.replace_substring(utc.cast(pa.string()), pattern=" ", replacement="T")
    if pa.types.is_floating(kind):
        return _floats(array)
    if pa.types.is_decimal(kind):
        # Arrow's own text of small ones has an exponent.
        return pa.array([None if value is None else format(value, "f") for value in array.to_pylist()], pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return pa.array(
            [None if value is None else base64.b64encode(value) for value in array.to_pylist()], pa.string()
        )
    return array.cast(pa.string())


def _floats(array: pa.Array) -> pa.Array:
    text = array.cast(pa.string())
    if pc.all(pc.is_finite(array), skip_nulls=True).as_py() is not False:
        return text
    text = pc.if_else(pc.is_nan(array), "NaN", text)
    infinite = pc.if_else(pc.greater(array, pa.scalar(0.0, array.type)), "Infinity", "-Infinity")
    return pc.if_else(pc.is_inf(array), infinite, text)


def joined_lines(rows: Any) -> bytes:
    """Rows of text as bytes, a newline after each."""
    if not len(rows):
        return b""
    whole = pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)
    text: bytes = pc.binary_join(whole, "\n")[0].as_buffer().to_pybytes()
    return text + b"\n"
