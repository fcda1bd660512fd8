"""How soon `headgate dev` answers, from nothing: an empty folder, with one agent and with three.

Counted is the wall clock from the start of the command to the first answer of the coordinator in which all agents are
ACTIVE, and to the moment at which Spark is warm. The peer is a limit: `ratio` is the slowest first answer with one
agent over 5 s. ROUNDS=n; QUICK=1 does one of each.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.e2e.cli.conftest import start_dev

ROUNDS = int(os.environ.get("ROUNDS", "1" if os.environ.get("QUICK") else "5"))
LIMIT_SECONDS = 5.0
WARM_SECONDS = 300.0
WARM = "engine 1 is ready"
AGENTS = (1, 3)


def once(folder: Path, agents: int) -> tuple[float, float]:
    """Seconds until it answers, and until Spark is warm."""
    began = time.monotonic()
    dev = start_dev(folder / "dev.log", agents, "--data", str(folder / "data"), engine=True)
    try:
        assert dev.headgate.json("status")["agents"] == {"ACTIVE": agents}
        answered = time.monotonic() - began
        while WARM not in dev.log:
            if time.monotonic() - began > WARM_SECONDS:
                raise SystemExit(f"Spark is not warm after {WARM_SECONDS:g} s:\n{dev.log}")
            time.sleep(0.05)
        return answered, time.monotonic() - began
    finally:
        dev.process.stop()


def main() -> int:
    answers: dict[int, list[float]] = {}
    warm: dict[int, list[float]] = {}
    for agents in AGENTS:
        for number in range(ROUNDS):
            with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
                answered, warmed = once(Path(folder), agents)
            print(f"  {agents} agent(s), round {number + 1}: answers after {answered:.2f} s, warm after {warmed:.1f} s")
            answers.setdefault(agents, []).append(answered)
            warm.setdefault(agents, []).append(warmed)
    print(f"{'agents':<8}{'answers, median':>18}{'slowest':>10}{'Spark is warm':>16}")
    for agents in AGENTS:
        median = statistics.median(answers[agents])
        print(f"{agents:<8}{median:>18.2f}{max(answers[agents]):>10.2f}{statistics.median(warm[agents]):>16.1f}")
    print(
        json.dumps(
            {
                "name": "startup",
                "ratio": round(max(answers[1]) / LIMIT_SECONDS, 3),
                "goal": "<= 1.0",
                "answers_seconds": {str(k): [round(each, 2) for each in v] for k, v in answers.items()},
                "warm_seconds": {str(k): [round(each, 1) for each in v] for k, v in warm.items()},
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
