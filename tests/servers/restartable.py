"""A server of ours that is killed, paused and started again, on the same ports and the same data."""

from __future__ import annotations

import os
import resource
import signal
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers.process import Command, ServerProcess

START_SECONDS = 60.0


@dataclass(slots=True)
class Restartable:
    name: str
    arguments: Sequence[str]
    log: Path
    address: str
    http: str
    process: ServerProcess
    # Where a test says by how much its wall clock is wrong, if it can be moved.
    clock: Path | None = None

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.http}/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def wait_until_ready(self) -> None:
        self.process.wait_until_ready(self.ready, START_SECONDS)

    def kill(self) -> None:
        """As a crash would; also where it is paused."""
        self.process.kill()

    def pause(self) -> None:
        os.kill(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def fill_disk(self) -> None:
        """From now on every write to a file fails, as on a full disk."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def free_disk(self) -> None:
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def start_again(self, *, wait: bool = True) -> None:
        self.process = ServerProcess(Command(name=self.name, arguments=self.arguments, log=self.log))
        if wait:
            self.wait_until_ready()
