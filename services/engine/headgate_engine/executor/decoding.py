"""Arrow batches as the values of Kafka records, of topics and of edges: decoded by `mapInArrow`, a batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from headgate_engine.executor.reading import conform, marked, schema_of
from headgate_engine.executor.required import ColumnPath, missing
from headgate_engine.executor.wire import EdgeError

BAD = "__headgate_bad"
NO_VALUE = "the record has no value"
NOT_ARROW = "the record is not an Arrow stream of the declared columns"


def decode_value(value: pa.Scalar, schema: pa.Schema, required: Sequence[ColumnPath]) -> list[pa.RecordBatch] | str:
    """The rows of one record, or why it cannot be read. It is good or bad as a whole."""
    if not value.is_valid:
        return NO_VALUE
    try:
        batches = list(pa.ipc.open_stream(value.as_buffer()))
        rows = [
            pa.RecordBatch.from_arrays(conform(batch, schema), schema=schema) for batch in batches if batch.num_rows
        ]
    except (pa.ArrowException, ValueError) as error:
        return f"{NOT_ARROW}: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
    for batch in rows if required else ():
        reason = missing(batch, required)
        if reason:
            return reason
    return rows


def decoding(
    arrow: str, required: Sequence[ColumnPath], fail: str = ""
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow` over value, partition and offset: rows, then BAD, which is NULL for a good row.

    `required` leads to what may not be NULL (`required.py`); `fail` is the name of the topic where a bad record is to
    be an error that says where it is."""

    def decode(values: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = schema_of(arrow)
        full = schema.append(pa.field(BAD, pa.string()))
        for batch in values:
            bad: list[str] = []
            for index, value in enumerate(batch.column(0)):
                decoded = decode_value(value, schema, required)
                if isinstance(decoded, str):
                    if fail:
                        place = f"partition {batch.column(1)[index]}, offset {batch.column(2)[index]} of {fail}"
                        raise EdgeError("BAD_RECORD", f"{place}: {decoded}")
                    bad.append(decoded)
                    continue
                for part in decoded:
                    columns = [*part.columns, pa.nulls(part.num_rows, pa.string())]
                    yield pa.RecordBatch.from_arrays(columns, schema=full)
            if bad:
                columns = [*(pa.nulls(len(bad), field.type) for field in schema), pa.array(bad, pa.string())]
                yield pa.RecordBatch.from_arrays(columns, schema=full)

    return decode


def edge_decoding(arrow: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow` over keys and values of an edge: rows, then MARK, which is NULL. Records with a key are none."""

    def decode(records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = schema_of(arrow)
        full = marked(schema)
        for batch in records:
            for key, value in zip(batch.column(0), batch.column(1), strict=True):
                if key.is_valid:
                    continue
                for part in pa.ipc.open_stream(value.as_buffer()):
                    if part.num_rows:
                        columns = [*conform(part, schema), pa.nulls(part.num_rows, pa.int64())]
                        yield pa.RecordBatch.from_arrays(columns, schema=full)

    return decode


def judging(
    arrow: str, required: Sequence[ColumnPath], value: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow` over records whose value is column `value`: the bad ones, with BAD behind."""

    def judge(records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = schema_of(arrow)
        for batch in records:
            reasons = [decode_value(one, schema, required) for one in batch.column(value)]
            found = [(index, reason) for index, reason in enumerate(reasons) if isinstance(reason, str)]
            taken = batch.take(pa.array([index for index, _ in found], pa.int64()))
            column = pa.array([reason for _, reason in found], pa.string())
            yield pa.RecordBatch.from_arrays([*taken.columns, column], names=[*batch.schema.names, BAD])

    return judge
