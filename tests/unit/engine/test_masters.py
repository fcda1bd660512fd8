"""What Spark is told for each kind of master."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headgate_engine.config import EngineConfig, SparkConfig
from headgate_engine.spark import SparkHost

# Only for a driver that shares its machine with every executor.
LOOPBACK = {"spark.driver.host", "spark.driver.bindAddress"}


@contextmanager
def settings(config: SparkConfig) -> Iterator[dict[str, str]]:
    host = SparkHost(config)
    try:
        yield host._settings("")
    finally:
        host.stop()


@pytest.mark.parametrize("master", ["k8s://https://cluster:6443", "yarn", "spark://head:7077"])
def test_a_cluster_gets_its_master_the_users_settings_and_no_address_that_only_this_machine_knows(master: str) -> None:
    mine = {
        "spark.kubernetes.container.image": "registry/spark:4.2",
        "spark.kubernetes.namespace": "streams",
        "spark.yarn.queue": "streams",
        "spark.executor.instances": "3",
        "spark.driver.host": "engine.example",
    }
    with settings(SparkConfig(master=master, driver_memory="3g", conf=mine)) as told:
        assert told["spark.master"] == master
        assert told["spark.driver.memory"] == "3g"
        assert {key: told[key] for key in mine} == mine
        assert "spark.driver.bindAddress" not in told
    with settings(SparkConfig(master=master)) as told:
        assert not LOOPBACK & told.keys()
        assert "127.0.0.1" not in " ".join(told.values())


@pytest.mark.parametrize("master", ["k8s://https://cluster:6443", "yarn", "local[*]"])
def test_what_the_engine_promises_rests_on_the_same_settings_for_every_master(master: str) -> None:
    with settings(SparkConfig(master=master, state_memory=64 * 2**20)) as told:
        assert told["spark.scheduler.mode"] == "FAIR"
        assert told["spark.sql.session.timeZone"] == "UTC"
        assert told["spark.sql.streaming.multipleWatermarkPolicy"] == "min"
        assert told["spark.sql.streaming.stateStore.checkpointFormatVersion"] == "2"
        assert told["spark.sql.streaming.stateStore.providerClass"].endswith("RocksDBStateStoreProvider")
        assert told["spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB"] == "64"


def test_spark_keeps_more_reports_than_batches_end_between_two_looks_or_as_many_as_is_said() -> None:
    kept = "spark.sql.streaming.numRecentProgressUpdates"
    config = EngineConfig()
    # A batch takes 10 ms at the very least: its entries in the checkpoint alone are two files.
    with settings(config.spark) as told:
        assert int(told[kept]) >= 4 * config.timings.look / 0.01
    with settings(SparkConfig(progress_reports=7)) as told:
        assert told[kept] == "7"


def test_a_local_master_listens_to_this_machine_only() -> None:
    with settings(SparkConfig(master="local[2]")) as told:
        assert {told[key] for key in LOOPBACK} == {"127.0.0.1"}


def test_a_key_of_a_bucket_is_no_argument_of_the_jvm_on_a_cluster_either() -> None:
    secret = "spark.hadoop.fs.s3a.secret.key"
    with settings(SparkConfig(master="yarn", conf={secret: "hidden", "spark.yarn.queue": "q"})) as told:
        assert secret not in told
        assert "hidden" not in " ".join(told.values())
