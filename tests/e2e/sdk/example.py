"""The example programs of the generated clients, run as a person would run them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 90.0


@dataclass(frozen=True, slots=True)
class Example:
    """One client: its folder and the command that starts its example."""

    language: str
    folder: Path
    command: tuple[str, ...]

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*self.command, *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    @contextmanager
    def running(self, *arguments: str) -> Iterator[RunningExample]:
        """The example while it runs; it is gone when the block is left."""
        process = subprocess.Popen(
            [*self.command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        example = RunningExample(process)
        try:
            yield example
        finally:
            process.kill()
            process.wait(10)
            example.reader.join(10)


@dataclass
class RunningExample:
    process: subprocess.Popen[str]
    lines: list[str] = field(default_factory=list)
    ended: bool = False

    def __post_init__(self) -> None:
        self._told = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._told:
                self.lines.append(line.rstrip("\n"))
                self._told.notify_all()
        with self._told:
            self.ended = True
            self._told.notify_all()

    def wait_for(self, text: str, seconds: float = PATIENCE) -> str:
        """The first line that has this text, as soon as it is there."""

        def found() -> str | None:
            return next((line for line in self.lines if text in line), None)

        with self._told:
            self._told.wait_for(lambda: found() is not None or self.ended, seconds)
            line = found()
        assert line is not None, f"no line with {text!r} in:\n" + "\n".join(self.lines)
        return line

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE)
