"""Rows as records of a topic, for the sinks that deliver to one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headgate_agent.errors import PLAN_UNSUPPORTED
from headgate_agent.fragments.formats.json_encode import JsonEncoder
from headgate_agent.fragments.formats.text_values import as_text
from headgate_agent.fragments.local_edges import write_record
from headgate_common.errors import HeadgateError


@dataclass(frozen=True, slots=True)
class RowRecords:
    """Records in order, as columns: one object for each would cost more than making them. Without `keys` none has one;
    without `rows` each holds one row."""

    values: Sequence[bytes]
    keys: Sequence[bytes | None] | None = None
    rows: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.values)


class RecordEncoder:
    """JSON: one record a row, with the text of the key column as its key, where there is one. ARROW: one record a
    batch, an Arrow IPC stream; a batch that is too large for a record is cut into several."""

    def __init__(self, kind: str, key_column: str, update_keys: Sequence[str]) -> None:
        """Without `key_column` the columns that say which row is replaced are the key: the text of one, or a JSON
        object of several."""
        self._arrow = kind == "ARROW"
        self._keys = (key_column,) if key_column else tuple(update_keys)
        if self._arrow and self._keys:
            raise HeadgateError(PLAN_UNSUPPORTED, "an ARROW record holds many rows and has no key of a row: use JSON")
        self._json = JsonEncoder()

    def encode(self, batch: pa.RecordBatch, largest: int) -> RowRecords:
        """`largest` is what the value of an ARROW record may have in bytes, where it holds more than one row."""
        if not batch.num_rows:
            return RowRecords(())
        if self._arrow:
            found = streams(batch, largest)
            return RowRecords([value for value, _ in found], rows=[rows for _, rows in found])
        # Line breaks inside of values are escaped.
        values = self._json.encode(batch).split(b"\n")[:-1]
        return RowRecords(values, self._key_texts(batch) if self._keys else None)

    def _key_texts(self, batch: pa.RecordBatch) -> Sequence[bytes | None]:
        chosen = [_column(batch, name) for name in self._keys]
        if len(chosen) > 1:
            keys = pa.RecordBatch.from_arrays(
                [batch.column(index) for index in chosen], names=[batch.schema.names[index] for index in chosen]
            )
            return self._json.encode(keys).split(b"\n")[:-1]
        array = batch.column(chosen[0])
        kind = array.type
        if pa.types.is_nested(kind):
            lines = self._json.encode(pa.RecordBatch.from_arrays([array], names=["k"])).split(b"\n")[:-1]
            valid = array.is_valid().to_pylist()
            # Without the name and the braces around it.
            return [line[5:-1] if there else None for line, there in zip(lines, valid, strict=True)]
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            found: list[bytes | None] = array.to_pylist()
            return found
        return [None if text is None else text.encode() for text in as_text(array).to_pylist()]


def streams(batch: pa.RecordBatch, largest: int) -> list[tuple[bytes, int]]:
    """Arrow IPC streams of at most `largest` bytes, unless one row alone has more, and how many rows each has."""
    value = write_record(batch)
    if len(value) <= largest or batch.num_rows == 1:
        return [(value, batch.num_rows)]
    half = batch.num_rows // 2
    return streams(batch.slice(0, half), largest) + streams(batch.slice(half), largest)


def _column(batch: pa.RecordBatch, name: str) -> int:
    for index, known in enumerate(batch.schema.names):
        if known.lower() == name.lower():
            return index
    raise HeadgateError(PLAN_UNSUPPORTED, f"the key column {name!r} is none of the sink's columns")
