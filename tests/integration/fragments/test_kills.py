"""Killed with SIGKILL at random moments, a pipe from files to a file delivers every row exactly once."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.integration.fragments.pipe import pump

pytestmark = pytest.mark.timeout(120)

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["tests.integration.fragments.pipe"])


class Pipe:
    """The pipe as a process that is started, killed and started again."""

    def __init__(self, folder: Path, source: Mapping[str, str], sink: Mapping[str, str]) -> None:
        self._folder = folder
        self._source = dict(source)
        self._sink = dict(sink)
        self._starts = 0

    def start(self) -> multiprocessing.process.BaseProcess:
        self._starts += 1
        ready = self._folder / f"ready-{self._starts}"
        process = PROCESSES.Process(target=pump, args=(self._folder, self._source, self._sink, ready), daemon=True)
        process.start()
        for _ in range(2_000):
            if ready.exists() or not process.is_alive():
                break
            time.sleep(0.005)
        ready.unlink(missing_ok=True)
        return process

    def kill(self, process: multiprocessing.process.BaseProcess) -> bool:
        """Whether it was killed, rather than done before."""
        assert process.pid is not None
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
        process.join(20)
        assert process.exitcode in (0, -signal.SIGKILL), process.exitcode
        return process.exitcode != 0


def rows(low: int, high: int) -> str:
    return "".join(f'{n},"row ""{n}"",\nof two lines"\n' for n in range(low, high))


def delivered(path: Path, number: int) -> bool:
    """Whether a row arrives in time: a file that is renamed before anybody has seen it cannot be known."""
    for _ in range(500):
        if path.exists() and f'{number},"row' in path.read_text():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("append", ["true", "false"])
def test_files_to_a_file_through_many_kills(tmp_path: Path, append: str) -> None:
    source = random.Random(20_260_101)
    wanted = ""
    for name in range(3):
        (tmp_path / f"in-{name}.csv").write_text(rows(name * 3_000, name * 3_000 + 3_000))
        wanted += rows(name * 3_000, name * 3_000 + 3_000)
    (tmp_path / "out.csv").write_text("before\n")
    pipe = Pipe(tmp_path, {"file_path": "in-*.csv"}, {"file_path": "out.csv", "append": append})
    kills = 0
    # Killed when it has delivered so much: a moment that comes however fast or slow the machine is.
    for share in sorted(source.uniform(0.0, 0.9) for _ in range(30)):
        process = pipe.start()
        while process.is_alive() and (tmp_path / "out.csv").stat().st_size < share * len(wanted):
            time.sleep(0.001)
        time.sleep(source.uniform(0.0, 0.01))
        kills += pipe.kill(process)
        assert wanted.startswith((tmp_path / "out.csv").read_text().removeprefix("before\n")[:50])
    process = pipe.start()
    process.join(60)
    assert process.exitcode == 0
    assert kills >= 20, kills
    assert (tmp_path / "out.csv").read_text() == ("before\n" if append == "true" else "") + wanted


def test_a_growing_and_rotating_file_through_many_kills(tmp_path: Path) -> None:
    source = random.Random(7)
    log = tmp_path / "log.csv"
    pipe = Pipe(
        tmp_path,
        {"file_path": "log.csv", "follow": "true", "poll_interval": "10 ms"},
        {"file_path": "out.csv"},
    )
    written = 0
    kills = 0
    for turn in range(20):
        process = pipe.start()
        for _ in range(source.randrange(1, 4)):
            with log.open("a") as file:
                file.write(rows(written, written + 40))
            written += 40
            time.sleep(source.uniform(0.0, 0.06))
        if source.random() < 0.5 and delivered(tmp_path / "out.csv", written - 40):
            log.rename(tmp_path / f"log.csv.{turn}")
            time.sleep(source.uniform(0.0, 0.05))
        kills += pipe.kill(process)
    process = pipe.start()
    time.sleep(1.5)
    (tmp_path / "stop").touch()
    process.join(60)
    assert process.exitcode == 0
    assert kills == 20
    found = (tmp_path / "out.csv").read_text()
    pieces = sorted(found.replace("\nof two", " of two").splitlines(), key=lambda line: int(line.split(",")[0]))
    assert pieces == rows(0, written).replace("\nof two", " of two").splitlines()
