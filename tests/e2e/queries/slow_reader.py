"""A reader of a temporary query, which sets the pace of its sink, that is slow; and what processes hold meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.queries.kit import QueryCluster

HEADGATE = Path(sys.executable).parent / "headgate"
# Bytes a second that it takes.
TAKES = 50_000


@contextmanager
def reading_slowly(cluster: QueryCluster, select: str) -> Iterator[None]:
    """The command line runs a temporary query, and what it prints is taken slowly."""
    reader = subprocess.Popen(
        [HEADGATE, "sql", "-c", select, "-o", "jsonl"],
        env={**os.environ, "HEADGATE_COORDINATOR": cluster.coordinator.address},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    over = threading.Event()

    def take() -> None:
        assert reader.stdout is not None
        while not over.wait(0.5):
            os.read(reader.stdout.fileno(), TAKES // 2)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        reader.kill()
        thread.join(30)
        reader.wait(30)


def memory(pid: int) -> int:
    """Resident bytes of a process and of all that it has started. What they share counts once: Spark's Python
    processes are copies of one another, and come and go. Only a process that is about to become another has all of its
    parent's memory for a moment, and counts as if it were its own: the lesser of two looks is without it."""
    first = _memory(pid)
    time.sleep(0.1)
    return min(first, _memory(pid))


def _memory(pid: int) -> int:
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        tasks = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    own = next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return own * 1024 + sum(_memory(int(child)) for task in tasks for child in task.split())
