"""Runs the simulator: a number of seeds, one seed again, or seeds without end until one fails."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODULE = "headgate_simulation"


def available() -> bool:
    """Whether the simulator is installed and can be run as a module."""
    return importlib.util.find_spec(MODULE) is not None and importlib.util.find_spec(f"{MODULE}.__main__") is not None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, help="how many seeds to run")
    parser.add_argument("--seed", type=int, help="the one seed to run again")
    arguments = parser.parse_args()
    if not available():
        print("simulate: this tree has no simulator (tests/simulation)", file=sys.stderr)
        return 1
    options: list[str] = []
    if arguments.seed is not None:
        options += ["--seed", str(arguments.seed)]
    elif arguments.seeds is not None:
        options += ["--seeds", str(arguments.seeds)]
    return subprocess.run([sys.executable, "-m", MODULE, *options], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
