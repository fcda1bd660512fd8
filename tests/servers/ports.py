"""Ports for servers of a test run.

Contract: a port that is given out was free, is below the range from which the system takes ports for outgoing
connections, and is given to no other process of a test run before this one ends. So a server that is started on it a
little later, or started again after a kill, finds it free.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Iterable
from pathlib import Path

_LOWEST, _HIGHEST = 10_000, 32_000
_ATTEMPTS = 500
_choose = random.SystemRandom()
# Descriptors with a lock each, which the system gives up when this process ends, however it ends.
_held: dict[int, int] = {}


class NoFreePort(Exception):
    """So many ports are in use that none was found in reasonable time."""


def free_port() -> int:
    return free_port_base([0])


def free_port_base(offsets: Iterable[int]) -> int:
    """A port such that it plus each of the offsets is free."""
    wanted = tuple(offsets)
    for _ in range(_ATTEMPTS):
        base = _choose.randrange(_LOWEST, _HIGHEST - max(wanted))
        if _hold_all([base + offset for offset in wanted]):
            return base
    raise NoFreePort(f"no {len(wanted)} free ports close together after {_ATTEMPTS} attempts")


def _hold_all(ports: list[int]) -> bool:
    taken: list[int] = []
    for port in ports:
        if not _hold(port):
            for other in taken:
                os.close(_held.pop(other))
            return False
        taken.append(port)
    return True


def _hold(port: int) -> bool:
    if port in _held or not _is_free(port):
        return False
    folder = Path(tempfile.gettempdir()) / f"headgate-test-ports-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    # Not inherited: a server that outlives this process does not keep the lock.
    descriptor = os.open(folder / str(port), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return False
    _held[port] = descriptor
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
