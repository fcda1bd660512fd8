"""Whole runs: they pass, they replay to the last byte, and a failing one is told so that it can be understood."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate_simulation import quiet
from headgate_simulation.__main__ import main
from headgate_simulation.generate import generate, has_both, has_log
from headgate_simulation.plan_file import dump, load
from headgate_simulation.planted import by_name, plant
from headgate_simulation.pool import run_seeds
from headgate_simulation.report import minimal, tell
from headgate_simulation.shrink import shrink
from headgate_simulation.world import run

# Plans that failed once, each with what was wrong then: see `plan_file.py`.
REGRESSIONS = sorted(Path(__file__).with_name("regressions").glob("*.json"))


def digest_in_another_process(seed: int, hash_seed: str) -> str:
    code = f"""
from headgate_simulation.pool import run_seed
for seed in ({seed}, {seed + 1}):
    print(run_seed(seed).digest)
"""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def test_a_run_in_the_pool_is_the_run_alone() -> None:
    seeds = (4, 6, 25)
    told = {outcome.seed: outcome.digest for outcome in run_seeds(seeds, 2)}
    assert told == {seed: run(generate(seed)).digest for seed in seeds}


def test_a_seed_gives_the_same_trace_in_every_process() -> None:
    outputs = {digest_in_another_process(11, hash_seed) for hash_seed in ("0", "1", "4711")}
    assert len(outputs) == 1
    (output,) = outputs
    assert output.split() == [run(generate(seed)).digest for seed in (11, 12)]


def test_what_ran_before_changes_nothing() -> None:
    alone = run(generate(5)).digest
    for seed in (1, 2, 3):
        run(generate(seed))
    assert run(generate(5)).digest == alone


def test_seeds_differ() -> None:
    assert len({run(generate(seed)).digest for seed in range(1, 6)}) == 5


def test_runs_are_as_large_as_promised() -> None:
    plans = [generate(seed) for seed in range(1, 200) if not has_log(seed) and not has_both(seed)]
    assert all(3 <= len(plan.agents) <= 8 for plan in plans)
    queries = [sum(o.kind == "create_query" for o in plan.operations) for plan in plans]
    assert min(queries) >= 5 and sorted(queries)[len(queries) // 2] <= 20
    assert all(len(plan.faults) >= 10 for plan in plans)
    kinds = {fault.kind for plan in plans for fault in plan.faults}
    assert kinds == {
        "crash",
        "pause",
        "depose",
        "partition",
        "one-way",
        "isolate",
        "isolate-from-catalog",
        "slow",
        "lossy",
        "late-answers",
        "late-replies",
        "duplicating",
        "commit-fails",
        "commit-lost",
        "commit-pauses",
        "crash-at-commit",
        "wall-clock",
        "runs-break",
        "journal-fails",
        "journal-breaks",
        "crash-at-journal",
    }


def test_runs_with_a_log_have_both_durabilities_and_everything_that_can_happen_to_them() -> None:
    plans = [generate(seed) for seed in range(1, 300) if has_log(seed)]
    assert len(plans) == 99 and all(plan.log is not None for plan in plans)
    assert all(3 <= len(plan.agents) <= 5 and len(plan.faults) >= 6 for plan in plans)
    operations = [operation for plan in plans for operation in plan.operations]
    assert {"WAL", "OBJECT"} == {o["durability"] for o in operations if o.kind == "create_topic"}
    assert {True, False} == {o["idempotent"] for o in operations if o.kind == "produce"}
    assert {"produce_records", "consume", "recover", "delete_records", "leave", "join"} <= {o.kind for o in operations}
    assert {"commit_offsets", "join_group", "write_edge"} <= {o.kind for o in operations}
    assert any(o.get("pinned") for o in operations if o.kind == "create_topic" and o["durability"] == "WAL")
    assert {
        "power",
        "disk-lost",
        "disk-full",
        "crash-at-wal",
        "crash-at-upload",
        "pause-at-wal",
        "pause-at-upload",
        "store-fails",
        "store-lost",
        "store-slow",
    } <= {fault.kind for plan in plans for fault in plan.faults}


def test_some_runs_have_queries_and_a_log() -> None:
    plans = [generate(seed) for seed in range(1, 301) if has_both(seed)]
    assert len(plans) == 20
    for plan in plans:
        assert plan.log is not None and all(agent.log for agent in plan.agents)
        assert {"create_query", "create_topic", "consume"} <= {operation.kind for operation in plan.operations}
        assert len(set(plan.ids)) == len(plan.ids)
    assert {"power", "disk-lost", "crash-at-journal"} <= {fault.kind for plan in plans for fault in plan.faults}


def test_some_seeds_pass() -> None:
    """`make simulate` runs thousands; these are here so that nobody commits without having run any."""
    failed = [o for o in run_seeds(range(1, 41), os.cpu_count() or 1) if o.failure is not None]
    assert not failed, "\n".join(f"seed {o.seed}: {o.failure.message}" for o in failed if o.failure)


def test_everything_in_a_plan_has_an_id_of_its_own() -> None:
    """One that is healed would end another of its id."""
    for seed in range(1, 121):
        ids = generate(seed).ids
        assert len(set(ids)) == len(ids), seed


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_once_failed_passes(path: Path) -> None:
    about, plan = load(path.read_text())
    result = run(plan)
    assert result.failure is None, f"{about}: {result.failure}"


@pytest.mark.parametrize("seed", [1, 3, 5, 25])
def test_a_plan_is_the_same_from_its_file(seed: int) -> None:
    plan = generate(seed)
    assert load(dump(plan, "something")) == ("something", plan)


def test_a_plan_is_kept_and_replayed_by_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "plan.json"
    assert main(["--seed", "4", "--keep", "o1,f1", "--save", str(kept)]) == 0
    first = capsys.readouterr().out
    assert main(["--plan", str(kept)]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == first.splitlines()[-2:]


def test_a_failure_is_told_with_seed_minimal_plan_and_story() -> None:
    with plant(by_name("running without confirmation")):
        seed = next(seed for seed in range(1, 50) if run(generate(seed)).failure is not None)
        result = run(generate(seed))
        shrunk = minimal(result)
        assert shrunk.gave_up_after is None
        small = shrunk.result
        assert small.failure is not None
        assert result.failure is not None
        assert small.failure.invariant == result.failure.invariant
        assert len(small.plan.ids) < len(result.plan.ids) / 4
        assert run(small.plan).digest == small.digest
        told = "\n".join(tell(result, shrunk))
    assert f"seed {seed} FAILED" in told
    assert f"--seed {seed} --keep {','.join(small.plan.ids)}" in told
    assert "story:" in told
    assert "RUNNING" in told


def test_a_run_that_dies_of_anything_is_told_with_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(world: object) -> None:
        raise KeyError("not foreseen")

    monkeypatch.setattr(quiet, "_all_up", breaks)
    failure = run(generate(3)).failure
    assert failure is not None and failure.invariant == "KeyError"
    assert "not foreseen" in failure.message and "in breaks" in failure.message
    assert main(["--from", "3", "--seeds", "2", "--jobs", "2", "--patience", "0"]) == 1
    told = capsys.readouterr().out
    assert "seed 3 FAILED" in told and "seed 4 FAILED" in told and told.splitlines()[-1] == "0 passed, 2 failed"


def test_the_search_for_a_smaller_plan_ends_in_time_and_says_so() -> None:
    plan = generate(1)
    passed = iter(range(1000))
    shrunk = shrink(plan, lambda smaller: True, patience=5.0, now=lambda: float(next(passed)))
    assert shrunk.gave_up and shrunk.runs == 4
    assert len(shrunk.plan.ids) < len(plan.ids)
    with plant(by_name("running without confirmation")):
        result = next(result for seed in range(1, 50) if (result := run(generate(seed))).failure is not None)
        told = "\n".join(tell(result, minimal(result, patience=1e-9)))
    assert "given up after 1e-09 s and 0 runs" in told


def test_seeds_without_an_end_are_handed_out_as_they_are_run() -> None:
    taken = 0

    def seeds() -> Iterator[int]:
        nonlocal taken
        for seed in itertools.count(1):
            taken = seed
            yield seed

    outcomes = run_seeds(seeds(), 2)
    assert {outcome.seed for outcome in itertools.islice(outcomes, 4)} <= set(range(1, 20))
    outcomes.close()
    assert taken < 200


def test_the_command_replays_a_seed_with_its_hash(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"trace {run(generate(3)).digest}" in lines[-2]
    assert lines[-1] == "1 passed, 0 failed"


def test_the_command_counts_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--jobs", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "2 passed, 0 failed"
    with plant(by_name("running without confirmation")):
        assert main(["--seeds", "5", "--jobs", "1", "--patience", "0"]) == 1
    counted = re.fullmatch(r"(\d+) passed, (\d+) failed", capsys.readouterr().out.splitlines()[-1])
    assert counted is not None
    passed, failed = map(int, counted.groups())
    assert passed + failed == 5 and failed > 0


def test_the_command_without_an_end_stops_at_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    with plant(by_name("running without confirmation")):
        assert main(["--jobs", "1", "--patience", "0"]) == 1
    assert capsys.readouterr().out.splitlines()[-1].endswith("1 failed")
