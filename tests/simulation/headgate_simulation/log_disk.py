"""The disk under a write-ahead log: what was synced survives everything, what was only written may be torn.

A file has its bytes as the operating system shows them, and knows what its last write has changed while that is not on
the disk for certain. A process that dies leaves both as they are. A machine that loses power keeps what is certain, and
of the rest nothing, a part, or a part with what was there before (or zeros) in front of it or behind it. `WalFiles` of
production's contract; operations happen in the order of the calls. A new file holds what the one before it holds, as
if it were written over a former one.
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
# Bytes; small, as writes are here, and still more than a file's beginning with a frame.
SECTOR = 64


@dataclass(frozen=True, slots=True)
class Unsure:
    """A write that is not on the disk for certain: where it began, how long it is, and what was there before."""

    position: int
    length: int
    before: bytes


@dataclass(slots=True)
class WalFile:
    data: bytes = b""
    unsure: Unsure | None = None

    @property
    def certain(self) -> bytes:
        """What is on the disk whatever happens, without what the last write may have changed."""
        unsure = self.unsure
        if unsure is None:
            return self.data
        return self.data[: unsure.position] + self.data[unsure.position + unsure.length :]

    def put(self, position: int, data: bytes) -> None:
        end = position + len(data)
        self.unsure = Unsure(position, len(data), self.data[position:end])
        self.data = self.data[:position] + data + self.data[end:]

    def lose_power(self, source: random.Random) -> None:
        unsure = self.unsure
        if unsure is None or not unsure.length:
            return
        start, end = unsure.position, unsure.position + unsure.length
        new, behind = self.data[start:end], self.data[end:]
        old = unsure.before + bytes(unsure.length - len(unsure.before))
        kept = source.choice((0, len(new), *(source.randrange(len(new) + 1) for _ in range(3))))
        if source.random() < 0.2:
            # Sectors reach a disk in any order, each of them whole.
            kept = max(0, (start + kept) // SECTOR * SECTOR - start)
            left = old[:kept] + new[kept:]
        else:
            left = new[:kept] + old[kept:]
            if not behind and source.random() < 0.33:
                left = left[: max(kept, len(unsure.before))]
        self.data = self.data[:start] + left + behind
        self.unsure = None


@dataclass(slots=True)
class WalDisk:
    """The files of one volume."""

    files: dict[int, WalFile] = field(default_factory=dict)

    def lose_power(self, source: random.Random) -> None:
        for file in self.files.values():
            file.lose_power(source)


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
        in_the_middle: Callable[[], None],
    ) -> None:
        """`in_the_middle` is called when a write is on its way to the disk and not there for certain."""
        self._disk = disk
        self._environment = environment
        self._faults = faults
        self._die = die
        self._in_the_middle = in_the_middle
        self._last = 0.0

    async def numbers(self) -> Sequence[int]:
        await self._turn()
        return sorted(self._disk.files)

    async def read(self, number: int) -> bytes:
        await self._turn()
        return self._disk.files[number].data

    async def read_part(self, number: int, position: int, length: int) -> bytes:
        await self._turn()
        if number not in self._disk.files:
            raise FileNotFoundError(f"there is no file {number}")
        return self._disk.files[number].data[position : position + length]

    async def create(self, number: int) -> None:
        await self._turn()
        if number in self._disk.files:
            raise FileExistsError(f"file {number} is there already")
        if self._faults.full:
            raise OSError("no space is left on the simulated disk")
        former = self._disk.files.get(number - 1)
        self._disk.files[number] = WalFile(former.data if former else b"")

    async def write(self, number: int, position: int, buffers: Sequence[bytes]) -> None:
        await self._turn()
        if self._faults.dies == "before":
            self._dies()
        file, data = self._disk.files[number], b"".join(buffers)
        if self._faults.full:
            file.put(position, data[: self._left_of(len(data))])
            raise OSError("no space is left on the simulated disk")
        file.put(position, data)
        self._in_the_middle()
        await self._turn()
        if self._faults.dies == "unsynced":
            self._dies()
        file.unsure = None
        if self._faults.dies == "synced":
            self._dies()

    def _left_of(self, length: int) -> int:
        """How much of a write that fails is in the file. A disk that breaks often does so when all of it is."""
        source = self._environment.random
        return length if self._faults.broken and source.random() < 0.5 else source.randrange(length + 1)

    async def cut(self, number: int, size: int) -> None:
        await self._turn()
        if self._faults.broken:
            raise OSError("the simulated disk does not answer")
        file = self._disk.files[number]
        file.data, file.unsure = file.data[:size], None

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
