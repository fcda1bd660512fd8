"""Edges as Spark data sources.

Rows that come out of here carry one more column, `MARK`: NULL for rows, and for a mark an event time in microseconds. A
mark has no other values; it moves the watermark of its input and is filtered out behind it. The end of an edge is a
mark at `FAR_FUTURE_US`.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes

from headgate_engine.executor.calls import Access, EdgeClient, told_by
from headgate_engine.executor.wire import EdgeError

MARK = "__headgate_mark"
# 9999-12-31T00:00:00Z: later than any window that a row may be in, and still a date that Python can print.
FAR_FUTURE_US = 253_402_214_400_000_000
_READ_ROWS = 8_192
# A part of a range that is worth a task of its own.
_SPLIT_BYTES = 2**20
# A source whose last look was so short ago is looked at for lack of anything else to do.
_IDLE_SECONDS = 0.05
_FIRST_NAP_SECONDS = 0.005


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    """The columns of `schema` out of a batch, found by name and cast where an agent wrote a narrower type."""
    found = {name.lower(): index for index, name in enumerate(batch.schema.names)}
    columns = []
    for field in schema:
        index = found.get(field.name.lower())
        if index is None:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(index)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return columns


def marked(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field(MARK, pa.int64()))


def mark_batch(schema: pa.Schema, time_us: int) -> pa.RecordBatch:
    columns = [pa.nulls(1, field.type) for field in schema]
    return pa.RecordBatch.from_arrays([*columns, pa.array([time_us], pa.int64())], schema=marked(schema))


def read_batches(
    client: EdgeClient, schema: pa.Schema, part: tuple[int, int, int], *, marks: bool
) -> Iterator[pa.RecordBatch]:
    """The rows of a range as Arrow. Small records are put together: each batch costs Spark the same."""
    full = marked(schema)
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for record, ended in client.read(*part):
        if ended:
            if marks:
                waiting.append(mark_batch(schema, FAR_FUTURE_US))
            continue
        for batch in pa.ipc.open_stream(pa.py_buffer(record)):
            if batch.num_rows:
                columns = [*conform(batch, schema), pa.nulls(batch.num_rows, pa.int64())]
                waiting.append(pa.RecordBatch.from_arrays(columns, schema=full))
                rows += batch.num_rows
        if rows >= _READ_ROWS:
            yield from together(waiting)
            waiting, rows = [], 0
    if waiting:
        yield from together(waiting)


def together(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) == 1:
        yield batches[0]
    else:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


def split(first: int, until: int, parts: int) -> list[tuple[int, int]]:
    """A range as at most so many ranges of about the same length; one at least unless it is empty."""
    if first >= until:
        return []
    step = -(-(until - first) // max(1, parts))
    return [(at, min(at + step, until)) for at in range(first, until, step)]


def schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


class Naps:
    """Pauses of a stream that has nothing to read: Spark asks again at once, which would keep a core busy."""

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._nap = _FIRST_NAP_SECONDS
        self._looked = 0.0

    def looked(self, *, news: bool) -> None:
        """To be called at the end of every look; pauses where there was nothing again."""
        if news:
            self._nap = _FIRST_NAP_SECONDS
        elif time.monotonic() - self._looked < _IDLE_SECONDS:
            time.sleep(self._nap)
            self._nap = min(self._nap * 2, self._longest)
        self._looked = time.monotonic()


class EdgeSource(DataSource):
    """`spark.readStream.format("headgate_edge")`, and the same for a range with `spark.read`.

    Options: `access_secret` (an Access as JSON; Spark hides options of such names), `arrow` (the Arrow schema, without
    MARK), `columns` (the same as Spark's DDL, with MARK), `batch_bytes`, `marks` (a file in which the driver leaves the
    event time up to which an idle input is to be taken for read; empty where there is no event time and so no use for
    marks), `nap` (longest pause of an idle source, in seconds), `tasks` (how many read a range at most), `stop` (a file
    that the driver makes when the run is to end at once); for a range `from` and `until`, by partition, as JSON.
    """

    @classmethod
    def name(cls) -> str:
        return "headgate_edge"

    def schema(self) -> str:
        return str(self.options["columns"])

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return EdgeStreamReader(self.options)

    def reader(self, schema: Any) -> DataSourceReader:
        return EdgeRangeReader(self.options)


class EdgeRangeReader(DataSourceReader):
    """A bounded range of an edge."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._access = Access(**json.loads(options["access_secret"]))
        self._arrow = options["arrow"]
        self._from = json.loads(options["from"])
        self._until = json.loads(options["until"])

    def partitions(self) -> Sequence[InputPartition]:
        ranges = enumerate(zip(self._from, self._until, strict=True))
        return [InputPartition((index, start, until)) for index, (start, until) in ranges if start < until]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark reads one partition without a value where there is none.
        if partition.value is not None:
            yield from read_batches(EdgeClient(self._access), schema_of(self._arrow), partition.value, marks=False)


class EdgeStreamReader(DataSourceStreamReader):
    """An edge as a stream. An offset has the next record of each partition, and the latest mark under "mark".

    The end of an edge is read in one batch for all partitions, after everything else: a mark that came with the end of
    one partition would make rows of the others late.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._access = Access(**json.loads(options["access_secret"]))
        self._arrow = options["arrow"]
        self._batch_bytes = int(options["batch_bytes"])
        self._marks = options.get("marks", "")
        self._naps = Naps(float(options.get("nap", "0.2")))
        self._tasks = int(options.get("tasks", "1"))
        self._given_up = told_by(options.get("stop", ""))
        self._ends: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        # Nothing was looked at yet by this run.
        self._first = True
        # Bytes of a record, on average, by partition; as of the last look.
        self._sizes: dict[int, int] = {}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {**{str(index): 0 for index in range(self._access.partitions)}, "mark": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._batch_bytes)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        latest = self._latest(start, getattr(limit, "max_bytes", None))
        if latest == start and any(start[index] > log_start for index, log_start in self._starts.items()):
            # Spark lets go of a batch when it begins the next one. A source that waits for room would never bring it,
            # and whoever is asked for what follows has committed all before.
            self.commit(start)
        self._naps.looked(news=latest != start)
        return latest

    def _latest(self, start: dict[str, int], budget: int | None) -> dict[str, int]:
        found = EdgeClient(self._access, given_up=self._given_up).get()
        if len(found) != self._access.partitions:
            raise EdgeError(
                "DATA_LOSS", f"the edge has {len(found)} partitions, and the query began with {self._access.partitions}"
            )
        self._ends = {str(index): one.data_end for index, one in enumerate(found)}
        self._starts = {str(index): one.log_start for index, one in enumerate(found) if not one.ended}
        latest = {}
        for index, one in enumerate(found):
            at = start[str(index)]
            if at < one.log_start:
                raise EdgeError("DATA_LOSS", f"partition {index} begins at {one.log_start}; the query is at {at}")
            until = max(at, one.data_end)
            size = self._sizes[index] = max(1, one.bytes // max(1, one.high_watermark - one.log_start))
            if budget is not None and until > at:
                until = min(until, at + max(1, budget // size))
            latest[str(index)] = until
        if all(one.ended and latest[str(index)] >= one.data_end for index, one in enumerate(found)):
            latest = {str(index): one.high_watermark for index, one in enumerate(found)}
        consumed = all(one.ended and start[str(index)] >= one.high_watermark for index, one in enumerate(found))
        return {**latest, "mark": max(start["mark"], self._mark(), self._old_end(consumed))}

    def _old_end(self, consumed: bool) -> int:
        """A mark for an edge whose end was read by an earlier run, of which Spark's watermarks know nothing: without it
        the input would hold back the others for ever. Each run needs one of its own, later than those before."""
        first, self._first = self._first, False
        return FAR_FUTURE_US + self._access.epoch if first and consumed and self._marks else 0

    def _mark(self) -> int:
        if not self._marks:
            return 0
        try:
            return int(Path(self._marks).read_text() or 0)
        except OSError:
            return 0

    def reportLatestOffset(self) -> dict[str, int] | None:  # noqa: N802
        """What is there to be read, as of the last look: Spark reports it, and the lag is worked out of it."""
        return self._ends or None

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        parts: list[InputPartition] = []
        for index in range(self._access.partitions):
            first, until = start[str(index)], end[str(index)]
            size = (until - first) * self._sizes.get(index, 0)
            wanted = min(self._tasks // self._access.partitions, size // _SPLIT_BYTES)
            parts += [InputPartition((index, *part)) for part in split(first, until, wanted)]
        if end["mark"] > start["mark"]:
            parts.append(InputPartition((-1, end["mark"], end["mark"])))
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = schema_of(self._arrow)
        if partition.value[0] < 0:
            yield mark_batch(schema, partition.value[1])
            return
        # Every partition has an end, and one mark is enough for all of them.
        marks = bool(self._marks) and partition.value[0] == 0
        yield from read_batches(EdgeClient(self._access), schema, partition.value, marks=marks)

    def commit(self, end: dict[str, int]) -> None:
        EdgeClient(self._access, given_up=self._given_up).trim(
            [end[str(index)] for index in range(self._access.partitions)]
        )
