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

A file begins with its mark and its number (u64). An entry is a kind, a small head and a body. Its frame:

    length   u32   of head and body
    crc      u32   CRC32C of the file's number (u64) and the rest of the frame
    sequence u64   grows by one with each entry, over all files
    kind     u8
    head     u16   length of the head
    head, body

Files are written over what a former one has left, because a disk is quicker where nothing has to be allocated: what
lies behind the last entry is of another number, so its checks fail. A file that is full is cut there before the next
one is begun; only the last file can end in anything but an entry.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from crc32c import crc32c

# What a file begins with: the mark carries the version of the format.
_BEGINNING = struct.Struct(">8sQ")
_MARK = b"hgwal\0\0\2"
_NUMBER = struct.Struct(">Q")
_FRAME = struct.Struct(">IIQBH")
FRAME_BYTES = _FRAME.size
_CRC_FROM = 8
DEFAULT_FILE_BYTES = 128 * 1024 * 1024


class WalStopped(RuntimeError):
    """The log cannot say what is on disk any more; restart and recover."""


class WalRefused(RuntimeError):
    """An entry was not written, certainly; the message says why (a full disk, for example)."""


class WalFiles(Protocol):
    """Where the files are.

    Contract: what a new file holds is anything that was written to others before. `write` returns when the buffers are
    durable from a position on, which is where the last write ended, or raises `OSError`, and then what is there and
    behind it is unknown until `cut` has returned, which makes what is left durable and the rest gone. A `create` that
    raised may have made its file, may be repeated, and leaves the file before it as it is. Files are numbered and come
    back from `numbers` in order.
    """

    async def numbers(self) -> Sequence[int]: ...

    async def read(self, number: int) -> bytes: ...

    async def create(self, number: int) -> None: ...

    async def write(self, number: int, position: int, buffers: Sequence[bytes]) -> None: ...

    async def cut(self, number: int, size: int) -> None: ...

    async def remove(self, number: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """What was appended, and the file it is in: a file is removed when nothing in it is needed any more."""

    sequence: int
    file: int
    kind: int
    head: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Frame:
    """What an entry says."""

    kind: int
    head: bytes
    body: Sequence[bytes] = ()

    @property
    def size(self) -> int:
        return len(self.head) + sum(len(part) for part in self.body)


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
        self.rolled = asyncio.Event()
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
            for entry, end in frames(data, number):
                if entries and entry.sequence != entries[-1].sequence + 1:
                    raise WalStopped(
                        f"file {number}: entry {entry.sequence} follows {entries[-1].sequence}; a file is missing"
                    )
                entries.append(entry)
                good = end
            if good < len(data) and number != numbers[-1]:
                raise WalStopped(f"file {number} is damaged at byte {good}, and files after it are whole")
            if number == numbers[-1]:
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
                    _fail(group, WalStopped(self._stopped))
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
                buffers = [] if self._size else [_BEGINNING.pack(_MARK, self._number)]
                for number, frame in frames_of:
                    buffers.extend(_encode(self._number, number, frame))
                total += 0 if self._size else _BEGINNING.size
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
            _fail(group, WalStopped(self._stopped))
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


def frames(data: bytes, number: int) -> Iterator[tuple[Entry, int]]:
    """The whole entries at the start of a file's bytes, each with the position after it. None where it was begun and
    nothing written yet; `WalStopped` where it is of another version."""
    if not _is_begun(data, number):
        return
    position, seed = _BEGINNING.size, _seed(number)
    while position + FRAME_BYTES <= len(data):
        length, crc, sequence, kind, head_length = _FRAME.unpack_from(data, position)
        end = position + FRAME_BYTES + length
        if end > len(data) or head_length > length:
            return
        if crc32c(memoryview(data)[position + _CRC_FROM : end], seed) != crc:
            return
        body_at = position + FRAME_BYTES + head_length
        yield Entry(sequence, number, kind, data[position + FRAME_BYTES : body_at], data[body_at:end]), end
        position = end


def _is_begun(data: bytes, number: int) -> bool:
    mark = data[: len(_MARK)]
    if _MARK.startswith(mark.rstrip(b"\0")) and mark != _MARK:
        # Nothing, or what a power failure left of the first write.
        return False
    if mark != _MARK:
        raise WalStopped(
            f"file {number} is not of this version's format: start the version that wrote it, and stop it with SIGTERM "
            "while the coordinator and the object store answer"
        )
    return data[len(_MARK) : _BEGINNING.size] == _NUMBER.pack(number)


def _seed(number: int) -> int:
    return crc32c(_NUMBER.pack(number))


def _encode(file: int, sequence: int, frame: Frame) -> list[bytes]:
    rest = struct.pack(">QBH", sequence, frame.kind, len(frame.head)) + frame.head
    crc = crc32c(rest, _seed(file))
    for part in frame.body:
        crc = crc32c(part, crc)
    return [struct.pack(">II", frame.size, crc) + rest, *frame.body]


def _fail(group: Sequence[_Waiting], error: Exception) -> None:
    for waiting in group:
        if not waiting.file.done():
            waiting.file.set_exception(error)
            # The caller may have been cancelled; an exception nobody fetches is not a defect then.
            waiting.file.exception()
