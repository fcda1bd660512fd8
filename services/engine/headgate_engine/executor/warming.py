"""A stream of one row, for warm-up: the first query finds loaded and compiled what every stream goes through."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from headgate_engine.executor.reading import MARK

_SCHEMA = pa.schema([("id", pa.int64()), ("time", pa.timestamp("us", tz="UTC")), (MARK, pa.int64())])


class WarmUpSource(DataSource):
    """`spark.readStream.format("headgate_warm_up")`."""

    @classmethod
    def name(cls) -> str:
        return "headgate_warm_up"

    def schema(self) -> str:
        return f"id bigint, time timestamp, `{MARK}` bigint"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802
        return OneRow()


class OneRow(DataSourceStreamReader):
    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"0": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        return {"0": 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["0"], end["0"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict({"id": [1], "time": [0], MARK: [None]}, schema=_SCHEMA)
