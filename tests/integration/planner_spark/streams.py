"""Runs plans in a real Spark session: inputs as streams of the declared schemas, watermarks as the plan says.

This is what an engine does with a compute fragment, as far as Spark's own checks are concerned: analysis of the SQL,
the test for operations that streams do not support, and the planning of a batch.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import count, lit
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.types import columns_of, spark_type

Rows = Sequence[Mapping[str, Any]]
# Longest time that a query over a few rows may take here.
PATIENCE_S = 120


def schema_ddl(schema: catalog.Schema) -> str:
    """A schema as Spark's DDL."""
    parts = []
    for column in columns_of(schema):
        name = column.name.replace("`", "``")
        parts.append(f"`{name}` {spark_type(column.type)}")
    return ", ".join(parts)


def simple_types(schema: catalog.Schema) -> list[tuple[str, str]]:
    """Names and types of a schema as Spark shows them. Spark's own are nullable throughout."""
    found = []
    for column in columns_of(schema):
        declared = StructType.fromDDL(f"x {spark_type(column.type)}")[0].dataType
        found.append((column.name, declared.simpleString()))
    return found


class Streams:
    """Streams for the inputs of plans. Files with the same schema and rows are written once."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._empty: dict[str, Path] = {}
        self._count = 0

    def struct(self, ddl: str) -> StructType:
        return StructType.fromDDL(ddl)

    def _new_folder(self) -> Path:
        self._count += 1
        folder = self.folder / f"stream{self._count}"
        folder.mkdir(parents=True)
        return folder

    def empty(self, ddl: str) -> Path:
        """A folder with one file without rows: it makes a batch, which plans and runs everything."""
        if ddl not in self._empty:
            self._empty[ddl] = self._new_folder()
            self._write(self._empty[ddl] / "1.parquet", ddl, [])
        return self._empty[ddl]

    def of(self, ddl: str, batches: Iterable[Rows]) -> Path:
        """A folder with one file for each batch of rows."""
        folder = self._new_folder()
        for number, rows in enumerate(batches, start=1):
            path = folder / f"{number}.parquet"
            self._write(path, ddl, rows)
            # The file source goes by the time of the file.
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        return folder

    def arrow_schema(self, ddl: str) -> pa.Schema:
        return to_arrow_schema(self.struct(ddl), timezone="UTC")

    def _write(self, path: Path, ddl: str, rows: Rows) -> None:
        pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=self.arrow_schema(ddl)), path)

    def register(
        self,
        entry: catalog.ComputeInput,
        folder: Path,
        until: str = "",
        filter_: str = "",
        columns: Sequence[str] = (),
    ) -> None:
        """Makes the view of an input: rows of the folder, with the watermark that the plan gives it.

        `until` removes rows at or after that time again, once they have moved the watermark. `filter_` and `columns`
        are what a source fragment does before.
        """
        stream: DataFrame = (
            self.spark.readStream.schema(schema_ddl(entry.schema)).option("maxFilesPerTrigger", 1).parquet(str(folder))
        )
        if filter_:
            ending = f" OR `{entry.event_time}` >= TIMESTAMP'{until}'" if until and entry.event_time else ""
            stream = stream.where(f"({filter_}){ending}")
        if columns:
            stream = stream.select(*(f"`{name}`" for name in columns))
        if entry.event_time_expression:
            stream = stream.selectExpr("*", f"{entry.event_time_expression} AS `{entry.event_time}`")
        if entry.event_time:
            stream = stream.withWatermark(entry.event_time, f"{entry.lateness_us} microseconds")
            # Spark moves filters below the watermark, its own on keys that are not NULL included: rows that they remove
            # would not move it. Nothing moves below an observation.
            stream = stream.observe(f"{entry.view}_{self._count}", count(lit(1)).alias("rows"))
            if until:
                stream = stream.where(f"`{entry.event_time}` < TIMESTAMP'{until}'")
        stream.createOrReplaceTempView(entry.view)

    def check_supported(self, frame: DataFrame, mode: str) -> None:
        """Spark's own test for what a stream cannot do."""
        jvm = self.spark._jvm
        assert jvm is not None
        output = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode.capitalize())()
        checker = getattr(jvm, "org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker")
        checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), output)

    def run(self, frame: DataFrame, mode: str, sink: str = "noop") -> str:
        """Runs everything that is there, to the end; answers the name of the table that a memory sink made."""
        checkpoint = tempfile.mkdtemp(dir=self.folder)
        self._count += 1
        name = f"results{self._count}"
        query = (
            frame.writeStream.format(sink)
            .queryName(name)
            .outputMode(mode)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(PATIENCE_S), "the query did not end"
        finally:
            query.stop()
            shutil.rmtree(checkpoint, ignore_errors=True)
        return name


def compute_of(plan: catalog.QueryPlan) -> catalog.ComputeFragment:
    (compute,) = (part.compute for part in plan.fragments if part.kind == catalog.FRAGMENT_KIND_COMPUTE)
    return compute
