"""Every setting of the agent, with its default and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.kafka.config import KafkaConfig
from headgate_agent.log.config import LogConfig
from headgate_common.config import Seconds, section, setting
from headgate_common.settings import ServerConfig

DEFAULT_PORT = 7410
DEFAULT_HTTP_PORT = 7411
SIMULATED = "simulated"


@dataclass(frozen=True, slots=True)
class Timings:
    """Intervals and deadlines, on the agent's monotonic clock. How often it renews, the coordinator tells."""

    call_timeout: Seconds = setting(3.0, "How long a call to the coordinator may take.", minimum=0.01)
    retry_min: Seconds = setting(0.1, "Longest wait after the first vain call; it doubles.", minimum=0.001)
    retry_max: Seconds = setting(2.0, "Longest wait between vain calls.", minimum=0.001)
    engine_keep_alive: Seconds = setting(
        5.0, "An engine stops a run by its own clock if this agent does not keep it alive for so long.", minimum=0.1
    )
    engine_patience: Seconds = setting(
        2.0,
        "An engine that does not answer for so long is taken for dead, and its runs are started again.",
        minimum=0.1,
    )
    engine_start: Seconds = setting(
        30.0, "How long a start on an engine may take; an earlier run is stopped there first.", minimum=0.1
    )
    topic_appears: Seconds = setting(
        5.0, "How long a run waits for a topic that this agent has not heard of; then there is none.", minimum=0.1
    )
    brokers: Seconds = setting(
        5.0,
        "How long the brokers of a Kafka topic that is read from its end are waited for, each time they are asked.",
        minimum=0.1,
    )


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """The agent's configuration."""

    server: ServerConfig = section(
        ServerConfig,
        "How it listens.",
        listen=f"127.0.0.1:{DEFAULT_PORT}",
        http_listen=f"127.0.0.1:{DEFAULT_HTTP_PORT}",
    )
    coordinator: tuple[str, ...] = setting(("127.0.0.1:7400",), "Addresses of the coordinators.")
    name: str = setting("agent", "The agent's name, unique in the cluster.")
    data: Path = setting(Path("headgate-agent"), "Folder for what must survive a crash; each agent needs its own.")
    adopt_catalog: bool = setting(
        False,
        "Give the data folder and the object store to the catalog that the agent joins, though they are of another; "
        "for one start. What that catalog does not know is deleted in time.",
    )
    slots: int = setting(8, "How many slots it offers.", minimum=0, maximum=100_000)
    zone: str = setting("", "Failure domain; empty: none.")
    group: str = setting("default", "Isolation group.")
    peers: tuple[str, ...] = setting(
        (),
        "Agents it can send data to, where links are declared. Used when the agent is new to the catalog; later "
        "changes are made there.",
    )
    labels: Mapping[str, str] = setting({}, "Free labels.")
    roles: tuple[Literal["log", "fragments"], ...] = setting(("log", "fragments"), "What it is for.")
    engine: tuple[str, ...] = setting(
        ("127.0.0.1:7420",),
        "Addresses of the engines that run its compute fragments; the one with the least to do is chosen. None: no "
        "compute fragments are placed here. `simulated`: fragments take time and move no data.",
    )
    checkpoints: str = setting(
        "",
        "Where engines keep checkpoints: a folder or a URI that Spark can write, the same for all agents and all "
        "engines. Empty: `checkpoints` in the object store.",
    )
    fragments: FragmentConfig = section(FragmentConfig, "Sources and sinks on this agent's node.")
    timings: Timings = section(Timings, "Every interval and deadline.")
    log: LogConfig = section(LogConfig, "The log; for the role `log`.")
    kafka: KafkaConfig = section(KafkaConfig, "The port for Kafka clients; for the role `log`.")

    def __post_init__(self) -> None:
        if not self.coordinator:
            raise ValueError("coordinator needs at least one address")
        if SIMULATED in self.engine and len(self.engine) > 1:
            raise ValueError(f"engine = {SIMULATED} stands alone, without addresses")

    @property
    def simulated(self) -> bool:
        """Whether fragments only take time."""
        return self.engine == (SIMULATED,)
