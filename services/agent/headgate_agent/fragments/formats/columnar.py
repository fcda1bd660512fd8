"""Rows from Parquet and Arrow files: columns by name, types as declared or refused.

Such a file is read from its beginning to its end, batch by batch; its position is the number of rows that were taken,
and reading on skips that many. Values are cast only where nothing can be lost. There is no malformed row here: what
does not fit the columns is wrong for the whole file, and SOURCE_MISMATCH.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from headgate_agent.errors import SOURCE_MISMATCH
from headgate_agent.fragments.formats.rows import broken_rule, one_array
from headgate_agent.fragments.types import Column, arrow_schema
from headgate_common.errors import HeadgateError

_ARROW_FILE = b"ARROW1"

# A file, its columns, how many rows to skip, and how many rows a batch may have.
ReadBatches = Callable[[BinaryIO, Sequence[Column], int, int], Iterator[pa.RecordBatch]]


def _told(read: ReadBatches) -> ReadBatches:
    """Whatever a damaged file makes the reader raise, as one error."""

    def batches(file: BinaryIO, columns: Sequence[Column], skip: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
        try:
            yield from read(file, columns, skip, batch_rows)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise HeadgateError(SOURCE_MISMATCH, f"the file cannot be read: {str(error)[:200]}") from error

    return batches


@_told
def parquet_batches(file: BinaryIO, columns: Sequence[Column], skip: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of a Parquet file after the first `skip`; row groups that lie before are not read."""
    parquet = pq.ParquetFile(pa.PythonFile(file, mode="r"))
    names = _names(parquet.schema_arrow, columns)
    groups: list[int] = []
    left = skip
    for group in range(parquet.num_row_groups):
        rows = parquet.metadata.row_group(group).num_rows
        if not groups and left >= rows:
            left -= rows
            continue
        groups.append(group)
    if groups:
        found = parquet.iter_batches(batch_size=batch_rows, row_groups=groups, columns=sorted(set(names.values())))
        yield from _fitted(found, columns, names, left)


@_told
def arrow_batches(file: BinaryIO, columns: Sequence[Column], skip: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """The rows of an Arrow IPC file or stream after the first `skip`."""
    file.seek(0)
    is_file = file.read(len(_ARROW_FILE)) == _ARROW_FILE
    file.seek(0)
    source = pa.PythonFile(file, mode="r")
    reader: Any = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
    names = _names(reader.schema, columns)
    batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else iter(reader)
    yield from _fitted(_sliced(batches, batch_rows), columns, names, skip)


def _sliced(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _names(schema: Any, columns: Sequence[Column]) -> dict[str, str]:
    """The file's name of each column that it has."""
    folded: dict[str, str] = {}
    for name in schema.names:
        folded.setdefault(name.lower(), name)
    exact = set(schema.names)
    found = {}
    for column in columns:
        name = column.name if column.name in exact else folded.get(column.name.lower())
        if name is not None:
            found[column.name] = name
        elif column.not_null:
            raise HeadgateError(SOURCE_MISMATCH, f"the file has no column {column.name}, which is NOT NULL")
    if not found:
        raise HeadgateError(SOURCE_MISMATCH, f"the file has none of the source's columns; it has {schema.names[:20]}")
    return found


def _fitted(
    batches: Iterator[pa.RecordBatch], columns: Sequence[Column], names: dict[str, str], skip: int
) -> Iterator[pa.RecordBatch]:
    schema = arrow_schema(columns)
    for batch in batches:
        if skip >= batch.num_rows:
            skip -= batch.num_rows
            continue
        rest, skip = batch.slice(skip), 0
        arrays = [_array(rest, column, names.get(column.name)) for column in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(batch: pa.RecordBatch, column: Column, name: str | None) -> pa.Array:
    if name is None:
        return pa.nulls(batch.num_rows, column.arrow)
    array = one_array(batch.column(name))
    # A file may say anything: offsets that lead out of its buffers would bring the process down later.
    array.validate(full=True)
    if array.type != column.arrow:
        try:
            array = _without_dictionary(array).cast(column.arrow, safe=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise HeadgateError(
                SOURCE_MISMATCH, f"column {column.name}: {array.type} does not fit {column.arrow}: {str(error)[:200]}"
            ) from error
    fault = broken_rule(array, column)
    if fault:
        raise HeadgateError(SOURCE_MISMATCH, fault)
    return array


def _without_dictionary(array: pa.Array) -> pa.Array:
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
