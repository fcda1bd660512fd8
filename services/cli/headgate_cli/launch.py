"""Becomes another program that ends when the process that started it has ended.

Run by its path, with nothing but the standard library: `python -I -S launch.py PARENT_PID PROGRAM ARGUMENTS...`. A
function between fork and exec would do the same, but forking a process that speaks gRPC is not safe.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, program = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            # It ended before the line above.
            sys.exit(1)
    os.execv(program[0], program)


if __name__ == "__main__":
    main()
