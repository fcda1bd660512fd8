"""Keeps the processes of a cluster on this machine running.

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
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from headgate_cli.failures import ExitCode, Failure
from headgate_cli.layout import Member
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock

_MISUSED = 2
_SETTLED_SECONDS = 10.0
_TAIL_LINES = 5
# What is said of why a process ended is at the end of its log.
_TAIL_BYTES = 64 * 1024
_LINE_LETTERS = 400
# A log of an earlier run that is longer than this is put aside when its process is started.
_LOG_BYTES = 16 * 1024 * 1024
_GRACE_SECONDS = 20.0


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


def keep_ports(data: Path, port_base: int) -> None:
    """A cluster stays on the ports it began with: its agents are known by their addresses."""
    file = data / "port-base"
    known = file.read_text().strip() if file.exists() else ""
    if known and known != str(port_base):
        raise Failure(
            ExitCode.USAGE,
            f"the agents of the cluster in {data} are known on ports counted from {known}, not from {port_base}",
            f"Say --port-base {known}, or choose another folder with --data, or use --ephemeral.",
        )
    file.write_text(f"{port_base}\n")


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
    """The last lines of a log, indented."""
    try:
        with log.open("rb") as handle:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = handle.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(f"  {line[:_LINE_LETTERS]}" for line in text.splitlines()[-lines:])


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
        self._released = asyncio.Event()
        self._started = {member.name: asyncio.Event() for member in members if member.later}

    async def release(self) -> None:
        """Lets the members start that were to wait, and returns when each of them has a process."""
        self._released.set()
        await asyncio.gather(*(started.wait() for started in self._started.values()))

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
        if member.later:
            await self._released.wait()
        while True:
            began = self._clock.monotonic()
            process = await self._start(member)
            code = await process.wait()
            if self._stopping:
                return
            if code == _MISUSED:
                raise Failure(ExitCode.USAGE, f"{member.name} cannot run: {tail(member.log, 1).strip()}")
            failures = 0 if self._clock.monotonic() - began > _SETTLED_SECONDS else failures + 1
            delay = self._backoff.delay(failures, self._source)
            self._say(
                f"{member.name} ended ({ending(code)}); starting it again in {delay:.1f} s. {member.log} ends with:"
            )
            self._say(tail(member.log, 1))
            await asyncio.sleep(delay)

    async def _start(self, member: Member) -> asyncio.subprocess.Process:
        _put_aside(member.log)
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
                env={**os.environ, "PYTHONUNBUFFERED": "1", **member.environment},
            )
        self._processes[member.name] = process
        if member.later:
            self._started[member.name].set()
        return process

    def kill(self) -> None:
        """Ends every process at once; whoever waits for `run` still has to."""
        for process in self._processes.values():
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def _stop(self, grace: float = _GRACE_SECONDS) -> None:
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


def _put_aside(log: Path) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        if log.stat().st_size > _LOG_BYTES:
            log.replace(log.with_suffix(".log.old"))


def ending(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
