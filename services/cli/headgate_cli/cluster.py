"""A cluster on this machine: which processes it has, and one that keeps them running.

Every process is started with its own console script, exactly as an operator would start it, and writes its log to a
file. A process that ends is started again, after a pause that grows while it keeps ending. When this process ends, in
whatever way, they end too.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import string
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headgate_cli.failures import ExitCode, Failure
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock

HOST = "127.0.0.1"
_AGENT_PORTS = 10
_DEFAULT_BASE = 7400
_KAFKA_PORT = 9092
_MISUSED = 2
_SETTLED_SECONDS = 10.0
_TAIL_LINES = 5


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

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def http(self) -> str:
        return f"http://{HOST}:{self.http_port}"


def agent_name(index: int) -> str:
    return string.ascii_lowercase[index] if index < len(string.ascii_lowercase) else f"agent-{index + 1}"


def layout(data: Path, agents: int, port_base: int, slots: int, log_level: str) -> list[Member]:
    """The processes of a cluster under one folder, on ports counted from a base."""
    logs = data / "logs"
    common = ("--log-level", log_level)

    def listen(port: int) -> tuple[str, ...]:
        return ("--listen", f"{HOST}:{port}", "--http-listen", f"{HOST}:{port + 1}", *common)

    coordinator = Member(
        "coordinator",
        "headgate-coordinator",
        (*listen(port_base), "--catalog", f"sqlite:///{data / 'catalog.db'}"),
        port_base,
        port_base + 1,
        logs / "coordinator.log",
        stage=0,
    )
    members = [coordinator]
    for index in range(agents):
        name, port = agent_name(index), port_base + _AGENT_PORTS + 2 * index
        own: tuple[str, ...] = (
            "--name",
            name,
            "--coordinator",
            coordinator.address,
            "--slots",
            str(slots),
            "--data",
            str(data / name),
        )
        # Kafka clients expect the usual port; a second cluster on the machine takes any.
        kafka = _KAFKA_PORT + index if port_base == _DEFAULT_BASE else 0
        own += ("--object-store", str(data / "objects"), "--kafka-listen", f"{HOST}:{kafka}")
        log = logs / f"agent-{name}.log"
        members.append(Member(f"agent {name}", "headgate-agent", (*listen(port), *own), port, port + 1, log, stage=1))
    return members


def check_ports(members: list[Member]) -> None:
    """One clear line for a port that someone else has, before anything is started."""
    for member in members:
        for port in (member.port, member.http_port):
            if port > 65535:
                raise Failure(ExitCode.USAGE, f"{member.name} would need port {port}; choose a lower --port-base")
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((HOST, port))
                except OSError:
                    raise Failure(
                        ExitCode.USAGE,
                        f"port {port}, which {member.name} would use, is taken; is another `headgate dev` running?",
                        "Choose other ports with --port-base.",
                    ) from None


@contextlib.contextmanager
def sole_owner(data: Path) -> Iterator[None]:
    """Keeps a second cluster away from the same folder."""
    with (data / "lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Failure(
                ExitCode.USAGE,
                f"another `headgate dev` works in {data}",
                "Stop it, or choose another folder with --data, or use --ephemeral.",
            ) from None
        yield


def find_script(name: str) -> str:
    """The console script beside this interpreter, or on PATH."""
    beside = Path(sys.executable).parent / name
    if beside.is_file():
        return str(beside)
    if found := shutil.which(name):
        return found
    raise Failure(ExitCode.USAGE, f"{name} is not installed", f"Install the distribution {name} beside this one.")


def launcher() -> list[str]:
    """What to put before a command line so that its process ends with this one."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("launch.py")), str(os.getpid())]


def tail(log: Path, lines: int = _TAIL_LINES) -> str:
    try:
        return "\n".join(f"  {line}" for line in log.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return ""


class Supervisor:
    """Keeps the members running until it is told to stop. `say` tells a person what happens."""

    def __init__(self, members: list[Member], say: Callable[[str], None], clock: Clock, source: random.Random) -> None:
        self._members = members
        self._say = say
        self._clock = clock
        self._source = source
        self._backoff = Backoff(initial=0.2, cap=5.0)
        self._scripts = {member.script: find_script(member.script) for member in members}
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._stopping = False

    def pid(self, member: Member) -> int | None:
        process = self._processes.get(member.name)
        return process.pid if process is not None and process.returncode is None else None

    async def run(self) -> None:
        """Runs until it is cancelled or a member cannot run at all; then everything has been stopped."""
        keepers = [asyncio.ensure_future(self._keep(member)) for member in self._members]
        try:
            await asyncio.gather(*keepers)
        finally:
            self._stopping = True
            for keeper in keepers:
                keeper.cancel()
            await asyncio.gather(*keepers, return_exceptions=True)
            await self._stop()

    async def _keep(self, member: Member) -> None:
        """Starts a member again whenever it ends."""
        failures = 0
        while True:
            began = self._clock.monotonic()
            process = await self._start(member)
            code = await process.wait()
            if self._stopping:
                return
            if code == _MISUSED:
                raise Failure(ExitCode.DEFECT, f"{member.name} cannot run:\n{tail(member.log)}")
            failures = 0 if self._clock.monotonic() - began > _SETTLED_SECONDS else failures + 1
            delay = self._backoff.delay(failures, self._source)
            self._say(
                f"{member.name} ended ({ending(code)}); starting it again in {delay:.1f} s. {member.log} ends with:"
            )
            self._say(tail(member.log, 1))
            await asyncio.sleep(delay)

    async def _start(self, member: Member) -> asyncio.subprocess.Process:
        member.log.parent.mkdir(parents=True, exist_ok=True)
        with member.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *launcher(),
                self._scripts[member.script],
                *member.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # Ctrl-C goes to this process only, which stops the others in order.
                start_new_session=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        self._processes[member.name] = process
        return process

    async def _stop(self, grace: float = 10.0) -> None:
        """Agents first, so that they can say goodbye to a coordinator that still answers."""
        for stage in sorted({member.stage for member in self._members}, reverse=True):
            members = [member for member in self._members if member.stage == stage]
            await asyncio.gather(*(self._end(member, grace) for member in members))

    async def _end(self, member: Member, grace: float) -> None:
        process = self._processes.get(member.name)
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), grace)
        except TimeoutError:
            self._say(f"{member.name} does not end; killing it")
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def ending(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
