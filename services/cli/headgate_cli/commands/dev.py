"""`dev`: a whole cluster on this machine, on embedded defaults."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from headgate.catalog import v1 as catalog
from headgate_cli.cluster import Member, Supervisor, check_ports, layout, sole_owner, tail
from headgate_cli.connection import Connection
from headgate_cli.failures import ExitCode, Failure
from headgate_cli.output import print_table, say
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_common.transport import GrpcTransport

_START_SECONDS = 60.0
_LOOK_SECONDS = 0.2


def dev(
    agents: Annotated[int, typer.Option(min=0, max=50, help="How many agents to start.")] = 3,
    slots: Annotated[int, typer.Option(min=0, help="Slots of each agent.")] = 8,
    data: Annotated[Path, typer.Option(help="Folder for the catalog, the agents' data and logs.")] = Path(".headgate"),
    ephemeral: Annotated[bool, typer.Option("--ephemeral", help="A temporary folder, removed at the end.")] = False,
    port_base: Annotated[int, typer.Option(min=1, max=65535, help="Port of the coordinator; others follow.")] = 7400,
    log_level: Annotated[str, typer.Option(help="Of every process: debug, info, warning or error.")] = "info",
) -> None:
    """Run a whole cluster on this machine until Ctrl-C.

    A coordinator on SQLite and agents with local folders, each a process of its own; nothing to install. What dies is
    started again. The catalog and the agents' data survive a restart in the folder of --data.

    Example: headgate dev --agents 3 --ephemeral
    """
    if log_level not in ("debug", "info", "warning", "error"):
        raise typer.BadParameter("--log-level is debug, info, warning or error")
    with _folder(data, ephemeral=ephemeral) as folder, sole_owner(folder):
        members = layout(folder, agents, port_base, slots, log_level)
        check_ports(members)
        say(f"starting a coordinator and {agents} agent{'' if agents == 1 else 's'} in {folder}")
        asyncio.run(_run(members, folder))
        say("stopped")


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
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.cancel)
    greeting = asyncio.ensure_future(_greet(members, supervisor, folder))
    try:
        await asyncio.wait({running, greeting}, return_when=asyncio.FIRST_COMPLETED)
        if greeting.done() and greeting.exception() is not None:
            running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    finally:
        greeting.cancel()
        failed = await asyncio.gather(greeting, return_exceptions=True)
    if isinstance(failed[0], Failure):
        raise failed[0]


async def _greet(members: list[Member], supervisor: Supervisor, folder: Path) -> None:
    """Waits until the cluster is up, then shows where everything is."""
    wanted = sum(1 for member in members if member.stage > 0)
    try:
        async with asyncio.timeout(_START_SECONDS), GrpcTransport() as transport:
            connection = Connection(transport, members[0].address, timeout=5.0)
            await _until_active(connection, wanted)
    except TimeoutError:
        late = "\n".join(f"{member.name}:\n{tail(member.log)}" for member in members)
        message = f"the cluster is not up after {_START_SECONDS:g} s; its logs end with\n{late}"
        raise Failure(ExitCode.TIMED_OUT, message) from None
    rows = [[m.name, m.address, m.http, str(supervisor.pid(m) or ""), str(m.log)] for m in members]
    print_table(["PROCESS", "GRPC", "HTTP", "PID", "LOG"], rows)
    say(f"data in {folder}; try: headgate --coordinator {members[0].address} status. Ctrl-C stops everything.")


async def _until_active(connection: Connection, wanted: int) -> None:
    while True:
        if await _active(connection) >= wanted:
            return
        await asyncio.sleep(_LOOK_SECONDS)


async def _active(connection: Connection) -> int:
    """How many agents answer; -1 while the coordinator does not."""
    request = catalog.ListAgentsRequest(state=catalog.AGENT_STATE_ACTIVE, page_size=1000)
    try:
        answer = await connection.call("AgentService.ListAgents", request)
    except HeadgateError:
        return -1
    return len(answer.agents)
