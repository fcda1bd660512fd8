"""The Spark session of an engine: started in a thread, warmed up, shared by all runs.

py4j blocks its caller, so nothing here is called from the event loop. `SparkHost.session()` gives each run a session of
its own on the one SparkContext: own settings and views. Jobs of queries and those of batches share Spark fairly, in two
FAIR pools; within one they run in the order in which they came. A pool for each run would starve some of them: between
pools that run nothing at the moment Spark chooses by name.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module, resources
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headgate_common.errors import HeadgateError
from headgate_common.redact import is_secret_name
from headgate_engine.checkpoint_files import choose_files
from headgate_engine.class_archive import options
from headgate_engine.config import SparkConfig
from headgate_engine.errors import INVALID_SPARK_SETTING, KAFKA_JARS_MISSING, S3_JARS_MISSING, SPARK_UNAVAILABLE
from headgate_engine.executor.reading import MARK, EdgeSource
from headgate_engine.executor.topics import TopicSource
from headgate_engine.executor.warming import WarmUpSource
from headgate_engine.forking import Nursery
from headgate_engine.jars import driver_class_path, kafka_jars, s3_jars

# Loggers of pyspark and py4j that tell of every callback, and print a Java trace for every error of a query.
_TALKATIVE = ("py4j", "py4j.clientserver", "py4j.java_gateway", "SQLQueryContextLogger", "DataFrameQueryContextLogger")
# Settings that a caller may not change: they are of the process, or what the engine promises rests on them.
_OWN = ("spark.sql.streaming.stateStore.", "spark.sql.streaming.checkpoint", "spark.scheduler.", "spark.python.")
_WARM_UP_SECONDS = 120
QUERIES = "queries"
BATCHES = "batches"
_SESSION_ONLY = "spark.sql."
_HADOOP = "spark.hadoop."
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# All three of a pool, or Spark warns.
_POOLS = (
    '<?xml version="1.0"?><allocations><pool name="default"><schedulingMode>FAIR</schedulingMode>'
    "<minShare>0</minShare><weight>1</weight></pool></allocations>"
)


def java_problem(environment: Mapping[str, str]) -> str | None:
    """Why Spark cannot find Java, or None."""
    home = environment.get("JAVA_HOME")
    if home:
        return None if (Path(home) / "bin" / "java").is_file() else f"JAVA_HOME is {home}, which has no bin/java"
    if shutil.which("java") is None:
        return "there is no java on PATH and JAVA_HOME is not set: install a JDK, 17 or 21"
    return None


def executor_archive(folder: Path) -> Path:
    """The `executor` folder as a zip that Spark ships to its workers, under its own name and nothing else of ours."""
    path = folder / "headgate_executor.zip"
    source = resources.files("headgate_engine") / "executor"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("headgate_engine/__init__.py", "")
        for entry in source.iterdir():
            if entry.name.endswith(".py"):
                archive.writestr(f"headgate_engine/executor/{entry.name}", entry.read_text())
    return path


class SparkHost:
    """Owns the SparkContext. Made, started, used from many threads, and stopped once."""

    def __init__(self, config: SparkConfig) -> None:
        self._config = config
        self._folder = Path(tempfile.mkdtemp(prefix="headgate-engine-"))
        self._spark: SparkSession | None = None
        self._nursery = Nursery(self._folder)
        self.kafka_jars = kafka_jars()
        self.s3_jars = s3_jars()
        self._class_path = driver_class_path(config.master)

    @property
    def conf(self) -> Mapping[str, str]:
        """What the engine is configured with for Spark."""
        return self._config.conf

    @property
    def hadoop(self) -> Any:
        """Hadoop's configuration, which jobs take along to executors."""
        return self.root.sparkContext._jsc.hadoopConfiguration()

    @property
    def root(self) -> SparkSession:
        if self._spark is None:
            raise HeadgateError(SPARK_UNAVAILABLE, "Spark is not running")
        return self._spark

    @property
    def folder(self) -> Path:
        """Scratch of this process, removed at its end."""
        return self._folder

    def start(self, java_options: str | None = None) -> None:
        """Starts Spark, registers what runs need, and runs what each first use would have to wait for.

        `java_options` are further ones of the driver's JVM; those that use the archive of classes if not given."""
        problem = java_problem(os.environ)
        if problem:
            raise HeadgateError(SPARK_UNAVAILABLE, problem)
        for name in _TALKATIVE:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        os.environ["PYSPARK_PYTHON"] = self._nursery.start() if self.local else sys.executable
        os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        builder = SparkSession.builder.appName("headgate-engine")
        for key, value in self._settings(options(self._class_path) if java_options is None else java_options).items():
            builder = builder.config(key, value)
        spark = builder.getOrCreate()
        spark.sparkContext.setLogLevel(self._config.log_level)
        spark.sparkContext.addPyFile(str(executor_archive(self._folder)))
        self._spark = spark
        for key, value in self._secrets().items():
            self.hadoop.set(key.removeprefix(_HADOOP), value)
        self._warm_up()

    def _settings(self, java_options: str) -> dict[str, str]:
        config = self._config
        pools = self._folder / "pools.xml"
        pools.write_text(_POOLS)
        settings = {
            "spark.master": config.master,
            "spark.driver.memory": config.driver_memory,
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.structuredLogging.enabled": "false",
            "spark.scheduler.mode": "FAIR",
            "spark.scheduler.allocation.file": pools.as_uri(),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.sql.session.timeZone": "UTC",
            # Plans are small and many: deciding anew between stages costs more than it gains, and streams refuse it.
            "spark.sql.adaptive.enabled": "false",
            # Spark takes two uses of one grouping of a stream for one exchange, and then gives the second no rows.
            "spark.sql.exchange.reuse": "false",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "8192",
            "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
            "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": str(config.changelog).lower(),
            "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
            "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": str(max(16, config.state_memory // 2**20)),
            "spark.sql.streaming.multipleWatermarkPolicy": "min",
            "spark.sql.streaming.metricsEnabled": "false",
            "spark.sql.streaming.numRecentProgressUpdates": str(config.progress_reports),
            "spark.sql.streaming.stopTimeout": "10s",
            "spark.sql.streaming.minBatchesToRetain": "10",
        }
        if self.local:
            settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = "127.0.0.1"
        if config.local_dir is not None:
            settings["spark.local.dir"] = str(config.local_dir)
        jars = [*config.jars, *(str(path) for path in self.kafka_jars)]
        settings["spark.driver.extraClassPath"] = os.pathsep.join(self._class_path)
        if not self._class_path:
            jars += [str(path) for path in self.s3_jars]
        if jars:
            settings["spark.jars"] = ",".join(jars)
        # State is read once and whole: reading ahead gains nothing.
        settings[f"{_HADOOP}fs.s3a.input.stream.type"] = "classic"
        secrets = self._secrets()
        settings.update({key: value for key, value in config.conf.items() if key not in secrets})
        settings[_JAVA_OPTIONS] = f"{settings.get(_JAVA_OPTIONS, '')} {java_options}".strip()
        return settings

    def _secrets(self) -> dict[str, str]:
        """Settings that reach the JVM when it runs: those at its start are arguments, which all the machine can see."""
        return {key: value for key, value in self.conf.items() if key.startswith(_HADOOP) and is_secret_name(key)}

    def _warm_up(self) -> None:
        """A query through Python workers and a shuffle: loads and compiles what every later one uses."""

        def passed_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            # The worker process is kept, and with it what it has imported.
            import_module("headgate_engine.executor.writing")
            import_module("headgate_engine.executor.reading")
            yield from batches

        frame = self.root.range(0, 1000, 1, 2).mapInArrow(passed_on, "id long")
        counted = frame.groupBy((frame.id % 10).alias("k")).count().collect()
        if len(counted) != 10:
            raise HeadgateError(SPARK_UNAVAILABLE, f"the warm-up query gave {len(counted)} rows instead of 10")
        # Elsewhere the executors may not see the driver's scratch folder, where its state would be.
        if self.local:
            self._warm_up_streams(passed_on)

    def _warm_up_streams(self, passed_on: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> None:
        """The same for streams: their planning, RocksDB's native library, and the way back into Python for a batch."""
        session = self.session({"spark.sql.shuffle.partitions": "1"}, pool="warm-up")
        session.dataSource.register(WarmUpSource)
        choose_files(session, str(self._folder), self.conf)
        rows = session.readStream.format(WarmUpSource.name()).load().withWatermark("time", "1 second")
        rows = rows.observe("rows", f.count_if(f.col(MARK).isNull())).where(f.col(MARK).isNull())
        frame = rows.groupBy("id", f.window("time", "10 seconds")).count()

        def write(batch: DataFrame, batch_id: int) -> None:
            batch.select("count").mapInArrow(passed_on, "count long").collect()

        query = (
            frame.writeStream.foreachBatch(write)
            .outputMode("append")
            .option("checkpointLocation", str(self._folder / "warm-up"))
            .trigger(availableNow=True)
            .start()
        )
        ended = query.awaitTermination(_WARM_UP_SECONDS)
        query.stop()
        if not ended:
            raise HeadgateError(SPARK_UNAVAILABLE, f"the warm-up stream did not end within {_WARM_UP_SECONDS} s")

    @property
    def local(self) -> bool:
        """Whether Spark runs in one process, whose slots are as many as they will ever be."""
        return self._config.master.startswith("local")

    @property
    def slots(self) -> int:
        """How many tasks run at once."""
        return int(self.root.sparkContext.defaultParallelism)

    def session(self, conf: Mapping[str, str], pool: str) -> SparkSession:
        """A session of its own for the calling thread, whose jobs share Spark fairly with those of other pools."""
        for key in conf:
            if not key.startswith(_SESSION_ONLY) or key.startswith(_OWN):
                raise HeadgateError(INVALID_SPARK_SETTING, f"{key} cannot be set for a query", metadata={"key": key})
        session = self.root.newSession()
        session.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
        for key, value in conf.items():
            session.conf.set(key, value)
        session.dataSource.register(EdgeSource)
        session.dataSource.register(TopicSource)
        return session

    def require_kafka(self) -> None:
        if not self.kafka_jars and not any("spark-sql-kafka" in jar for jar in self._config.jars):
            raise HeadgateError(
                KAFKA_JARS_MISSING,
                "this engine has no Kafka connector: fetch its jars with `headgate-engine --fetch-jars kafka` on its "
                "machine, and restart it",
            )

    def require_s3(self) -> None:
        if not self.s3_jars and not any("headgate-checkpoints" in jar for jar in self._config.jars):
            raise HeadgateError(
                S3_JARS_MISSING,
                "this engine cannot write checkpoints to S3: fetch the jars with `headgate-engine --fetch-jars s3` on "
                "its machine, and restart it",
            )

    def alive(self) -> bool:
        """Whether the JVM still answers."""
        if self._spark is None:
            return False
        with contextlib.suppress(Exception):
            jvm: Any = self._spark.sparkContext._jsc
            return jvm is not None and not jvm.sc().isStopped()
        return False

    def stop(self) -> None:
        spark, self._spark = self._spark, None
        if spark is not None:
            with contextlib.suppress(Exception):
                spark.stop()
        self._nursery.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
