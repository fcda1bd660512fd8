"""Runs a server of ours whose wall clock can be moved from outside while it runs.

    python moved_clock.py FILE MODULE ARGUMENTS...

FILE holds the seconds by which the clock is wrong; it need not be there. All of our code asks one clock, so moving that
one moves time for the process as a step of the machine's clock would; monotonic clocks do not jump, here or there.
"""

from __future__ import annotations

import runpy
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path


def move(file: Path, seconds: float) -> None:
    """From now on the clock of the process with this file is wrong by so much."""
    fresh = file.with_suffix(".next")
    fresh.write_text(str(seconds))
    fresh.replace(file)


def arguments(file: Path, module: str) -> list[str]:
    """What to run instead of `python -m module`."""
    return [sys.executable, str(Path(__file__).resolve()), str(file), module]


def _wrong_by(file: Path) -> timedelta:
    try:
        return timedelta(seconds=float(file.read_text()))
    except FileNotFoundError:
        return timedelta()


def main() -> None:
    from headgate_common.clock import SystemClock

    file, module = Path(sys.argv[1]), sys.argv[2]

    def wall(self: SystemClock) -> datetime:
        return datetime.now(UTC) + _wrong_by(file)

    SystemClock.wall = wall  # type: ignore[method-assign]
    sys.argv = [module, *sys.argv[3:]]
    # The folder of this file is no place to import from.
    del sys.path[0]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
