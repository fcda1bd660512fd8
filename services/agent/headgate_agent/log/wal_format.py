"""The format of a write-ahead file.

A file begins with its mark and its number (u64), in one sector with the first frame: neither is on a disk without the
other. An entry is a kind, a small head and a body. Its frame:

    length   u32   of head and body
    crc      u32   CRC32C of the file's number (u64) and the rest of the frame
    sequence u64   grows by one with each entry, over all files
    starts   u8    1 for the first entry of a write, which begins only when all before it was synced
    kind     u8
    head     u16   length of the head
    head, body
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from crc32c import crc32c

# What a file begins with: the mark carries the version of the format.
_BEGINNING = struct.Struct(">8sQ")
BEGINNING_BYTES = _BEGINNING.size
_MARK = b"hgwal\0\0\3"
_NUMBER = struct.Struct(">Q")
_FRAME = struct.Struct(">IIQBBH")
_CHECKED = struct.Struct(">QBBH")
FRAME_BYTES = _FRAME.size
# Where in a frame the check, the sequence and the mark of a write begin.
_CRC_FROM = SEQUENCE_AT = 8
START_AT = 16


class WalStopped(RuntimeError):
    """The log cannot say what is on disk any more; restart and recover. The entry is not on it."""


class WalUncertain(WalStopped):
    """The same, of an entry that may be on the disk: recovery knows."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry is: its file, where its frame begins there, and the size of that."""

    file: int
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class Entry:
    """What was appended, and the file it is in: a file is removed when nothing in it is needed any more."""

    sequence: int
    file: int
    kind: int
    head: bytes
    body: bytes
    # Where in the file its frame begins.
    position: int = 0

    @property
    def place(self) -> Place:
        return Place(self.file, self.position, FRAME_BYTES + len(self.head) + len(self.body))


@dataclass(frozen=True, slots=True)
class Frame:
    """What an entry says; and who is told where it is to be, before it is written."""

    kind: int
    head: bytes
    body: Sequence[bytes] = ()
    placed: Callable[[Place], None] | None = None

    @property
    def size(self) -> int:
        return len(self.head) + sum(len(part) for part in self.body)


@dataclass(frozen=True, slots=True)
class Found:
    """An entry in the bytes of a file, the position after it, and whether a write begins with it."""

    entry: Entry
    end: int
    starts: bool


def beginning(number: int) -> bytes:
    return _BEGINNING.pack(_MARK, number)


def encode(file: int, sequence: int, frame: Frame, *, starts: bool) -> list[bytes]:
    """The buffers of an entry."""
    rest = _CHECKED.pack(sequence, starts, frame.kind, len(frame.head)) + frame.head
    crc = crc32c(rest, _seed(file))
    for part in frame.body:
        crc = crc32c(part, crc)
    return [struct.pack(">II", frame.size, crc) + rest, *frame.body]


def frames(data: bytes, number: int) -> Iterator[Found]:
    """The whole entries at the start of a file's bytes. None where it was begun and nothing written yet; `WalStopped`
    where it is of another version."""
    position = BEGINNING_BYTES
    found = entry_at(data, number, position) if _is_begun(data, number) else None
    while found is not None:
        yield found
        found = entry_at(data, number, found.end)


def entry_at(data: bytes, number: int, position: int) -> Found | None:
    """The entry whose frame begins there; None where there is none that is whole."""
    if position + FRAME_BYTES > len(data):
        return None
    length, crc, sequence, starts, kind, head_length = _FRAME.unpack_from(data, position)
    end = position + FRAME_BYTES + length
    if end > len(data) or head_length > length:
        return None
    if crc32c(memoryview(data)[position + _CRC_FROM : end], _seed(number)) != crc:
        return None
    body_at = position + FRAME_BYTES + head_length
    entry = Entry(sequence, number, kind, data[position + FRAME_BYTES : body_at], data[body_at:end], position)
    return Found(entry, end, starts == 1)


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
    return data[len(_MARK) : BEGINNING_BYTES] == _NUMBER.pack(number)


def _seed(number: int) -> int:
    return crc32c(_NUMBER.pack(number))
