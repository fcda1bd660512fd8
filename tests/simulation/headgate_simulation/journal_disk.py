"""The disk under an agent's journal, at the level of the system calls that production's `FileJournal` makes.

A file has its bytes as the operating system shows them, of which those in front of `sure` are on the disk whatever
happens; a name has the file that it shows, and the one that it has for certain. A process that dies leaves all of that
as it is, in the middle of a write too. A machine that loses power keeps what is certain, and of the rest what the seed
says: all of it, a part, zeros, blocks in any order, or nothing. What a sync was asked for is certain when its call
returns, not before. What a failed sync was asked for is shown as before, and no later sync makes it certain: only what
is written again can be.

`os` in the module of the journal is replaced by one that knows these files, and passes everything else on.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from headgate_agent.fragments import journal
from headgate_agent.fragments.journal import FileJournal
from headgate_simulation.loop import Killed, SimulationError
from headgate_simulation.processes import Environment

# How long what is done on the journal's thread takes at most, in seconds.
DISK_DELAY = 0.004
# How often what a power failure left of a write has zeros behind it up to the end of the write, as where a file was
# made longer before its blocks were written; and how often some of its blocks are missing, as where they are written in
# any order. In their place are zeros, or what the disk had there before. Otherwise it is cut short.
ZEROS_BEHIND = 0.25
ANY_ORDER = 0.35
# The longest block, in bytes. Groups of records are short too.
BLOCK = 48


@dataclass(slots=True, eq=False)
class DiskFile:
    data: bytearray = field(default_factory=bytearray)
    sure: int = 0
    # What a failed sync was asked for, from here to there.
    lost: tuple[int, int] | None = None

    def put(self, position: int, data: bytes) -> None:
        end = position + len(data)
        changed = self.data[position:end] != data
        self.data[position:end] = data
        if changed:
            self.sure = min(self.sure, position)
        if self.lost is not None and position <= self.lost[0] and self.lost[1] <= end:
            self.sure = min(self.sure, self.lost[0])
            self.lost = None

    def cut(self, length: int) -> None:
        del self.data[length:]
        self.sure = min(self.sure, length)
        if self.lost is not None:
            self.lost = (self.lost[0], min(self.lost[1], length)) if self.lost[0] < length else None

    def lose_power(self, source: random.Random) -> None:
        if self.lost is not None and self.lost[1] <= self.sure:
            start, end = self.lost
            self.data[start:end] = _torn(bytes(self.data[start:end]), source)
        elif self.lost is not None:
            self.sure = min(self.sure, self.lost[0])
        self.lost = None
        if self.sure < len(self.data):
            written = bytes(self.data[self.sure :])
            kept = source.choice((0, len(written), *(source.randrange(len(written) + 1) for _ in range(3))))
            how = source.random()
            if how < ANY_ORDER:
                written = _torn(written, source)
            elif how < ANY_ORDER + ZEROS_BEHIND:
                written = written[:kept] + bytes(len(written) - kept)
            else:
                written = written[:kept]
            self.data[self.sure :] = written
        self.sure = len(self.data)


def _torn(written: bytes, source: random.Random) -> bytes:
    """Its blocks, of which some are missing."""
    left, position = bytearray(), 0
    while position < len(written):
        block = written[position : position + source.randint(1, BLOCK)]
        position += len(block)
        left += source.choice((block, block, bytes(len(block)), source.randbytes(len(block))))
    return bytes(left)


@dataclass(slots=True)
class JournalDisk:
    """A folder: by name, what is shown, and what is there for certain."""

    shown: dict[str, DiskFile] = field(default_factory=dict)
    certain: dict[str, DiskFile] = field(default_factory=dict)

    def lose_power(self, source: random.Random) -> None:
        for name in {**self.certain, **self.shown}:
            now, before = self.shown.get(name), self.certain.get(name)
            left = now if now is before else source.choice((now, before))
            if left is None:
                self.shown.pop(name, None)
                self.certain.pop(name, None)
                continue
            self.shown[name] = self.certain[name] = left
            left.lose_power(source)


@dataclass(slots=True)
class JournalFaults:
    """What is wrong with the disk under one agent's journal just now. Changed by `faults.py`."""

    full: bool = False
    # How often something cannot be made durable.
    sync_fails: float = 0.0
    # Whether the process dies at its next write: "before" it, "unsynced" in the middle of it, or "after" it; or when it
    # has "renamed" a new file. Or only its next sync fails: of a "file", or of a "name".
    dies: str = ""
    # Whether then nothing happens to others.
    alone: bool = False
    # Whether its machine loses power then; after how long it is up again (0: when the fault is over); and how long
    # after that its machine loses power once more (0: not).
    power: bool = False
    down: float = 0.0
    again: float = 0.0


class Access:
    """One process's way to the folder of its journal."""

    def __init__(
        self,
        disk: JournalDisk,
        environment: Environment,
        faults: JournalFaults,
        source: random.Random,
        die: Callable[[], None],
        fails: Callable[[], None] = lambda: None,
    ) -> None:
        """`source` says how much of a write is there when it fails or is the last thing; `fails` is called when a sync
        was told to."""
        self.disk = disk
        self.faults = faults
        self._environment = environment
        self._source = source
        self._die = die
        self._told_to_fail = fails
        # What becomes certain when the call that is under way returns.
        self._syncing: list[Callable[[], None]] = []

    def begins(self) -> None:
        """A system call is made: those before it have returned."""
        self._environment.domain.check()
        done, self._syncing = self._syncing, []
        for certain in done:
            certain()

    def write(self, file: DiskFile, data: bytes, position: int) -> int:
        self.begins()
        if self.faults.dies == "before":
            self.dies()
        full = self.faults.full and position + len(data) > len(file.data)
        if full or self.faults.dies == "unsynced":
            written = self._source.choice((0, len(data), len(data), self._source.randrange(len(data) + 1)))
            file.put(position, data[:written])
            if self.faults.dies == "unsynced":
                self.dies()
            raise OSError(errno.ENOSPC, "no space is left on the simulated disk")
        file.put(position, data)
        return len(data)

    def sync(self, file: DiskFile) -> None:
        self.begins()
        length = len(file.data)
        if self._fails("file"):
            file.lost = (file.sure, length)
            raise OSError(errno.EIO, "the simulated disk does not answer")
        self._syncing.append(lambda: setattr(file, "sure", max(file.sure, min(length, len(file.data)))))

    def _fails(self, what: str) -> bool:
        if self.faults.dies == what:
            self.faults.dies = ""
            self._told_to_fail()
            return True
        return bool(self.faults.sync_fails) and self._source.random() < self.faults.sync_fails

    def sync_names(self) -> None:
        self.begins()
        if self._fails("name"):
            raise OSError(errno.EIO, "the simulated disk does not answer")
        shown = dict(self.disk.shown)
        self._syncing.append(lambda: self.disk.certain.update(shown))

    def returned(self) -> None:
        """The last call of the thread has returned."""
        synced = bool(self._syncing)
        self.begins()
        if synced and self.faults.dies == "after":
            self.dies()

    def dies(self) -> None:
        self.faults.dies = ""
        self._die()
        raise Killed(self._environment.name)


@dataclass(frozen=True, slots=True)
class DiskPath:
    """As much of a `Path` as the journal uses. Without a name it is the folder."""

    access: Access
    name: str = ""

    def __str__(self) -> str:
        return self.name or "."

    @property
    def parent(self) -> DiskPath:
        return DiskPath(self.access)

    def with_suffix(self, suffix: str) -> DiskPath:
        return DiskPath(self.access, self.name.rpartition(".")[0] + suffix)

    def mkdir(self, *, parents: bool, exist_ok: bool) -> None:
        """The folder is there."""

    def exists(self) -> bool:
        return self.name in self.access.disk.shown

    def read_bytes(self) -> bytes:
        return bytes(self.access.disk.shown[self.name].data)

    def replace(self, target: DiskPath) -> None:
        self.access.begins()
        shown = self.access.disk.shown
        shown[target.name] = shown.pop(self.name)
        if self.access.faults.dies == "renamed":
            self.access.dies()


@dataclass(slots=True)
class Descriptor:
    """A file, or with none the folder, that a process has open."""

    access: Access
    file: DiskFile | None


class SimulatedOs:
    """`os` for files of both kinds."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def open(path: Any, flags: int, mode: int = 0o777) -> Any:
        if not isinstance(path, DiskPath):
            return os.open(path, flags, mode)
        if not path.name:
            return Descriptor(path.access, None)
        shown = path.access.disk.shown
        if flags & os.O_TRUNC or (path.name not in shown and flags & os.O_CREAT):
            path.access.begins()
            shown[path.name] = DiskFile()
        return Descriptor(path.access, shown[path.name])

    @staticmethod
    def close(file: Any) -> None:
        if not isinstance(file, Descriptor):
            os.close(file)

    @staticmethod
    def pwrite(file: Any, data: bytes, position: int) -> int:
        if not isinstance(file, Descriptor):
            return os.pwrite(file, data, position)
        assert file.file is not None
        return file.access.write(file.file, data, position)

    @staticmethod
    def ftruncate(file: Any, length: int) -> None:
        if not isinstance(file, Descriptor):
            os.ftruncate(file, length)
            return
        assert file.file is not None
        file.access.begins()
        file.file.cut(length)

    @staticmethod
    def fsync(file: Any) -> None:
        if not isinstance(file, Descriptor):
            os.fsync(file)
        elif file.file is None:
            file.access.sync_names()
        else:
            file.access.sync(file.file)

    @staticmethod
    def fdatasync(file: Any) -> None:
        if not isinstance(file, Descriptor):
            os.fdatasync(file)
            return
        assert file.file is not None
        file.access.sync(file.file)


vars(journal)["os"] = SimulatedOs()


class SimulatedJournal(FileJournal):
    """Production's journal, on a simulated thread and disk. It has one thing at a time on the thread.

    Half of the time that a call takes is before what it does, half is until it is certain and returns.
    """

    def __init__(
        self, access: Access, source: random.Random, kept: Callable[[bytes], None] = lambda record: None
    ) -> None:
        """`kept` is called with each record once it is durable, before anybody else acts on it."""
        super().__init__(cast(Any, DiskPath(access, "fragments.journal")))
        self._access = access
        self._source = source
        self._kept = kept

    async def append(self, record: bytes) -> None:
        await super().append(record)
        self._kept(record)

    def run_on_thread(self, work: Callable[[], Any], name: str) -> asyncio.Future[Any]:
        """See `loop.py`."""
        if name not in ("_open", "_write", "_replace"):
            raise SimulationError(f"it is not said how {name} of the journal runs")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        loop.call_later(self._source.random() * DISK_DELAY / 2, self._do, work, answer)
        return answer

    def _do(self, work: Callable[[], Any], answer: asyncio.Future[Any]) -> None:
        result: Any = None
        failure: Exception | None = None
        try:
            result = work()
        except Exception as error:
            failure = error
        after = self._source.random() * DISK_DELAY / 2
        asyncio.get_running_loop().call_later(after, self._return, result, failure, answer)

    def _return(self, result: Any, failure: Exception | None, answer: asyncio.Future[Any]) -> None:
        self._access.returned()
        if answer.done():
            return
        if failure is not None:
            answer.set_exception(failure)
        else:
            answer.set_result(result)
