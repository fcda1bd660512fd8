"""The write-ahead log: one for all partitions of an agent, with group commit.

Contract: `append` returns when its entry, and every entry appended before it, is on disk; entries come back from
`recover` in the order of their appends, each whole, and none that was answered is missing. What was appended and not
answered may come back or not. While one write is being synced the next one gathers, so the rate of syncs is the disk's
and the size of each is the load's.

An entry is built only when its turn to be written has come, in the order of the appends and when the fate of all
before it is known; so what it says (offsets, sequences) may depend on what was written before. A failed write is
undone (the file is cut back to what is known to be durable, and each entry's `undo` is called, last first) before
anything else is built, and refused to its callers. If the file cannot be cut back the log stops for good with
`WalStopped`, because entries written over a tail of unknown fate would make recovery lie. The process then restarts
and recovers.

Files are written over what a former one has left, because a disk is quicker where nothing has to be allocated: what
lies behind the last entry is of another number, so its checks fail. A file that is full is cut there before the next
one is begun; only the last file can end in anything but an entry. `wal_format.py` has the bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate_agent.log.wal_damage import write_behind
from headgate_agent.log.wal_format import (
    BEGINNING_BYTES,
    FRAME_BYTES,
    Entry,
    Frame,
    Place,
    WalStopped,
    WalUncertain,
    beginning,
    encode,
    entry_at,
    frames,
)
from headgate_common.signals import Signal

__all__ = ["Barrier", "Entry", "Fixed", "Frame", "Place", "Wal", "WalFiles", "WalRefused", "WalStopped", "WalUncertain"]

DEFAULT_FILE_BYTES = 128 * 1024 * 1024


class WalRefused(RuntimeError):
    """An entry was not written, certainly; the message says why (a full disk, for example)."""


class WalFiles(Protocol):
    """Where the files are.

    Contract: what a new file holds is anything that was written to others before. `write` returns when the buffers are
    durable from a position on, which is where the last write ended, or raises `OSError`, and then what is there and
    behind it is unknown until `cut` has returned, which makes what is left durable and the rest gone. A `create` that
    raised may have made its file, may be repeated, and leaves the file before it as it is. Files are numbered and come
    back from `numbers` in order. `read_part` answers less where the file ends before, and raises `OSError` where there
    is none.
    """

    async def numbers(self) -> Sequence[int]: ...

    async def read(self, number: int) -> bytes: ...

    async def read_part(self, number: int, position: int, length: int) -> bytes: ...

    async def create(self, number: int) -> None: ...

    async def write(self, number: int, position: int, buffers: Sequence[bytes]) -> None: ...

    async def cut(self, number: int, size: int) -> None: ...

    async def remove(self, number: int) -> None: ...


class Appendable(Protocol):
    """Something to be written when its turn has come.

    Contract: `build` is called once, synchronously; None means that there is nothing to write after all (a duplicate,
    say), and the append is answered with its group. If it raises, this append alone is refused with that error.
    After a `build` that returned, either `written` is called, with the file that the group is in, once it is durable,
    or `undo`, last first, if the group was not written. Both come before anyone is answered, and whether or not the
    caller still waits.
    """

    def build(self) -> Frame | None: ...

    def written(self, file: int) -> None: ...

    def undo(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """An entry that depends on nothing before it."""

    frame: Frame

    def build(self) -> Frame | None:
        return self.frame

    def written(self, file: int) -> None:
        return

    def undo(self) -> None:
        return


@dataclass(frozen=True, slots=True)
class Barrier:
    """Nothing to write: an append of it is answered when the fate of all before it is known."""

    def build(self) -> Frame | None:
        return None

    def written(self, file: int) -> None:
        return

    def undo(self) -> None:
        return


@dataclass(slots=True)
class _Waiting:
    item: Appendable
    file: asyncio.Future[int]


class Wal:
    def __init__(self, files: WalFiles, *, file_bytes: int = DEFAULT_FILE_BYTES) -> None:
        self._files = files
        self._file_bytes = file_bytes
        self._number = 0
        self._size = 0
        # The next file has been asked for and may be there: this one is not written to again, because only the last
        # may end in anything but an entry.
        self._full = False
        self._sequence = 0
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None
        self._stopped: str | None = None
        # Set when a file was begun, so that one before it may not be needed any more. Whoever looks clears it.
        self.rolled = Signal()
        # Groups, each with one fdatasync, and bytes of them, since the start.
        self.writes = 0
        self.bytes_written = 0

    @property
    def stopped(self) -> str | None:
        """Why the log takes nothing more; None while it does."""
        return self._stopped

    @property
    def current_file(self) -> int:
        return self._number

    async def recover(self) -> list[Entry]:
        """What is in the files, in order. Call once, before the first append. A torn tail of the last file is cut, and
        what is before it synced."""
        entries: list[Entry] = []
        numbers = list(await self._files.numbers())
        for number in numbers:
            data = await self._files.read(number)
            good = 0
            for found in frames(data, number):
                entry = found.entry
                if entries and entry.sequence != entries[-1].sequence + 1:
                    raise WalStopped(
                        f"file {number}: entry {entry.sequence} follows {entries[-1].sequence}; a file is missing"
                    )
                entries.append(entry)
                good = found.end
            if good < len(data) and number != numbers[-1]:
                raise WalStopped(f"file {number} is damaged at byte {good}, and files after it are whole")
            if number == numbers[-1]:
                behind = write_behind(data, number, good, entries[-1].sequence if entries else 0)
                if behind is not None:
                    raise WalStopped(f"file {number} is damaged at byte {good}, and what begins at {behind} is whole")
                # Also where nothing is torn: a process may have died between a write and its sync, and what is read
                # now, and served from now on, must be on the disk.
                await self._files.cut(number, good)
        if entries:
            self._sequence = entries[-1].sequence
        self._number = numbers[-1] if numbers else 0
        # A new file each time: the last one's end has been cut, and is left as it is.
        await self._roll()
        return entries

    async def append(self, item: Appendable) -> int:
        """Writes an entry; answers the number of the file that it is in, once it is durable."""
        # A caller that is cancelled leaves its entry to be written: its fate is then unknown to it, as over a network.
        return await asyncio.shield(self.submit(item))

    def submit(self, item: Appendable) -> asyncio.Future[int]:
        """As `append`, which it begins at once: entries are written in the order of these calls."""
        if self._stopped is not None:
            raise WalStopped(self._stopped)
        if self._number == 0:
            raise RuntimeError("recover comes before append")
        waiting = _Waiting(item, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._write())
        return waiting.file

    async def read(self, place: Place) -> Entry:
        """An entry that was written, from its file; `WalRefused` if that is gone or cannot be read."""
        try:
            data = await self._files.read_part(place.file, place.position, place.size)
        except OSError as error:
            raise WalRefused(f"file {place.file} cannot be read: {error}") from error
        found = entry_at(data, place.file, 0)
        if found is None:
            raise WalRefused(f"file {place.file} is damaged at byte {place.position}")
        return found.entry

    async def remove_before(self, number: int) -> None:
        """Removes the files before `number`; never the one being written."""
        for old in await self._files.numbers():
            if old < min(number, self._number):
                await self._files.remove(old)

    async def close(self) -> None:
        """Waits for what was appended; appends after it are refused."""
        if self._writer is not None:
            await self._writer
        self._stopped = self._stopped or "the log is closed"

    async def _write(self) -> None:
        try:
            while self._waiting and self._stopped is None:
                group, self._waiting = self._waiting, []
                try:
                    await self._write_group(group)
                except Exception as error:
                    self._stopped = f"a defect: {error!r}"
                    _fail(group, WalUncertain(self._stopped))
                    raise
        finally:
            self._writer = None
            if self._stopped is not None:
                _fail(self._waiting, WalStopped(self._stopped))
                self._waiting = []

    async def _write_group(self, waiting: list[_Waiting]) -> None:
        group: list[_Waiting] = []
        frames_of: list[tuple[int, Frame]] = []
        sequence, total = self._sequence, 0
        for one in waiting:
            try:
                frame = one.item.build()
            except Exception as error:
                _fail([one], error)
                continue
            group.append(one)
            if frame is not None:
                sequence += 1
                total += FRAME_BYTES + frame.size
                frames_of.append((sequence, frame))
        try:
            if frames_of:
                if self._full or (self._size and self._size + total > self._file_bytes):
                    self._full = True
                    # What a former file left behind its end must not be taken for damage.
                    await self._files.cut(self._number, self._size)
                    await self._roll()
                buffers = [] if self._size else [beginning(self._number)]
                position = self._size or BEGINNING_BYTES
                for number, frame in frames_of:
                    buffers.extend(encode(self._number, number, frame, starts=number == frames_of[0][0]))
                    size = FRAME_BYTES + frame.size
                    if frame.placed is not None:
                        frame.placed(Place(self._number, position, size))
                    position += size
                total += 0 if self._size else BEGINNING_BYTES
                await self._files.write(self._number, self._size, buffers)
        except OSError as error:
            await self._undo(group, error)
            return
        self._sequence = sequence
        self._size += total
        self.writes += bool(frames_of)
        self.bytes_written += total
        for one in group:
            one.item.written(self._number)
        for one in group:
            if not one.file.done():
                one.file.set_result(self._number)

    async def _undo(self, group: list[_Waiting], error: OSError) -> None:
        try:
            await self._files.cut(self._number, self._size)
        except OSError as second:
            self._stopped = f"a write failed ({error}) and could not be undone ({second})"
            _fail(group, WalUncertain(self._stopped))
            return
        for one in reversed(group):
            one.item.undo()
        _fail(group, WalRefused(f"not written: {error}"))

    async def _roll(self) -> None:
        await self._files.create(self._number + 1)
        self._number += 1
        self._size = 0
        self._full = False
        self.rolled.set()


def _fail(group: Sequence[_Waiting], error: Exception) -> None:
    for waiting in group:
        if not waiting.file.done():
            waiting.file.set_exception(error)
            # The caller may have been cancelled; an exception nobody fetches is not a defect then.
            waiting.file.exception()
