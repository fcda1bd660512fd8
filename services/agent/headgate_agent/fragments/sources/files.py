"""Which file a FILE source reads next: all of a pattern once, or all of them for ever."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headgate_agent.errors import SOURCE_MISSING
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.paths import Location, Roots
from headgate_agent.fragments.sources.open_file import Block, Cut, MakeOpenFile, OpenFile, changed
from headgate_agent.fragments.sources.positions import FilePosition, FileState, key_of
from headgate_agent.fragments.sources.source import Counters
from headgate_common.errors import HeadgateError

# How many followed files are held open; the others are opened again by name when they have grown.
_HELD_OPEN = 256


@dataclass(frozen=True, slots=True)
class Taken:
    """A block, and the path it is of. Without a block: everything is read."""

    block: Block | None
    path: str = ""


class Files(Protocol):
    """`take` reads the next block; None where there is nothing to read now. `position` is the one after it. `now` is
    the monotonic clock's."""

    position: FilePosition

    def take(self, now: float) -> Taken | None: ...

    def close(self) -> None: ...


class BoundedFiles:
    """Every file of the pattern, in the order of names, each once to the end that it has when it is reached.

    A file that appears later under a name that sorts before one already read is not read. A file that has changed
    between two runs is SOURCE_CHANGED: what was read of it cannot be taken back.
    """

    def __init__(
        self, location: Location, roots: Roots, make: MakeOpenFile, config: FragmentConfig, position: FilePosition
    ) -> None:
        self._location = location
        self._roots = roots
        self._make = make
        self._config = config
        self._open: OpenFile | None = None
        self.position = position

    def take(self, now: float) -> Taken | None:
        while True:
            if self._open is None:
                state = self._next()
                if state is None:
                    return Taken(None)
                self._open = self._opened(state)
                self.position.files = [state]
            state = self.position.files[0]
            try:
                block = self._open.read(final=True)
            except Cut:
                raise changed(state.path, f"was cut below byte {state.offset}, up to which it was read") from None
            if block is not None:
                return Taken(block, state.path)
            self.close()
            self.position = FilePosition(after=state.path)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _next(self) -> FileState | None:
        if self.position.files:
            return self.position.files[0]
        found = [str(path) for path in self._roots.find(self._location, self._config.max_files)]
        if not found and not self.position.after:
            raise HeadgateError(SOURCE_MISSING, f"there is no file at {self._location.path}")
        path = next((name for name in found if name > self.position.after), None)
        return None if path is None else FileState("", path)

    def _opened(self, state: FileState) -> OpenFile:
        descriptor = self._roots.open_to_read(Path(state.path))
        if state.key and not state.is_file(descriptor):
            os.close(descriptor)
            raise changed(state.path, f"is not the file any more of which {state.rows:,} rows were read")
        state.key = key_of(os.fstat(descriptor))
        return self._make(state, descriptor)


class FollowedFiles:
    """Every file of the pattern and every one that appears, each as far as it has been written, for ever.

    A file is known by its inode and its beginning, so one that is renamed is read on, and one that takes its name is
    another. A file that has lost its name is read until it has not grown for `rotated_grace`. What cannot be read any
    more (a file cut, or gone while nobody looked) is noted, and reading goes on with what is there.
    """

    def __init__(
        self,
        location: Location,
        roots: Roots,
        make: MakeOpenFile,
        config: FragmentConfig,
        position: FilePosition,
        counters: Counters,
    ) -> None:
        self._location = location
        self._roots = roots
        self._make = make
        self._config = config
        self._counters = counters
        self._open: dict[str, OpenFile] = {}
        # The size of each file at the last look, and at the look after which it was read to its end.
        self._seen: dict[str, int] = {}
        self._sizes: dict[str, int] = {}
        # When a file that has lost its name last grew.
        self._nameless: dict[str, float] = {}
        self._pending: list[str] = []
        self.position = position

    def take(self, now: float) -> Taken | None:
        """Goes through the files that may have grown; when it has been through all, it looks at the folder anew."""
        looked = False
        while True:
            while self._pending:
                state = self._state(self._pending[0])
                block = self._read(state, now) if state is not None else None
                if block is not None and state is not None:
                    if state.key in self._nameless:
                        self._nameless[state.key] = now
                    return Taken(block, state.path)
                self._pending.pop(0)
            if looked:
                return None
            looked = True
            self._look(now)

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _state(self, key: str) -> FileState | None:
        return next((state for state in self.position.files if state.key == key), None)

    def _look(self, now: float) -> None:
        named: dict[str, tuple[Path, int]] = {}
        for path in self._roots.find(self._location, self._config.max_files):
            try:
                status = path.stat()
            except OSError:
                continue
            named.setdefault(key_of(status), (path, status.st_size))
        known = {state.key for state in self.position.files}
        for state in self.position.files:
            if state.key in named:
                state.path = str(named[state.key][0])
                self._nameless.pop(state.key, None)
            elif state.key not in self._nameless:
                self._lost_its_name(state, now)
        for key, (path, _) in named.items():
            if key not in known:
                self.position.files.append(FileState(key, str(path)))
        self.position.files.sort(key=lambda state: (state.key not in self._nameless, state.path))
        self._seen = {key: size for key, (_, size) in named.items()}
        self._pending = [
            state.key
            for state in self.position.files
            if state.key in self._nameless or self._sizes.get(state.key) != self._seen[state.key]
        ]

    def _lost_its_name(self, state: FileState, now: float) -> None:
        """A file that the pattern no longer finds: looked for under another name beside the old one."""
        self._nameless[state.key] = now
        if state.key in self._open:
            return
        folder = Path(state.path).parent
        try:
            with os.scandir(folder) as entries:
                found = next((entry.path for entry in entries if _is_key(entry, state.key)), None)
        except OSError:
            found = None
        if found is not None:
            state.path = found

    def _read(self, state: FileState, now: float) -> Block | None:
        file = self._open.get(state.key) or self._reopened(state, now)
        if file is None:
            return None
        grace_over = state.key in self._nameless and now - self._nameless[state.key] >= self._config.rotated_grace
        try:
            block = file.read(final=grace_over)
        except Cut:
            self._begin_again(state, f"was cut below byte {state.offset}, up to which it was read")
            return None
        if block is None:
            # The size of the look before the read: what came in between shows at the next look.
            self._sizes[state.key] = self._seen.get(state.key, -1)
            if grace_over:
                self._forget(state)
        return block

    def _reopened(self, state: FileState, now: float) -> OpenFile | None:
        descriptor = self._descriptor_of(state)
        if descriptor is None and state.key not in self._nameless:
            # Renamed between the look and the opening.
            self._lost_its_name(state, now)
            descriptor = self._descriptor_of(state)
        if descriptor is not None and state.is_file(descriptor):
            return self._hold(state, descriptor)
        if descriptor is not None:
            os.close(descriptor)
        if descriptor is not None and state.key not in self._nameless:
            self._begin_again(state, f"was replaced or cut; whatever followed byte {state.offset} of it was not read")
        else:
            # Without a name of the pattern, the same inode with another beginning is a stranger.
            self._counters.note(f"{state.path} is gone; whatever followed byte {state.offset} of it was not read")
            self._forget(state)
        return None

    def _descriptor_of(self, state: FileState) -> int | None:
        """The file of that inode at the path where it was last seen, if it is still there."""
        try:
            descriptor = self._roots.open_to_read(Path(state.path))
        except HeadgateError as error:
            if error.reason is not SOURCE_MISSING:
                raise
            return None
        if key_of(os.fstat(descriptor)) == state.key:
            return descriptor
        os.close(descriptor)
        return None

    def _hold(self, state: FileState, descriptor: int) -> OpenFile:
        while len(self._open) >= _HELD_OPEN:
            self._open.pop(next(iter(self._open))).close()
        file = self._open[state.key] = self._make(state, descriptor)
        return file

    def _begin_again(self, state: FileState, what: str) -> None:
        self._counters.note(f"{state.path} {what}; it is read from its beginning")
        held = self._open.pop(state.key, None)
        if held is not None:
            held.close()
        state.offset, state.head_length, state.head = 0, 0, ""
        self._sizes.pop(state.key, None)
        self._pending.append(state.key)

    def _forget(self, state: FileState) -> None:
        held = self._open.pop(state.key, None)
        if held is not None:
            held.close()
        self._nameless.pop(state.key, None)
        self._sizes.pop(state.key, None)
        self.position.files = [known for known in self.position.files if known is not state]


def _is_key(entry: os.DirEntry[str], key: str) -> bool:
    try:
        return key_of(entry.stat()) == key
    except OSError:
        return False
