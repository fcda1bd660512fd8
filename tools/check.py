"""Runs every quick check of the repository, as many at once as there are cores, and says what each took.

A step that fails prints all it said; one that passes prints one line. `--without NAME` leaves a step out and `--only
NAME` runs nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
DEADLINE_SECONDS = 600
# Of the cases that property tests try (tests/examples.py); `make test` tries all.
QUICK_SHARE = "0.2"


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    step: Step
    code: int
    seconds: float
    output: str


def python(*arguments: str) -> tuple[str, ...]:
    return (sys.executable, *arguments)


def typed_folders() -> list[str]:
    """What mypy looks at: folders that exist and have Python in them."""
    candidates = [
        *sorted(ROOT.glob("services/*/headgate_*")),
        ROOT / "tools",
        ROOT / "tests" / "servers",
        ROOT / "tests" / "chaos",
        ROOT / "tests" / "conftest.py",
        ROOT / "tests" / "simulation",
        ROOT / "benchmarks",
    ]
    return [str(path.relative_to(ROOT)) for path in candidates if path.suffix == ".py" or any(path.rglob("*.py"))]


def steps() -> list[Step]:
    """Longest first, so that the short ones fill the gaps."""
    # What takes seconds because it tries hundreds of cases is left to `make test`.
    unit = python("-m", "pytest", "tests/unit", "-q", "--no-header", "-n", "2", "--dist", "loadgroup", "-m", "not slow")
    return [
        Step("types", python("-m", "mypy", "--no-error-summary", *typed_folders())),
        Step("unit", unit, (("HEADGATE_EXAMPLES", QUICK_SHARE),)),
        Step("generated", python("tools/generate_protos.py", "--check")),
        Step("imports", (str(BIN / "lint-imports"), "--no-logo")),
        Step("breaking", python("tools/check_breaking.py")),
        Step("format", (str(BIN / "ruff"), "format", "--check", ".")),
        Step("lint", (str(BIN / "ruff"), "check", "--quiet", ".")),
        Step("protos", (str(BIN / "buf"), "lint")),
        Step("tree", python("tools/check_tree.py")),
        Step("lock", python("tools/check_lock.py")),
    ]


async def run(step: Step, free: asyncio.Semaphore) -> Outcome:
    async with free:
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *step.command,
            cwd=ROOT,
            env={**os.environ, **dict(step.environment)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await asyncio.wait_for(process.communicate(), DEADLINE_SECONDS)
        except TimeoutError:
            process.kill()
            output = f"no end after {DEADLINE_SECONDS} s: killed\n".encode()
        except asyncio.CancelledError:
            process.kill()
            raise
        code = await process.wait()
        return Outcome(step, code, time.monotonic() - began, output.decode(errors="replace"))


async def run_all(chosen: list[Step]) -> list[Outcome]:
    free = asyncio.Semaphore(max(2, os.cpu_count() or 2))
    outcomes = []
    for finished in asyncio.as_completed([run(step, free) for step in chosen]):
        outcome = await finished
        outcomes.append(outcome)
        report(outcome)
    return outcomes


def report(outcome: Outcome) -> None:
    said = outcome.output.strip()
    if outcome.code == 0:
        note = said.splitlines()[-1] if outcome.step.name in {"unit", "breaking"} and said else ""
        print(f"  ok     {outcome.step.name:<10} {outcome.seconds:5.1f} s  {note}".rstrip(), flush=True)
        return
    print(f"  FAILED {outcome.step.name:<10} {outcome.seconds:5.1f} s  {' '.join(outcome.step.command)}")
    print("".join(f"    {line}\n" for line in said.splitlines()), end="", flush=True)


def main() -> int:
    known = [step.name for step in steps()]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--without", action="append", default=[], choices=known, help="leave this step out")
    parser.add_argument("--only", action="append", default=[], choices=known, help="run only this step")
    arguments = parser.parse_args()
    chosen = [
        s for s in steps() if s.name not in arguments.without and (not arguments.only or s.name in arguments.only)
    ]
    began = time.monotonic()
    print(f"check: {', '.join(step.name for step in chosen)}", flush=True)
    outcomes = asyncio.run(run_all(chosen))
    failed = sorted(outcome.step.name for outcome in outcomes if outcome.code != 0)
    verdict = f"failed: {', '.join(failed)}" if failed else "all good"
    print(f"check: {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
