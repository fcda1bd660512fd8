"""Which files of its node an agent touches: those under the configured roots, and no others.

A path is refused by its text (`..`, NUL, outside of every root) and again by what was opened: the real path of the open
file, after every symbolic link, must lie under a root too. So neither a link that was there nor one that is put there
between the two looks leads outside. Only regular files are opened, and opening never waits (a FIFO would).
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate_agent.errors import SINK_UNAVAILABLE, SOURCE_MISSING, TARGET_FORBIDDEN
from headgate_common.errors import HeadgateError

_WILD = re.compile(r"[*?]")
_MAX_PATH = 4_096


@dataclass(frozen=True, slots=True)
class Location:
    """A path, or a pattern with `*` and `?`, under a root. `parts` are those below the root."""

    root: Path
    parts: tuple[str, ...]

    @property
    def is_pattern(self) -> bool:
        return any(_WILD.search(part) for part in self.parts)

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.parts)


class Roots:
    """The folders under which files may be touched."""

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(root.absolute() for root in roots)
        self._real = tuple(Path(os.path.realpath(root)) for root in roots)

    def locate(self, text: str) -> Location:
        """Where a path or pattern leads by its text; relative ones begin at the first root. TARGET_FORBIDDEN."""
        if not self._roots:
            raise HeadgateError(TARGET_FORBIDDEN, "this agent has no fragments.file_roots, so it touches no files")
        if not text or len(text) > _MAX_PATH or not text.isprintable():
            raise HeadgateError(TARGET_FORBIDDEN, f"{text[:80]!r} is not a path")
        parts = [part for part in text.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise HeadgateError(TARGET_FORBIDDEN, f"{text!r} has `..` in it")
        if not parts:
            raise HeadgateError(TARGET_FORBIDDEN, f"{text!r} is no file under a root")
        if not text.startswith("/"):
            return Location(self._roots[0], tuple(parts))
        for root in (*self._roots, *self._real):
            above = root.parts[1:]
            if tuple(parts[: len(above)]) == above and len(parts) > len(above):
                return Location(root, tuple(parts[len(above) :]))
        raise HeadgateError(TARGET_FORBIDDEN, f"{text!r} is not under one of fragments.file_roots")

    def find(self, location: Location, most: int) -> list[Path]:
        """The paths that there are, in the order of their texts, which is how a position compares them. Names with a
        leading dot match only a literal one."""
        found = [location.root]
        for depth, part in enumerate(location.parts):
            last = depth == len(location.parts) - 1
            if not _WILD.search(part):
                found = [path / part for path in found]
            else:
                matching = _matcher(part)
                found = [path / name for path in found for name in self._names(path) if matching.fullmatch(name)]
            found = [path for path in found if (path.exists() if last else path.is_dir())]
            if len(found) > most:
                raise HeadgateError(
                    SOURCE_MISSING, f"{location.path} matches more than {most:,} paths; see fragments.max_files"
                )
        return sorted((path for path in found if not path.is_dir()), key=str)

    def _names(self, folder: Path) -> list[str]:
        if not self._inside(Path(os.path.realpath(folder))):
            raise HeadgateError(TARGET_FORBIDDEN, f"{folder} leads out of fragments.file_roots")
        try:
            return [path.name for path in folder.iterdir()]
        except OSError as error:
            raise HeadgateError(SOURCE_MISSING, f"{folder} cannot be listed: {error.strerror}") from error

    def open_to_read(self, path: Path) -> int:
        """A descriptor of a regular file; SOURCE_MISSING, or TARGET_FORBIDDEN by what was opened."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            raise HeadgateError(SOURCE_MISSING, f"{path} cannot be opened: {error.strerror}") from error
        return self._checked(descriptor, path)

    def open_to_write(self, path: Path) -> int:
        """A descriptor of a regular file, made if it is not there; its folder must be. SINK_UNAVAILABLE, or
        TARGET_FORBIDDEN: a file is made only where its folder was looked at, and a link in its place is refused."""
        try:
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise HeadgateError(SINK_UNAVAILABLE, f"{path.parent} cannot be opened: {error.strerror}") from error
        try:
            if not self._inside(_real_path(folder, path.parent)):
                raise HeadgateError(TARGET_FORBIDDEN, f"{path.parent} leads out of fragments.file_roots")
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
            try:
                descriptor = os.open(path.name, flags, 0o644, dir_fd=folder)
            except OSError as error:
                if path.is_symlink():
                    raise HeadgateError(TARGET_FORBIDDEN, f"{path} is a symbolic link") from error
                raise HeadgateError(SINK_UNAVAILABLE, f"{path} cannot be opened: {error.strerror}") from error
            checked = self._checked(descriptor, path)
            os.fsync(folder)
            return checked
        finally:
            os.close(folder)

    def _checked(self, descriptor: int, path: Path) -> int:
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise HeadgateError(TARGET_FORBIDDEN, f"{path} is not a regular file")
            if not self._inside(_real_path(descriptor, path)):
                raise HeadgateError(TARGET_FORBIDDEN, f"{path} leads out of fragments.file_roots")
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _inside(self, real: Path) -> bool:
        return any(real == root or root in real.parents for root in self._real)


def _real_path(descriptor: int, path: Path) -> Path:
    """Where an open file is, after every link; a file that has no name any more is where its name was."""
    known = Path(f"/proc/self/fd/{descriptor}")
    if known.is_symlink():
        return Path(str(known.readlink()).removesuffix(" (deleted)"))
    of_name = getattr(fcntl, "F_GETPATH", None)
    if of_name is not None:
        raw: bytes = fcntl.fcntl(descriptor, of_name, b"\0" * 1024)
        return Path(os.fsdecode(raw.rstrip(b"\0")))
    raise HeadgateError(TARGET_FORBIDDEN, f"where {path} leads cannot be found out on this system")


def _matcher(part: str) -> re.Pattern[str]:
    pattern = "".join({"*": "[^/]*", "?": "[^/]"}.get(sign, re.escape(sign)) for sign in part)
    return re.compile(pattern if part.startswith(".") else rf"(?!\.){pattern}", re.DOTALL)
