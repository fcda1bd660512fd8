"""headgate-coordinator that kills itself at a failpoint: `HEADGATE_TEST_CRASH=NAME[:TIMES]` in the environment."""

from __future__ import annotations

import os
import signal
import sys

from headgate_coordinator import failpoints
from headgate_coordinator.server import main

WHERE = "HEADGATE_TEST_CRASH"


def crash_at(name: str, times: int) -> None:
    hits = 0

    def hook(reached: str) -> None:
        nonlocal hits
        if reached == name:
            hits += 1
            if hits == times:
                os.kill(os.getpid(), signal.SIGKILL)

    failpoints.install(hook)


if __name__ == "__main__":
    chosen, _, count = os.environ[WHERE].partition(":")
    assert chosen in failpoints.NAMES, chosen
    crash_at(chosen, int(count or "1"))
    sys.exit(main())
