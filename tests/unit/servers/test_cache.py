"""Servers are found where they should be looked for, in that order, and built once."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from pathlib import Path

import pytest

from tests.servers.cache import ServerMissing, cache_folder, find_or_build_command, run_build, servers_required

VARIABLE = "HEADGATE_TEST_COMMAND"
NAME = "headgate-no-such-command"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path / "cache"


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def build_slowly(target: Path) -> None:
    time.sleep(0.3)
    with (cache_folder() / "builds").open("a") as builds:
        builds.write("x")
    executable(target)


def find(_: int = 0) -> str:
    return str(find_or_build_command(NAME, VARIABLE, build_slowly))


def test_the_variable_comes_before_path_and_path_before_the_cache(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cached = executable(cache / "bin" / NAME)
    assert find() == str(cached)
    on_path = executable(tmp_path / "path" / NAME)
    monkeypatch.setenv("PATH", f"{tmp_path / 'path'}{os.pathsep}{os.environ['PATH']}")
    assert find() == str(on_path)
    chosen = executable(tmp_path / "chosen")
    monkeypatch.setenv(VARIABLE, str(chosen))
    assert find() == str(chosen)


def test_a_variable_that_names_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/nowhere/command")
    with pytest.raises(ServerMissing, match=f"{VARIABLE} names /nowhere/command, which is not a file"):
        find()


@pytest.mark.slow
def test_several_processes_build_it_once(cache: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        found = set(pool.map(find, range(3)))
    assert found == {str(cache / "bin" / NAME)}
    assert (cache / "builds").read_text() == "x"


def test_a_build_that_fails_leaves_nothing_behind(cache: Path) -> None:
    def fail(target: Path) -> None:
        target.write_text("half")
        run_build([sys.executable, "-c", "raise SystemExit('no such module')"], cache)

    with pytest.raises(ServerMissing, match="no such module"):
        find_or_build_command(NAME, VARIABLE, fail)
    assert not (cache / "bin" / NAME).exists()


@pytest.mark.parametrize(("value", "expected"), [(None, False), ("", False), ("0", False), ("1", True)])
def test_ci_demands_servers_by_a_variable(value: str | None, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADGATE_REQUIRE_SERVERS", raising=False)
    if value is not None:
        monkeypatch.setenv("HEADGATE_REQUIRE_SERVERS", value)
    assert servers_required() is expected
