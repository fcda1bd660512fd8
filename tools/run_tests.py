"""Runs everything: the checks, all tests with real servers, and the simulation seeds.

First it says which servers it will use, which it has to build, and what it will skip. It goes on after a failure, so
that one run shows all there is to repair, and ends with a summary whose last line is pytest's own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import simulate

ROOT = Path(__file__).resolve().parent.parent
SEEDS = int(os.environ.get("HEADGATE_SEEDS", "2000"))
PYTEST = (sys.executable, "-m", "pytest")
HUNT = "tests/simulation/test_planted.py"
CLOSING = re.compile(r"^=+ .*\b(?:passed|failed|error|errors|no tests ran|deselected)\b.* in [\d.]+s.*=+$")


@dataclass(frozen=True, slots=True)
class Phase:
    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    phase: Phase
    code: int
    seconds: float
    closing: str


def phases() -> list[Phase]:
    # The unit tests are left out of the first phase because a later one runs them with all others. The hunt for planted
    # bugs takes every core, so it has a phase of its own.
    found = [
        Phase("check", (sys.executable, "tools/check.py", "--without", "unit")),
        Phase("planted", (*PYTEST, HUNT)),
        Phase(
            "pytest",
            (*PYTEST, "-n", "2", "--dist", "loadgroup", "--durations", "15", "--ignore", HUNT, "tests"),
        ),
    ]
    if simulate.available():
        found.append(Phase("simulate", (sys.executable, "tools/simulate.py", "--seeds", str(SEEDS))))
    else:
        print("test: this tree has no simulator; its seeds are not run", flush=True)
    return found


def run(phase: Phase) -> Result:
    """Passes the output on as it comes and keeps the line with which pytest closes."""
    print(f"test: {phase.name}", flush=True)
    began = time.monotonic()
    closing = ""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        phase.command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            if CLOSING.match(line.rstrip()):
                closing = line.rstrip()
    return Result(phase, process.returncode, time.monotonic() - began, closing)


def main() -> int:
    prepared = subprocess.run([sys.executable, "-m", "tests.servers", "prepare"], cwd=ROOT, check=False)
    if prepared.returncode != 0:
        return prepared.returncode
    results = [run(phase) for phase in phases()]
    print("\ntest: summary")
    for result in results:
        verdict = "ok" if result.code == 0 else f"FAILED ({result.code})"
        print(f"  {result.phase.name:<10} {verdict:<12} {result.seconds:6.0f} s")
    for result in results:
        if result.closing:
            print(result.closing)
    return 1 if any(result.code != 0 for result in results) else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
