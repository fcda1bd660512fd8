"""A server whose clock is moved from outside reads the moved time, at once, and its monotonic clock does not jump."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.chaos.moved_clock import arguments, move

SERVER = """
import sys
from headgate_common.clock import SystemClock

clock = SystemClock()
for line in sys.stdin:
    print(clock.wall().isoformat(), clock.monotonic(), sys.argv[1], flush=True)
"""


def test_the_clock_of_a_process_is_moved_while_it_runs_and_put_right_again(tmp_path: Path) -> None:
    (tmp_path / "some_server.py").write_text(SERVER)
    clock = tmp_path / "server.clock"
    process = subprocess.Popen(
        [*arguments(clock, "some_server"), "--listen"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert process.stdin is not None and process.stdout is not None

    def ask() -> tuple[timedelta, float]:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        wall, monotonic, argument = process.stdout.readline().split()
        assert argument == "--listen"
        return datetime.fromisoformat(wall) - datetime.now(UTC), float(monotonic)

    try:
        found = [ask()]
        for days in (14.0, -14.0, 0.0):
            move(clock, days * 86_400)
            found.append(ask())
        assert [round(wrong.total_seconds() / 86_400) for wrong, _ in found] == [0, 14, -14, 0]
        assert [monotonic for _, monotonic in found] == sorted(monotonic for _, monotonic in found)
        assert found[-1][1] - found[0][1] < 86_400
    finally:
        process.kill()
        process.communicate(timeout=10)
