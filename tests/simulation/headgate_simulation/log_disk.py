"""The disk under a write-ahead log: what was synced survives everything, what was only written may be torn.

A file has its bytes as the operating system shows them, and how many of them are on the disk for certain. A process
that dies leaves both as they are. A machine that loses power keeps what is certain, and of the rest nothing, a part, or
a part with zeros behind it. `WalFiles` of production's contract; operations happen in the order of the calls.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headgate_simulation.loop import Killed
from headgate_simulation.processes import Environment

# How long an operation takes at most, in seconds, and the share of it after which a write can be seen in the file.
SYNC_DELAY = 0.006


@dataclass(slots=True)
class WalFile:
    data: bytes = b""
    # So many bytes of it are certain.
    synced: int = 0


@dataclass(slots=True)
class WalDisk:
    """The files of one volume."""

    files: dict[int, WalFile] = field(default_factory=dict)

    def lose_power(self, source: random.Random) -> None:
        for file in self.files.values():
            unsure = len(file.data) - file.synced
            if unsure <= 0:
                continue
            kept = source.choice((0, unsure, *(source.randrange(unsure + 1) for _ in range(3))))
            zeros = source.choice((0, unsure - kept, unsure - kept))
            file.data = file.data[: file.synced + kept] + bytes(zeros)
            file.synced = len(file.data)


@dataclass(slots=True)
class WalFaults:
    """What is wrong with one agent's disk just now. Changed by `log_faults.py`."""

    full: bool = False
    # Nor can what was written be cut back.
    broken: bool = False
    # Whether the process dies at its next write: "before" it, "unsynced" in the middle of it, "synced" right after it.
    dies: str = ""
    # Whether the process is paused in the middle of its next write.
    pauses: bool = False


class SimulatedWalFiles:
    """`WalFiles` of one process."""

    def __init__(
        self,
        disk: WalDisk,
        environment: Environment,
        faults: WalFaults,
        die: Callable[[], None],
        pause: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._environment = environment
        self._faults = faults
        self._die = die
        self._pause = pause
        self._last = 0.0

    async def numbers(self) -> Sequence[int]:
        await self._turn()
        return sorted(self._disk.files)

    async def read(self, number: int) -> bytes:
        await self._turn()
        return self._disk.files[number].data

    async def create(self, number: int) -> None:
        await self._turn()
        if self._faults.full:
            raise OSError("no space is left on the simulated disk")
        if number in self._disk.files:
            raise FileExistsError(f"file {number} is there already")
        self._disk.files[number] = WalFile()

    async def write(self, number: int, buffers: Sequence[bytes]) -> None:
        await self._turn()
        if self._faults.dies == "before":
            self._dies()
        file, data = self._disk.files[number], b"".join(buffers)
        if self._faults.full:
            file.data += data[: self._environment.random.randrange(len(data) + 1)]
            raise OSError("no space is left on the simulated disk")
        file.data += data
        if self._faults.pauses:
            self._faults.pauses = False
            self._pause()
        await self._turn()
        if self._faults.dies == "unsynced":
            self._dies()
        file.synced = len(file.data)
        if self._faults.dies == "synced":
            self._dies()

    async def cut(self, number: int, size: int) -> None:
        await self._turn()
        if self._faults.broken:
            raise OSError("the simulated disk does not answer")
        file = self._disk.files[number]
        file.data = file.data[:size]
        file.synced = len(file.data)

    async def remove(self, number: int) -> None:
        await self._turn()
        self._disk.files.pop(number, None)

    async def _turn(self) -> None:
        """Waits until everything asked for before is done, and a moment more."""
        loop = asyncio.get_running_loop()
        self._last = max(self._last, loop.time()) + self._environment.random.random() * SYNC_DELAY
        await asyncio.sleep(self._last - loop.time())
        self._environment.domain.check()

    def _dies(self) -> None:
        self._faults.dies = ""
        self._die()
        raise Killed(self._environment.name)
