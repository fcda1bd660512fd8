"""Native topics as Spark data sources, read from the agents that lead them.

Records come out as Arrow: `value`, `partition` and `offset`, which Spark decodes, or, where each record is an Arrow
stream, as the rows in them and BAD, which says why a record is none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxBytes, SupportsTriggerAvailableNow

from headgate_engine.executor.batches import headers, records_of
from headgate_engine.executor.calls import told_by
from headgate_engine.executor.decoding import decoding
from headgate_engine.executor.log_calls import LogClient, TopicAccess
from headgate_engine.executor.reading import Naps, split, together
from headgate_engine.executor.required import ColumnPath, paths_of
from headgate_engine.executor.wire import EdgeError

RECORDS = pa.schema([("value", pa.binary()), ("partition", pa.int32()), ("offset", pa.int64())])
_BATCH_ROWS = 8_192
_BATCH_BYTES = 8 * 2**20
# A part of a range that is worth a task of its own.
_SPLIT_BYTES = 2**20
_SAMPLE_BYTES = 64 * 2**10
# Records change their size slowly.
_SAMPLE_SECONDS = 10.0


def read_records(client: LogClient, part: tuple[int, int, int]) -> Iterator[pa.RecordBatch]:
    """The records of a range. Small batches are put together: each costs Spark the same."""
    partition, start, until = part
    values: list[Any] = []
    offsets: list[int] = []
    size = 0

    def made() -> pa.RecordBatch:
        columns = [
            pa.array(values, pa.binary()),
            pa.repeat(pa.scalar(partition, pa.int32()), len(values)),
            pa.array(offsets, pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RECORDS)

    for data in client.batches(partition, start, until):
        for header in headers(data):
            found, places = records_of(data, header, start, until)
            values += found
            offsets += places
            size += header.end - header.begin
            if len(values) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield made()
                values, offsets, size = [], [], 0
    if values:
        yield made()


def read_rows(
    records: Iterator[pa.RecordBatch], arrow: str, required: Sequence[ColumnPath], fail: str
) -> Iterator[pa.RecordBatch]:
    """The rows of records that are Arrow streams, with BAD."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in decoding(arrow, required, fail)(records):
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _BATCH_ROWS:
            yield from together(waiting)
            waiting, rows = [], 0
    if waiting:
        yield from together(waiting)


class TopicSource(DataSource):
    """`spark.readStream.format("headgate_topic")`, and the same for a range with `spark.read`.

    Options: `access_secret` (a TopicAccess as JSON; Spark hides options of such names), `columns` (as Spark's DDL),
    `arrow` (the Arrow schema of the rows in each record; empty for records as they are), `required` (what of these rows
    may not be NULL, as paths), `fail` (the name of the topic where a bad Arrow record is an error, else empty), `first`
    (offsets at which the query begins, as JSON), `batch_bytes`, `nap`, `tasks` and `stop` as for edges; for a range
    `from` and `until`, offsets as JSON.
    """

    @classmethod
    def name(cls) -> str:
        return "headgate_topic"

    def schema(self) -> str:
        return str(self.options["columns"])

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return TopicStreamReader(self.options)

    def reader(self, schema: Any) -> DataSourceReader:
        return TopicRangeReader(self.options)


class _Reading:
    """What a range and a stream have in common."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._access = TopicAccess.of_json(options["access_secret"])
        self._arrow = options.get("arrow", "")
        self._required = paths_of(options.get("required", ""))
        self._fail = options.get("fail", "")

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark reads one partition without a value where there is none.
        if partition.value is None:
            return
        records = read_records(LogClient(self._access), partition.value)
        yield from read_rows(records, self._arrow, self._required, self._fail) if self._arrow else records


class TopicRangeReader(_Reading, DataSourceReader):
    """A bounded range of a topic."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._from = json.loads(options["from"])
        self._until = json.loads(options["until"])

    def partitions(self) -> Sequence[InputPartition]:
        ranges = [(int(index), self._from.get(index, 0), until) for index, until in self._until.items()]
        return [InputPartition(one) for one in sorted(ranges) if one[1] < one[2]]


class TopicStreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A topic as a stream. An offset has the uid of the topic, and the next record of each partition."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._first = json.loads(options["first"])
        self._batch_bytes = int(options["batch_bytes"])
        self._tasks = int(options.get("tasks", "1"))
        self._client = LogClient(self._access, told_by(options.get("stop", "")))
        self._naps = Naps(float(options.get("nap", "0.2")))
        self._ends: dict[str, int] = {}
        self._target: dict[str, int] | None = None
        # (when it was found out, bytes of a record) by partition.
        self._sizes: dict[str, tuple[float, int]] = {}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"topic": self._access.topic_uid, "offsets": self._first}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._batch_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = {str(one.partition): one.high_watermark for one in self._client.offsets()}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        if start["topic"] != self._access.topic_uid:
            raise EdgeError(
                "DATA_LOSS", f"topic {self._access.topic} was created again: positions are those of {start['topic']}"
            )
        latest = {"topic": start["topic"], "offsets": self._latest(start["offsets"], getattr(limit, "max_bytes", None))}
        self._naps.looked(news=latest != start)
        return latest

    def _latest(self, start: Mapping[str, int], budget: int | None) -> dict[str, int]:
        latest = dict(start)
        for one in self._client.offsets():
            index = str(one.partition)
            # A partition that was added is read from its beginning.
            at = latest.get(index, 0)
            if at < one.log_start:
                raise EdgeError(
                    "DATA_LOSS",
                    f"partition {index} of topic {self._access.topic} begins at {one.log_start}; the query is at {at}",
                )
            self._ends[index] = one.high_watermark
            until = one.high_watermark if self._target is None else self._target.get(index, at)
            if budget is not None and until > at:
                until = min(until, at + max(1, budget // self._size(one.partition, at)))
            latest[index] = max(at, until)
        return latest

    def _size(self, partition: int, at: int) -> int:
        """About how many bytes a record takes, found out by looking at some."""
        index = str(partition)
        known = self._sizes.get(index)
        if known is None or time.monotonic() - known[0] > _SAMPLE_SECONDS:
            found = list(headers(self._client.sample(partition, at, _SAMPLE_BYTES)))
            size = sum(one.end - one.begin for one in found) // max(1, sum(one.count for one in found))
            known = self._sizes[index] = (time.monotonic(), max(1, size))
        return known[1]

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """What is there to be read, as of the last look: the lag is worked out of it."""
        return {"offsets": self._ends} if self._ends else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, ends = start["offsets"], end["offsets"]
        tasks = self._tasks // max(1, len(ends))
        parts: list[InputPartition] = []
        for index, until in sorted(ends.items(), key=lambda pair: int(pair[0])):
            first = begin.get(index, 0)
            size = (until - first) * self._sizes.get(index, (0.0, 0))[1]
            parts += [
                InputPartition((int(index), *part)) for part in split(first, until, min(tasks, size // _SPLIT_BYTES))
            ]
        return parts

    def commit(self, end: dict[str, Any]) -> None:
        """A topic keeps its records by its own rules."""
