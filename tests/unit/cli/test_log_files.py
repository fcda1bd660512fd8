"""Logs are read from their end, followed while they grow, and brought into one order."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_cli import log_files
from headgate_cli.commands.logs import choose
from headgate_cli.failures import Failure
from headgate_cli.log_files import LogFile, find_logs, merged


def written(folder: Path, name: str, text: str) -> LogFile:
    path = folder / "logs" / f"{name}.log"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return LogFile(path)


@given(lines=st.lists(st.text("abc", max_size=12), max_size=40), wanted=st.integers(1, 50))
def test_the_last_lines_are_the_last_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], wanted: int
) -> None:
    log = written(tmp_path_factory.mktemp("logs"), "x", "".join(f"{line}\n" for line in lines))
    before = log_files._BLOCK
    log_files._BLOCK = 7
    try:
        assert log.last(wanted) == lines[-wanted:]
    finally:
        log_files._BLOCK = before


def test_following_goes_on_where_it_was_and_waits_for_whole_lines(tmp_path: Path) -> None:
    log = written(tmp_path, "a", "one\ntwo\nthr")
    assert log.last(0) == ["one", "two"]
    with log.path.open("a") as handle:
        handle.write("ee\nfour\n")
    assert log.fresh() == ["three", "four"]
    assert log.fresh() == []


def test_a_log_that_was_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    log = written(tmp_path, "a", "one\n")
    log.last(0)
    log.path.rename(log.path.with_suffix(".log.old"))
    assert log.fresh() == []
    log.path.write_text("anew\n")
    assert log.fresh() == ["anew"]


def test_lines_of_several_processes_are_ordered_by_time_and_a_trace_stays_together(tmp_path: Path) -> None:
    first, second = written(tmp_path, "a", ""), written(tmp_path, "b", "")
    lines = merged(
        {
            first: ["2026-01-01T00:00:01.000Z INFO x", "  no time of its own", "2026-01-01T00:00:03.000Z INFO y"],
            second: ["2026-01-01T00:00:02.000Z INFO z"],
        }
    )
    assert [line.split()[-1] for _, line in lines] == ["x", "own", "z", "y"]


def test_an_agent_is_found_by_its_name_and_an_unknown_one_is_told_what_there_is(tmp_path: Path) -> None:
    for name in ("engine-1", "agent-a", "coordinator"):
        written(tmp_path, name, "")
    found = find_logs(tmp_path)
    assert [log.process for log in found] == ["coordinator", "agent-a", "engine-1"]
    for name in ("a", "agent-a", "agent a"):
        assert [log.process for log in choose(found, [name], tmp_path)] == ["agent-a"]
    with pytest.raises(Failure, match="there are coordinator, agent-a, engine-1"):
        choose(found, ["b"], tmp_path)
    with pytest.raises(Failure, match="there are no logs in"):
        choose([], [], tmp_path)
