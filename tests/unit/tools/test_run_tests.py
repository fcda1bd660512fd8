"""The last line of `make test` is pytest's own."""

from __future__ import annotations

import sys

import pytest
import run_tests
from run_tests import CLOSING, Phase, run


@pytest.mark.parametrize(
    "line",
    [
        "===== 3 passed in 0.12s =====",
        "= 1 failed, 2 passed, 3 skipped, 1 warning in 61.20s (0:01:01) =",
        "====== no tests ran in 0.01s ======",
        "===== 2 errors in 1.00s =====",
    ],
)
def test_the_closing_line_is_known(line: str) -> None:
    assert CLOSING.match(line)


@pytest.mark.parametrize("line", ["===== FAILURES =====", "===== test session starts =====", "3 passed in 1s"])
def test_no_other_line_is_taken_for_it(line: str) -> None:
    assert not CLOSING.match(line)


def test_output_is_passed_on_and_the_closing_line_kept(capsys: pytest.CaptureFixture[str]) -> None:
    code = "print('first'); print('== 3 passed in 0.12s =='); print('last'); raise SystemExit(4)"
    result = run(Phase("x", (sys.executable, "-c", code)))
    assert (result.code, result.closing) == (4, "== 3 passed in 0.12s ==")
    assert capsys.readouterr().out.splitlines() == ["test: x", "first", "== 3 passed in 0.12s ==", "last"]


def test_the_unit_tests_run_once_only() -> None:
    commands = {phase.name: phase.command for phase in run_tests.phases()}
    assert commands["check"][-2:] == ("--without", "unit")
    assert commands["pytest"][-1] == "tests"


def test_the_hunt_for_planted_bugs_has_the_machine_for_itself() -> None:
    commands = {phase.name: phase.command for phase in run_tests.phases()}
    assert commands["planted"][-1] == run_tests.HUNT
    assert (run_tests.ROOT / run_tests.HUNT).is_file()
    assert run_tests.HUNT in commands["pytest"][commands["pytest"].index("--ignore") :]
