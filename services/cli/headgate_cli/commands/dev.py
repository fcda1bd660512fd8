"""`dev`: a whole cluster on this machine, on embedded defaults."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from headgate.catalog import v1 as catalog
from headgate_cli.cluster import Supervisor, keep_ports, sole_owner, tail
from headgate_cli.connection import Connection
from headgate_cli.failures import ExitCode, Failure
from headgate_cli.kafka_jars import KafkaJars
from headgate_cli.layout import DEFAULT_BASE, MOST_AGENTS, MOST_ENGINES, Member, Shape, check_java, check_ports, layout
from headgate_cli.output import print_table, say
from headgate_cli.readiness import Readiness, serves
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_common.transport import GrpcTransport

_START_SECONDS = 60.0
_LOOK_SECONDS = 0.1
_CALL_SECONDS = 5.0
_BUCKET = re.compile(r"s3://[^/]+")
_MASTERS = ("local", "spark://", "k8s://", "yarn")
_BROKERS = re.compile(r"[^,\s:]+:\d+(,[^,\s:]+:\d+)*")
_DATA = Path(".headgate")
_LEVELS = ("debug", "info", "warning", "error")


def dev(
    agents: Annotated[int, typer.Option(min=0, max=MOST_AGENTS, help="How many agents to start.")] = 3,
    engines: Annotated[int, typer.Option(min=1, max=MOST_ENGINES, help="How many engines they share.")] = 1,
    no_engine: Annotated[
        bool, typer.Option("--no-engine", help="No Spark: queries are planned and placed, and only pretend to run.")
    ] = False,
    slots: Annotated[int, typer.Option(min=0, help="Slots of each agent.")] = 8,
    data: Annotated[
        Path | None,
        typer.Option(help="Folder for the catalog, topics, checkpoints and logs. [default: .headgate]"),
    ] = None,
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="A temporary folder, removed at the end.")] = False,
    files: Annotated[
        list[Path] | None,
        typer.Option(metavar="DIR", help="Where FILE sources and sinks may be; may be repeated. [default: here]"),
    ] = None,
    postgres: Annotated[str, typer.Option(metavar="URL", help="The catalog in Postgres: postgresql://...")] = "",
    kafka: Annotated[
        str, typer.Option("--kafka", metavar="BROKERS", help="Brokers of KAFKA sources and sinks that name none.")
    ] = "",
    s3: Annotated[str, typer.Option("--s3", metavar="URI", help="Topics in s3://bucket/prefix.")] = "",
    spark: Annotated[
        str, typer.Option("--spark", metavar="MASTER", help="A Spark cluster instead of Spark here: spark://host:port.")
    ] = "",
    checkpoints: Annotated[
        str,
        typer.Option(
            metavar="URI", help="Where Spark keeps checkpoints, such as s3a://bucket/prefix. [default: in --data]"
        ),
    ] = "",
    port_base: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of the coordinator; others follow.")
    ] = DEFAULT_BASE,
    kafka_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="First agent's port for Kafka clients; 0: any. [default: 9092; any where --port-base is said]",
        ),
    ] = None,
    spark_ui: Annotated[bool, typer.Option("--spark-ui", help="Serve Spark's own pages.")] = False,
    log_level: Annotated[str, typer.Option(help="Of every process: debug, info, warning or error.")] = "info",
) -> None:
    """Run a whole cluster on this machine until Ctrl-C.

    A coordinator on SQLite, agents with local folders and an engine with Spark, each a process of its own; nothing to
    install but a JDK. The coordinator answers within seconds, Spark warms up behind it (the first time after its Kafka
    jars have come, where Maven is there to bring them). What dies is started again.
    Everything survives a restart in the folder of --data. Credentials of --s3 are taken from AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, AWS_REGION and AWS_ENDPOINT_URL; checkpoints stay in the folder unless --checkpoints says.

    Example: headgate dev --agents 3 --ephemeral

    Example: headgate dev --postgres postgresql://me@localhost/headgate --s3 s3://streams/dev
    """
    if log_level not in _LEVELS:
        raise typer.BadParameter("--log-level is debug, info, warning or error")
    if postgres and not postgres.startswith(("postgresql://", "postgres://", "postgresql+psycopg://")):
        raise typer.BadParameter("--postgres takes a URL such as postgresql://user@host/database")
    if s3 and not _BUCKET.match(s3):
        raise typer.BadParameter("--s3 takes a URI such as s3://bucket/prefix")
    if kafka and not _BROKERS.fullmatch(kafka):
        raise typer.BadParameter("--kafka takes brokers such as localhost:9092,otherhost:9092")
    if spark and not spark.startswith(_MASTERS):
        raise typer.BadParameter("--spark takes a master such as spark://host:7077")
    if ephemeral and data is not None:
        raise typer.BadParameter(
            "--ephemeral takes a temporary folder, and --data names one that stays: say one of them"
        )
    if not no_engine:
        check_java(os.environ)
    with _folder(data or _DATA, ephemeral=ephemeral) as folder, sole_owner(folder):
        shape = Shape(
            data=folder,
            agents=agents,
            engines=0 if no_engine else engines,
            port_base=port_base,
            slots=slots,
            log_level=log_level,
            catalog=postgres,
            object_store=s3,
            kafka_brokers=kafka,
            kafka_port=kafka_port,
            spark_ui=spark_ui,
            spark=spark,
            checkpoints=checkpoints,
            files=tuple(files or ()),
        )
        members = layout(shape)
        check_ports(members)
        keep_ports(folder, port_base)
        # What Spark left behind where it was killed.
        shutil.rmtree(folder / "spark", ignore_errors=True)
        parts = (
            [_count(agents, "agent"), _count(shape.engines, "engine")] if shape.engines else [_count(agents, "agent")]
        )
        say(f"starting a coordinator, {' and '.join(parts)} in {folder}")
        if ephemeral and postgres:
            say("the catalog in Postgres outlives the temporary folder, and topics in it will miss their records")
        asyncio.run(_run(members, folder))
        say("stopped")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


@contextlib.contextmanager
def _folder(data: Path, *, ephemeral: bool) -> Iterator[Path]:
    if ephemeral:
        with tempfile.TemporaryDirectory(prefix="headgate-dev-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    try:
        data.mkdir(parents=True, exist_ok=True)
        # The folder may well be inside a working copy of someone's own.
        (data / ".gitignore").write_text("*\n")
    except OSError as error:
        raise Failure(ExitCode.USAGE, f"{data} cannot be used: {error.strerror}") from error
    yield data.resolve()


async def _run(members: list[Member], folder: Path) -> None:
    supervisor = Supervisor(members, say, SystemClock(), random.SystemRandom())
    running = asyncio.ensure_future(supervisor.run())
    asked = False

    def stop() -> None:
        nonlocal asked
        if asked:
            supervisor.kill()
            return
        asked = True
        say("stopping; once more ends everything at once")
        running.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    telling = asyncio.ensure_future(_tell(members, supervisor, folder))
    try:
        await asyncio.wait({running, telling}, return_when=asyncio.FIRST_COMPLETED)
        if telling.done() and telling.exception() is not None:
            running.cancel()
        telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    finally:
        telling.cancel()
        ended = await asyncio.gather(telling, return_exceptions=True)
    if isinstance(ended[0], Exception):
        raise ended[0]


async def _tell(members: list[Member], supervisor: Supervisor, folder: Path) -> None:
    """Waits until the control plane is up, shows where everything is, then says what becomes ready."""
    control = [member for member in members if member.script != "headgate-engine"]
    engines = [member for member in members if member.script == "headgate-engine"]
    jars = KafkaJars(folder / "spark-jars.log", say)
    async with GrpcTransport() as transport:
        connection = Connection(transport, members[0].address, timeout=_CALL_SECONDS)
        try:
            async with asyncio.timeout(_START_SECONDS):
                await _until_up(connection, control[1:])
        except TimeoutError:
            late = "\n".join(f"{member.name}:\n{tail(member.log)}" for member in control)
            message = f"the cluster is not up after {_START_SECONDS:g} s; its logs end with\n{late}"
            raise Failure(ExitCode.TIMED_OUT, message) from None
        fetching = bool(engines) and await jars.to_fetch()
        if not fetching:
            await supervisor.release()
        _show(control if fetching else members, supervisor)
        say(f"data in {folder}; try: headgate --coordinator {members[0].address} status. Ctrl-C stops everything.")
        if fetching:
            # An engine takes the jars when it starts, and nothing waits for it yet.
            await jars.fetch()
            await supervisor.release()
            _show(engines, supervisor)
        if engines:
            say(f"Spark warms up in {', '.join(m.name for m in engines)}; queries wait for it")
        await Readiness(connection, supervisor.pid, say, SystemClock()).follow(members, control)


def _show(members: list[Member], supervisor: Supervisor) -> None:
    rows = [[m.name, m.address, m.http, str(supervisor.pid(m) or ""), m.serves, str(m.log)] for m in members]
    print_table(["PROCESS", "GRPC", "HTTP", "PID", "SERVES", "LOG"], rows)


async def _until_up(connection: Connection, agents: list[Member]) -> None:
    """Waits until every agent serves, and the coordinator counts on it: it may remember those of an earlier run."""
    while True:
        if await _joined(connection) >= len(agents) and all(
            await asyncio.gather(*(serves(connection, agent.address) for agent in agents))
        ):
            return
        await asyncio.sleep(_LOOK_SECONDS)


async def _joined(connection: Connection) -> int:
    """How many agents answer and have a session; -1 while the coordinator does not answer."""
    request = catalog.ListAgentsRequest(state=catalog.AGENT_STATE_ACTIVE, page_size=1000)
    try:
        answer = await connection.call("AgentService.ListAgents", request)
    except HeadgateError:
        return -1
    return sum(agent.present for agent in answer.agents)
