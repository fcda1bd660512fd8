"""The folder outside the tree where servers are kept once they have been fetched or built."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

BUILD_DEADLINE_SECONDS = 1800


class ServerMissing(Exception):
    """A server cannot be had on this machine; the message says what to install."""


def cache_folder() -> Path:
    if chosen := os.environ.get("HEADGATE_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "headgate"


@contextmanager
def locked(name: str) -> Iterator[None]:
    """Held by one process of the machine at a time, so that two test workers do not build the same thing."""
    folder = cache_folder() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def servers_required() -> bool:
    """Whether a server that cannot be had is a failure, as in CI, rather than a reason to skip."""
    return os.environ.get("HEADGATE_REQUIRE_SERVERS", "") not in ("", "0")


def say(message: str) -> None:
    """Tells the person in front of the screen, past pytest's capturing."""
    print(f"servers: {message}", file=sys.__stderr__, flush=True)


def find_command(name: str, variable: str) -> Path | None:
    """The command that the environment variable names, or the one on PATH, or the one in the cache."""
    if chosen := os.environ.get(variable):
        path = Path(chosen)
        if not path.is_file():
            raise ServerMissing(f"{variable} names {chosen}, which is not a file")
        return path
    if found := shutil.which(name):
        return Path(found)
    cached = cache_folder() / "bin" / name
    return cached if cached.is_file() else None


def find_or_build_command(name: str, variable: str, build: Callable[[Path], None]) -> Path:
    """Builds the command into the cache where it is found nowhere. `build` writes the file that it is given."""
    if found := find_command(name, variable):
        return found
    with locked(name):
        if found := find_command(name, variable):
            return found
        target = cache_folder() / "bin" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".building")
        build(unfinished)
        unfinished.rename(target)
        return target


def run_build(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Runs one step of a build; its output is shown only where it fails."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_DEADLINE_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise ServerMissing(f"`{' '.join(command)}` failed:\n{done.stdout[-4000:]}")
