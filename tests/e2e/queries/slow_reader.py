"""A reader of a temporary query, which sets the pace of its sink, that is slow; and what processes hold meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
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
    """Resident bytes of a process and of all that it has started."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    below = [int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()]
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(memory, below))
