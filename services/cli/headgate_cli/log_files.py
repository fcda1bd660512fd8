"""Log files in the folder of a cluster on this machine: found, read from the end, and followed while they grow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z")
_BLOCK = 64 * 1024


class LogFile:
    """The log of one process. Reading goes on where the last reading ended, and from the start of a new file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process = path.stem
        self._position = 0
        self._file = 0
        self._rest = b""

    def is_named(self, name: str) -> bool:
        """`agent-a` is also found as `a` and as `agent a`."""
        return name.replace(" ", "-") in (self.process, self.process.removeprefix("agent-"))

    def last(self, lines: int) -> list[str]:
        """The last whole lines; all of them for 0."""
        with self.path.open("rb") as handle:
            status = os.fstat(handle.fileno())
            start = _start_of_last(handle, status.st_size, lines) if lines else 0
            handle.seek(start)
            data = handle.read(status.st_size - start)
        self._file = status.st_ino
        self._position = start + len(data)
        return self._whole(data)

    def fresh(self) -> list[str]:
        """Whole lines that were written since the last reading."""
        try:
            with self.path.open("rb") as handle:
                status = os.fstat(handle.fileno())
                if status.st_ino != self._file or status.st_size < self._position:
                    self._file, self._position, self._rest = status.st_ino, 0, b""
                handle.seek(self._position)
                data = handle.read()
        except FileNotFoundError:
            return []
        self._position += len(data)
        return self._whole(data)

    def _whole(self, data: bytes) -> list[str]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [line.decode(errors="replace") for line in lines]


def _start_of_last(handle: BinaryIO, size: int, lines: int) -> int:
    """Where the last so many lines begin, found from the end."""
    position, newlines = size, 0
    while position > 0:
        begin = max(0, position - _BLOCK)
        handle.seek(begin)
        block = handle.read(position - begin)
        place = len(block)
        while (place := block.rfind(b"\n", 0, place)) >= 0:
            # The newline that ends the file begins no line.
            if begin + place + 1 < size:
                newlines += 1
                if newlines == lines:
                    return begin + place + 1
        position = begin
    return 0


def find_logs(data: Path) -> list[LogFile]:
    """The logs in the folder of a cluster: the coordinator's first, then by name."""
    paths = sorted((data / "logs").glob("*.log"), key=lambda path: (path.stem != "coordinator", path.stem))
    return [LogFile(path) for path in paths]


def merged(read: Mapping[LogFile, Iterable[str]]) -> Iterator[tuple[LogFile, str]]:
    """Lines of several logs by their times. A line without one stays after the line before it."""
    entries: list[tuple[str, int, LogFile, str]] = []
    for log, lines in read.items():
        time = ""
        for line in lines:
            if match := _TIME.match(line):
                time = match.group()
            entries.append((time, len(entries), log, line))
    for _, _, log, line in sorted(entries, key=lambda entry: entry[:2]):
        yield log, line
