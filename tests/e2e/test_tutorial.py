"""Every command of docs/tutorial.md is run, in order, in a folder of its own, and answers what the page shows.

The page's marks: `sh dev` is the cluster of the first terminal, `sh` a command of the second one, which must succeed,
and `sh fails` one that must not. The `text` block right after it is its whole output, messages included; `...` stands
for anything within a line, and on a line of its own for any number of lines. The ports and process ids that the page
names are those of a cluster on the default ports; here they are replaced by the real ones.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.cli.command import HEADGATE
from tests.servers.ports import free_port_base
from tests.servers.process import Command, ServerProcess

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
_STEP = re.compile(r"^```sh ?(?P<kind>\w*)\n(?P<command>.*?)^```\n(?:```text\n(?P<shown>.*?)^```\n)?", re.M | re.S)
# A line of the table that `dev` prints: the process and its id.
_ROW = re.compile(r"^(coordinator|agent \w+|engine \d+) +\S+ +http://\S+ +(\d+) ", re.M)
_KILL = re.compile(r"^kill -9 (\d+) +# (.+)$", re.M)
_OFFSETS = (0, 1, 2, 3, *range(10, 14))
# Spark starts slowly on a busy machine.
_WARM_SECONDS = 600
_STEP_SECONDS = 700


@dataclass(frozen=True, slots=True)
class Step:
    kind: str
    command: str
    shown: str | None


def steps(page: str) -> list[Step]:
    return [Step(match["kind"], match["command"], match["shown"]) for match in _STEP.finditer(page)]


def pattern(shown: str) -> re.Pattern[str]:
    """What an output must match as a whole. Spaces at the ends of lines do not count."""
    parts = []
    for line in shown.splitlines():
        if line.strip() == "...":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(r"[^\n]*".join(re.escape(piece) for piece in line.rstrip().split("...")) + r"\n")
    return re.compile("".join(parts))


def tidy(output: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in output.splitlines())


def shows(shown: str, output: str) -> bool:
    # A placeholder at the end of a line may stand for nothing, and so may the space before it.
    loose = "\n".join(
        re.sub(r" \.\.\.$", "...", line) if line.strip() != "..." else line for line in shown.splitlines()
    )
    return pattern(loose).fullmatch(tidy(output)) is not None


@dataclass(slots=True)
class Terminals:
    """The folder of the tutorial, with its cluster."""

    folder: Path
    base: int
    log: Path

    def run(self, step: Step) -> None:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._real(step.command)],
            cwd=self.folder,
            env={
                **os.environ,
                "PATH": os.pathsep.join([str(HEADGATE.parent), os.environ["PATH"]]),
                "HEADGATE_COORDINATOR": f"127.0.0.1:{self.base}",
                "NO_COLOR": "1",
                "COLUMNS": "200",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_STEP_SECONDS,
            check=False,
        )
        told = f"{step.command}\nended with {done.returncode} and\n{done.stdout}\n{self.log.read_text()[-3000:]}"
        assert (done.returncode != 0) == (step.kind == "fails"), told
        assert "Traceback" not in done.stdout, told
        if step.shown is not None:
            assert shows(self._real(step.shown), done.stdout), f"{told}\nwhere the page has\n{step.shown}"

    def _real(self, text: str) -> str:
        """With the ports and processes of this cluster instead of those of the page."""
        pids = dict(_ROW.findall(self.log.read_text()))
        text = _KILL.sub(lambda match: f"kill -9 {pids[match[2]]}", text)
        return re.sub(r"127\.0\.0\.1:74(\d\d)", lambda match: f"127.0.0.1:{self.base + int(match[1])}", text)

    def up(self, step: Step) -> bool:
        """Whether the first terminal shows what the page shows of it."""
        assert step.shown is not None
        return shows(self._real(step.shown), self.log.read_text())


@contextmanager
def first_terminal(step: Step, folder: Path) -> Iterator[Terminals]:
    words = step.command.split()
    assert words[:2] == ["headgate", "dev"]
    base = free_port_base(_OFFSETS)
    log = folder.parent / "dev.log"
    # `dev` takes the folder that it is started in for its data and files.
    inside = ["bash", "-c", 'cd "$0" && exec "$@"', str(folder), str(HEADGATE), *words[1:], "--port-base", str(base)]
    process = ServerProcess(Command("headgate dev", inside, log, grace_seconds=60))
    try:
        terminals = Terminals(folder, base, log)
        deadline = time.monotonic() + _WARM_SECONDS
        while not terminals.up(step):
            assert time.monotonic() < deadline, f"the page shows\n{step.shown}\nand the cluster\n{log.read_text()}"
            time.sleep(0.5)
        yield terminals
    finally:
        process.stop()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(2400)
def test_every_command_answers_what_the_page_shows(tmp_path: Path) -> None:
    folder = tmp_path / "tutorial"
    folder.mkdir()
    first, *others = steps(PAGE.read_text())
    assert first.kind == "dev"
    with first_terminal(first, folder) as terminals:
        for step in others:
            terminals.run(step)


def test_the_page_has_every_step_and_nothing_that_is_not_run() -> None:
    page = PAGE.read_text()
    found = steps(page)
    assert len(found) == page.count("```sh") and len(found) > 15
    assert {step.kind for step in found} == {"dev", "fails", ""}
    assert page.count("```text") == sum(step.shown is not None for step in found)
    commands = "\n".join(step.command for step in found)
    for word in (
        "sql -c",
        "apply",
        "get",
        "describe",
        "top --once",
        "errors",
        "topics consume",
        "kill -9",
        "STOP",
        "DROP",
    ):
        assert word in commands, word


@pytest.mark.parametrize(
    ("shown", "output", "fits"),
    [
        ("a ... c\n", "a b c\n", True),
        ("a ...\n", "a\n", True),
        ("a ... c\n", "a\nc\n", False),
        ("...\nb\n", "b\n", True),
        ("...\nb\n", "a\na\nb   \n", True),
        ("b\n", "a\nb\n", False),
        ("b\n", "b\nc\n", False),
        ("", "", True),
        ("", "a\n", False),
    ],
)
def test_a_placeholder_stands_for_what_it_should(shown: str, output: str, fits: bool) -> None:
    assert shows(shown, output) is fits
