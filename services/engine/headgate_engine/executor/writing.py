"""What the tasks of `mapInArrow` do with a batch: stage it, or make records of an edge on Kafka of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from headgate_engine.executor.calls import STAGE_BYTES, Access, EdgeClient

STAGED_SCHEMA = "task int, sequence int, stage_id string, records bigint, rows bigint, bytes bigint"


def to_record(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def stage_function(access: Access, task: Callable[[], int]) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: stages all rows of a task and answers what it staged, in order, as STAGED_SCHEMA.

    `task` says which task of the job this is; its rows go to one partition of the edge.
    """

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        number = task()
        client = EdgeClient(access)
        staged: list[tuple[int, int, str, int, int, int]] = []
        records: list[bytes] = []
        rows = size = 0

        def flush() -> None:
            stage_id = client.stage(access.topic_uid, number % access.partitions, records)
            staged.append((number, len(staged), stage_id, len(records), rows, size))

        for batch in batches:
            for piece in pieces(batch):
                record = to_record(piece)
                records.append(record)
                rows += piece.num_rows
                size += len(record)
                if size >= STAGE_BYTES:
                    flush()
                    records, rows, size = [], 0, 0
        if records:
            flush()
        names = ["task", "sequence", "stage_id", "records", "rows", "bytes"]
        types = [pa.int32(), pa.int32(), pa.string(), pa.int64(), pa.int64(), pa.int64()]
        columns = [pa.array([one[at] for one in staged], kind) for at, kind in enumerate(types)]
        yield pa.RecordBatch.from_arrays(columns, names=names)

    return stage


def edge_values(largest: int) -> Callable[[Any], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`: rows as the values of records of at most `largest` bytes, unless one row alone has more."""

    def encode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for value in _values(batch, largest):
                yield pa.RecordBatch.from_arrays([pa.array([value], pa.binary())], names=["value"])

    return encode


def _values(batch: pa.RecordBatch, largest: int) -> Iterator[bytes]:
    if not batch.num_rows:
        return
    value = to_record(batch)
    if len(value) <= largest or batch.num_rows == 1:
        yield value
        return
    half = batch.num_rows // 2
    yield from _values(batch.slice(0, half), largest)
    yield from _values(batch.slice(half), largest)


def pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Parts that fit a message."""
    if batch.num_rows == 0:
        return
    parts = min(batch.num_rows, batch.nbytes // STAGE_BYTES + 1)
    step = -(-batch.num_rows // parts)
    for first in range(0, batch.num_rows, step):
        yield batch.slice(first, step)


def task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.partitionId() if context is not None else 0
