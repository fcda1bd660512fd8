"""A small record that survives crashes: the last one written, or the one before, and never half of one.

Two places in one file are written in turn, each with a number and a checksum, each write followed by fdatasync. What is
read is the whole one with the higher number.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

_SIZE = 4_096
_HEADER = struct.Struct("<QII")


class SlotsCorrupt(Exception):
    """There were records, and none of them is whole."""


class Slots:
    """The record of one file. Not for use by two processes at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._number = 0
        self._descriptor: int | None = None

    def open(self) -> bytes | None:
        """The last record; None if there never was one."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        made = not self._path.exists()
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if made:
            _sync_folder(self._path.parent)
        content = os.pread(self._descriptor, 2 * _SIZE, 0)
        whole = [found for found in (_read(content[:_SIZE]), _read(content[_SIZE:])) if found is not None]
        if whole:
            self._number, record = max(whole)
            return record
        # The very first write may have been cut short; it goes to the second place, and nothing is in the first.
        if any(content[:_SIZE]):
            raise SlotsCorrupt(str(self._path))
        return None

    def write(self, record: bytes) -> None:
        """Durable when it returns; an OSError means that the record before may still be the last one."""
        if self._descriptor is None or len(record) > _SIZE - _HEADER.size:
            raise ValueError("the slots are not open, or the record is too long")
        number = self._number + 1
        framed = _HEADER.pack(number, len(record), zlib.crc32(record, number & 0xFFFFFFFF)) + record
        place = (number % 2) * _SIZE
        if os.pwrite(self._descriptor, framed.ljust(_SIZE, b"\0"), place) != _SIZE:
            raise OSError(f"{self._path} was written only in part")
        os.fdatasync(self._descriptor)
        self._number = number

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _read(place: bytes) -> tuple[int, bytes] | None:
    if len(place) < _HEADER.size:
        return None
    number, length, checksum = _HEADER.unpack_from(place)
    record = place[_HEADER.size : _HEADER.size + length]
    if not number or len(record) != length or zlib.crc32(record, number & 0xFFFFFFFF) != checksum:
        return None
    return number, record


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
