"""Every setting of the engine, with its default and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headgate_common.config import Bytes, Seconds, section, setting
from headgate_common.settings import ServerConfig

DEFAULT_PORT = 7420
DEFAULT_HTTP_PORT = 7421


@dataclass(frozen=True, slots=True)
class Timings:
    """Intervals and deadlines, on the engine's monotonic clock."""

    keep_alive: Seconds = setting(
        10.0, "A run that its agent does not keep alive for this long is stopped, unless its start says.", minimum=0.1
    )
    look: Seconds = setting(0.25, "How often a run is looked at: is it to stop, have its inputs ended.", minimum=0.01)
    idle_nap: Seconds = setting(
        0.2, "Longest pause between two looks at an idle edge; what comes then waits as long.", minimum=0.001
    )
    poll: Seconds = setting(
        0.05,
        "Pause between two looks at an idle Kafka topic; what comes then waits as long.",
        minimum=0.001,
    )
    mark_interval: Seconds = setting(
        1.0,
        "Least time between two marks for a silent topic; a quarter of idle_timeout where that is longer.",
        minimum=0.01,
    )
    quiet: Seconds = setting(10.0, "A run without a batch for this long has no rows per second.", minimum=0.1)
    losses: Seconds = setting(
        1.0, "Least time between two writes of how many rows came too late or could not be read.", minimum=0.01
    )
    brokers: Seconds = setting(
        15.0, "How long the brokers of a Kafka topic are waited for when a run or batch starts.", minimum=0.1
    )
    realtime_checkpoint: Seconds = setting(
        60.0,
        "How often a realtime run writes down where it is, which is also when it says how it is doing.",
        minimum=5.0,
    )
    stop: Seconds = setting(15.0, "How long a run may take to stop before it is reported as hanging.", minimum=0.1)
    patience: Seconds = setting(
        30.0,
        "How long a call is repeated to an agent that is away, or does not lead the edge or topic again yet.",
        minimum=0.0,
    )
    warm_up: Seconds = setting(300.0, "How long Spark may take to start before the engine gives up.", minimum=1.0)
    forget: Seconds = setting(300.0, "How long a run that has ended is still answered.", minimum=0.0)


@dataclass(frozen=True, slots=True)
class SparkConfig:
    """How Spark is started."""

    master: str = setting("local[*]", "local[*], spark://host:port, k8s://..., yarn: any master that Spark knows.")
    driver_memory: str = setting("1g", "Memory of the driver, which runs everything where the master is local.")
    state_memory: Bytes = setting(256 * 2**20, "Memory of RocksDB in each executor, shared by all its state stores.")
    local_dir: Path | None = setting(None, "Scratch folder; Spark's own default if not given.")
    jars: tuple[str, ...] = setting((), "Further jars. Those of the Kafka connector are found in the cache folder.")
    conf: Mapping[str, str] = setting({}, "Further Spark settings; they win over the engine's own.")
    changelog: bool = setting(True, "State checkpoints are written as changes, and seldom as a whole.")
    progress_reports: int = setting(
        100,
        "Reports of batches that Spark keeps of each query until the engine looks at them (timings.look); what is gone "
        "by then is not counted.",
        minimum=1,
    )
    log_level: str = setting("ERROR", "Least important events of Spark's own log.")


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """The engine's configuration."""

    server: ServerConfig = section(
        ServerConfig,
        "How it listens.",
        listen=f"127.0.0.1:{DEFAULT_PORT}",
        http_listen=f"127.0.0.1:{DEFAULT_HTTP_PORT}",
    )
    spark: SparkConfig = section(SparkConfig, "How Spark is started.")
    batch_bytes: Bytes = setting(
        32 * 2**20, "About how much a micro-batch reads of each partition, unless the run says.", minimum=1
    )
    batch_records: int = setting(
        500_000, "Records that a micro-batch reads of a Kafka topic at most; 0: all that are there.", minimum=0
    )
    edge_max_lag: Bytes = setting(
        64 * 2**20, "How much of its results may wait for a sink; beyond it a query pauses.", minimum=1
    )
    max_rows: int = setting(100_000, "Rows that ExecuteBatch sends at most, unless the call says.", minimum=1)
    reserved_slots: int = setting(2, "Task slots that realtime runs leave to micro-batches.", minimum=0)
    traces: bool = setting(False, "Send Java and Python stack traces along with errors.")
    timings: Timings = section(Timings, "Every interval and deadline.")
