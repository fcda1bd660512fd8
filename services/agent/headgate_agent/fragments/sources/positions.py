"""Where a FILE source is: which files it knows, and how far each is read."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field

_FORMAT = 1
# How many bytes of a file's beginning tell it from another that got the same inode.
_HEAD = 256


@dataclass(slots=True)
class FileState:
    """A file that is being read: its identity (device and inode), its path when last seen, the offset of the first byte
    that was not taken (always the beginning of a record), how many records were taken, and a digest of its start."""

    key: str
    path: str
    offset: int = 0
    rows: int = 0
    head_length: int = 0
    head: str = ""

    def remember_head(self, descriptor: int, up_to: int) -> None:
        """Takes the digest of the beginning, of no more than was read: what follows may still be written."""
        length = min(up_to, _HEAD)
        if length > self.head_length:
            self.head_length, self.head = length, digest(descriptor, length)

    def told(self) -> tuple[str, str, int, int, int, str]:
        """All that is known of it, in the order of the fields."""
        return self.key, self.path, self.offset, self.rows, self.head_length, self.head

    def is_file(self, descriptor: int) -> bool:
        """Whether an open file begins as this one did, and has all that was taken."""
        return os.fstat(descriptor).st_size >= self.offset and digest(descriptor, self.head_length) == self.head


@dataclass(slots=True)
class FilePosition:
    """All that a FILE source must know to go on: `after` is the last name that was read to its end (where it does not
    follow), `files` those that are being read."""

    after: str = ""
    files: list[FileState] = field(default_factory=list)

    def encoded(self) -> bytes:
        files = [state.told() for state in self.files]
        return json.dumps({"format": _FORMAT, "after": self.after, "files": files}, separators=(",", ":")).encode()

    def copied(self) -> FilePosition:
        """As it is now, whatever is read afterwards."""
        return FilePosition(self.after, [FileState(*state.told()) for state in self.files])

    @classmethod
    def decoded(cls, position: bytes | None) -> FilePosition:
        if not position:
            return cls()
        found = json.loads(position)
        if found["format"] != _FORMAT:
            raise ValueError(f"a position of format {found['format']}")
        return cls(found["after"], [FileState(*entry) for entry in found["files"]])


def key_of(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}"


def digest(descriptor: int, length: int) -> str:
    return hashlib.blake2b(os.pread(descriptor, length, 0), digest_size=12).hexdigest() if length else ""
