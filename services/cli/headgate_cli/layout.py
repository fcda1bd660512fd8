"""Which processes a cluster on this machine has, what each is told, and which ports they take."""

from __future__ import annotations

import os
import re
import shutil
import socket
import string
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headgate_cli.failures import ExitCode, Failure

HOST = "127.0.0.1"
DEFAULT_BASE = 7400
MOST_AGENTS = 50
MOST_ENGINES = 4
SIMULATED = "simulated"
# Counted from the base: the coordinator has the first two, an engine the two of its number, then come agents.
_ENGINE_PORTS = 2
_AGENT_PORTS = 10
_UI_PORTS = _AGENT_PORTS + 2 * MOST_AGENTS
# Where people look first, taken by the cluster on the default ports.
_KAFKA_PORT = 9092
_UI_PORT = 4040
_LAST_PORT = 65_535
_OLDEST_JAVA = 17
_JAVA_SECONDS = 20.0
# As long as an engine waits for Spark by default.
_WARM_UP = "300s"


@dataclass(frozen=True, slots=True)
class Shape:
    """What was asked for. Empty strings stand for the embedded defaults."""

    data: Path
    agents: int = 3
    engines: int = 1
    port_base: int = DEFAULT_BASE
    slots: int = 8
    log_level: str = "info"
    catalog: str = ""
    object_store: str = ""
    kafka_brokers: str = ""
    kafka_port: int | None = None
    spark_ui: bool = False
    # A master of Spark; empty: Spark in the engine.
    spark: str = ""
    checkpoints: str = ""
    files: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the cluster. `stage` says when it is stopped: higher first."""

    name: str
    script: str
    arguments: tuple[str, ...]
    port: int
    http_port: int
    log: Path
    stage: int
    # Settings that do not belong on a command line, which everybody on the machine can read.
    environment: Mapping[str, str] = field(default_factory=dict)
    # A third port, and how the table names what answers there.
    serves: str = ""
    serves_port: int = 0
    # Whether it is started only when the others are up, so that they need not share the processor with it.
    later: bool = False

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def http(self) -> str:
        return f"http://{HOST}:{self.http_port}"

    @property
    def ports(self) -> Iterator[tuple[int, str]]:
        """Every port it takes, with what it is for where that is not plain."""
        yield self.port, ""
        yield self.http_port, ""
        if self.serves_port:
            yield self.serves_port, f" for {self.serves.partition(' ')[0]}"


def agent_name(index: int) -> str:
    return string.ascii_lowercase[index] if index < len(string.ascii_lowercase) else f"agent-{index + 1}"


def layout(shape: Shape) -> list[Member]:
    """The processes of a cluster under one folder: the coordinator first, then agents, then engines."""
    engines = [_engine(shape, index) for index in range(shape.engines)]
    return [_coordinator(shape), *(_agent(shape, index, engines) for index in range(shape.agents)), *engines]


def _listen(shape: Shape, port: int) -> tuple[str, ...]:
    return ("--listen", f"{HOST}:{port}", "--http-listen", f"{HOST}:{port + 1}", "--log-level", shape.log_level)


def _coordinator(shape: Shape) -> Member:
    # A URL of Postgres may have a password in it.
    url = shape.catalog or f"sqlite:///{shape.data / 'catalog.db'}"
    arguments = _listen(shape, shape.port_base)
    if shape.engines:
        # Queries may be created while Spark still warms up, which takes its time on a busy machine.
        arguments += ("--set", f"timings.deployment_deadline={_WARM_UP}")
    if shape.kafka_brokers:
        arguments += ("--set", f"kafka_brokers={shape.kafka_brokers}")
    return Member(
        "coordinator",
        "headgate-coordinator",
        arguments,
        shape.port_base,
        shape.port_base + 1,
        shape.data / "logs" / "coordinator.log",
        stage=0,
        environment={"HEADGATE_COORDINATOR_CATALOG__URL": url},
    )


def _engine(shape: Shape, index: int) -> Member:
    port = shape.port_base + _ENGINE_PORTS + 2 * index
    arguments = [*_listen(shape, port), "--set", f"spark.local_dir={shape.data / 'spark' / str(index + 1)}"]
    if shape.spark:
        arguments += ["--master", shape.spark]
        # Where executors find the driver.
        for setting in (f"driver.host={HOST}", f"driver.bindAddress={HOST}"):
            arguments += ["--set", f"spark.conf.spark.{setting}"]
    ui = 0
    if shape.spark_ui:
        ui = (_UI_PORT if shape.port_base == DEFAULT_BASE else shape.port_base + _UI_PORTS) + index
        for setting in ("ui.enabled=true", f"ui.port={ui}", "port.maxRetries=0"):
            arguments += ["--set", f"spark.conf.spark.{setting}"]
    return Member(
        f"engine {index + 1}",
        "headgate-engine",
        tuple(arguments),
        port,
        port + 1,
        shape.data / "logs" / f"engine-{index + 1}.log",
        stage=1,
        # Spark complains at length where a machine's name leads to loopback, which is all that is wanted here.
        environment={"SPARK_LOCAL_IP": HOST},
        serves=f"Spark's pages http://{HOST}:{ui}" if ui else "",
        serves_port=ui,
        later=True,
    )


def _agent(shape: Shape, index: int, engines: list[Member]) -> Member:
    name, port = agent_name(index), shape.port_base + _AGENT_PORTS + 2 * index
    kafka = _kafka_port(shape, index)
    arguments = [
        *_listen(shape, port),
        *("--name", name),
        *("--coordinator", f"{HOST}:{shape.port_base}"),
        *("--slots", str(shape.slots)),
        *("--data", str(shape.data / name)),
        # One for all agents: what has to be able to move from one to another is there.
        *("--object-store", shape.object_store or str(shape.data / "objects")),
        *("--kafka-listen", f"{HOST}:{kafka}"),
        *("--engine", ",".join(engine.address for engine in engines) or SIMULATED),
    ]
    if shape.object_store and os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://"):
        # Who names a server without TLS means it; the client library wants to be told so.
        arguments += ["--set", "log.object_options.allow_http=true"]
    if engines:
        roots = ",".join(str(path) for path in file_roots(shape))
        arguments += ["--set", f"fragments.file_roots={roots}"]
        arguments += ["--set", f"fragments.tcp_targets={HOST}:*,localhost:*"]
        # Spark writes to S3 only with jars of its own; everything here shares the folder anyway.
        arguments += ["--set", f"checkpoints={shape.checkpoints or shape.data / 'checkpoints'}"]
    return Member(
        f"agent {name}",
        "headgate-agent",
        tuple(arguments),
        port,
        port + 1,
        shape.data / "logs" / f"agent-{name}.log",
        stage=2,
        serves=f"Kafka {HOST}:{kafka}",
        serves_port=kafka,
    )


def _kafka_port(shape: Shape, index: int) -> int:
    """Kafka clients expect the usual port; a second cluster on the machine takes any, the same for all of its life."""
    if shape.kafka_port:
        return shape.kafka_port + index
    if shape.kafka_port is None and shape.port_base == DEFAULT_BASE:
        return _KAFKA_PORT + index
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def file_roots(shape: Shape) -> list[Path]:
    """Folders under which FILE sources and sinks may be. A usage error for one that the agents could not be told."""
    roots = [*(path.resolve() for path in shape.files or (Path.cwd(),)), shape.data]
    for root in roots:
        if "," in str(root):
            raise Failure(ExitCode.USAGE, f"{root} has a comma in its name, so that agents cannot be given it")
        if not root.is_dir():
            raise Failure(ExitCode.USAGE, f"--files {root}: there is no such folder")
    return list(dict.fromkeys(roots))


def check_ports(members: list[Member]) -> None:
    """One clear line for a port that someone else has, before anything is started."""
    for member in members:
        for port, purpose in member.ports:
            if port > _LAST_PORT:
                raise Failure(ExitCode.USAGE, f"{member.name} would need port {port}; choose a lower --port-base")
            if _taken(port):
                option = "--kafka-port" if purpose == " for Kafka" else "--port-base"
                raise Failure(
                    ExitCode.USAGE,
                    f"port {port}, which {member.name} would use{purpose}, is taken",
                    f"Is another `headgate dev` running? Choose other ports with {option}.",
                )


def _taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return True
    return False


def check_java(environment: Mapping[str, str]) -> None:
    """One clear line where Spark would not find a Java that it runs on."""
    problem = java_problem(environment)
    if problem:
        raise Failure(
            ExitCode.USAGE,
            f"the engine needs a JDK, {_OLDEST_JAVA} or 21: {problem}",
            "Install one, or set JAVA_HOME; --no-engine starts a cluster that plans queries and only pretends to run "
            "them.",
        )


def java_problem(environment: Mapping[str, str]) -> str | None:
    """Why there is no Java to run Spark on, or None."""
    home = environment.get("JAVA_HOME")
    if home:
        java = str(Path(home) / "bin" / "java")
        if not os.access(java, os.X_OK):
            return f"JAVA_HOME is {home}, which has no bin/java"
    else:
        java = shutil.which("java", path=environment.get("PATH")) or ""
        if not java:
            return "there is no java on PATH, and JAVA_HOME is not set"
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{java} cannot be run: {error}"
    told = done.stderr + done.stdout
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    if done.returncode or found is None:
        first = told.strip().splitlines()[:1]
        return f"{java} -version answers {first[0] if first else f'exit code {done.returncode}'}"
    return f"{java} is of version {found[1]}" if int(found[1]) < _OLDEST_JAVA else None
