"""Hand-written PySpark: the peer of the benchmarks of queries. A process of its own, told what to run line by line.

Run as `python benchmarks/bare_spark.py MASTER SHUFFLE_PARTITIONS`. It writes `{"ready": ...}` once Spark is there, then
answers every line of its input, a JSON object with `start` (a job, see `Job`) or `stop` (the name of one), with one
line. It ends with its standard input.

The settings that decide about speed are those of an engine: master, shuffle partitions, memory, state store, and the
quicker one of Spark's two ways to write the files of a checkpoint, which is not the one that it chooses by itself.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from typing import Any

_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True, slots=True)
class Job:
    """Topic to topic, both JSON. `sql` reads the view `events`."""

    name: str
    sql: str
    columns: str
    bootstrap: str
    source: str
    sink: str
    checkpoint: str
    # A column and how late its rows may be, where the query has windows.
    event_time: str = ""
    lateness: str = "0 seconds"
    realtime: bool = False
    output_mode: str = "append"
    # A column of the result that is the key of its records.
    key: str = ""
    # Records of a micro-batch at most.
    records: int = 500_000


def session(master: str, shuffle: str, jars: list[str], folder: str) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.master": master,
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.jars": ",".join(jars),
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.shuffle.partitions": shuffle,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": _FILES,
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    builder = SparkSession.builder.appName("bare")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def start(spark: Any, job: Job) -> Any:
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.source)
        .option("startingOffsets", "earliest")
    )
    if not job.realtime:
        reader = reader.option("maxOffsetsPerTrigger", str(job.records))
    rows = reader.load().selectExpr(f"from_json(CAST(value AS STRING), '{job.columns}') AS d").select("d.*")
    if job.event_time:
        rows = rows.withWatermark(job.event_time, job.lateness)
    rows.createOrReplaceTempView("events")
    writer = (
        spark.sql(job.sql)
        .selectExpr(*([f"CAST({job.key} AS STRING) AS key"] if job.key else []), "to_json(struct(*)) AS value")
        .writeStream.format("kafka")
        .queryName(job.name)
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("topic", job.sink)
        .option("checkpointLocation", job.checkpoint)
    )
    if job.realtime:
        return writer.outputMode("update").trigger(realTime="1 minute").start()
    return writer.outputMode(job.output_mode).trigger(processingTime="0 seconds").start()


def serve(master: str, shuffle: str) -> None:
    from headgate_engine.jars import kafka_jars

    with tempfile.TemporaryDirectory(prefix="headgate-bare-", ignore_cleanup_errors=True) as folder:
        spark = session(master, shuffle, [str(path) for path in kafka_jars()], folder)
        running: dict[str, Any] = {}
        answer({"ready": spark.version})
        for line in sys.stdin:
            told = json.loads(line)
            try:
                if "start" in told:
                    job = Job(**told["start"])
                    running[job.name] = start(spark.newSession(), job)
                else:
                    running.pop(told["stop"]).stop()
                answer({"ok": True})
            except Exception as error:  # The other side ends the benchmark with it.
                answer({"error": str(error).split("\n\nJVM stacktrace", 1)[0]})


def answer(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
