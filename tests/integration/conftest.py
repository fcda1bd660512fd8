"""One Spark session for all tests of a process: it can have only one, and whoever stopped it would stop it for all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from headgate_coordinator.sql.spark import SPARK_CONF
from headgate_engine.class_archive import options
from headgate_engine.jars import driver_class_path, kafka_jars


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """As small as it can be, with the settings that plans ask for; with Kafka's connector where its jars are."""
    folder = tmp_path_factory.mktemp("spark")
    master = "local[3]"
    first = driver_class_path(master)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = (
        # Real-time mode holds a slot for each partition that it reads.
        SparkSession.builder.master(master)
        .appName("tests")
        # The class path of an engine, so that the archive of its classes fits.
        .config("spark.driver.extraClassPath", os.pathsep.join(first))
        .config("spark.driver.extraJavaOptions", options(first))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.streaming.pollingDelay", "1ms")
        # Compiling code for each plan takes far longer than running it over a few rows.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .config("spark.sql.adaptive.enabled", "false")
        .config("spark.sql.streaming.numRecentProgressUpdates", "1")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.log.structuredLogging.enabled", "false")
    )
    for key, value in SPARK_CONF.items():
        builder = builder.config(key, value)
    if jars := kafka_jars():
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
