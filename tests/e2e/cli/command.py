"""Runs the `headgate` command as a user or a script does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEADGATE = Path(sys.executable).parent / "headgate"


@dataclass(frozen=True, slots=True)
class Headgate:
    """The command with the coordinator that it should talk to."""

    coordinator: str

    def __call__(self, *arguments: str, stdin: str = "", timeout: float = 90) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [HEADGATE, *arguments],
            env=self.environment(),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return done

    def environment(self) -> dict[str, str]:
        return {**os.environ, "HEADGATE_COORDINATOR": self.coordinator, "NO_COLOR": "1", "COLUMNS": "200"}

    def ok(self, *arguments: str, stdin: str = "", timeout: float = 90) -> str:
        """Its standard output, where it succeeds."""
        done = self(*arguments, stdin=stdin, timeout=timeout)
        assert done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def json(self, *arguments: str, timeout: float = 90) -> Any:
        return json.loads(self.ok(*arguments, "-o", "json", timeout=timeout))

    def lines(self, *arguments: str, timeout: float = 90) -> list[Any]:
        return [json.loads(line) for line in self.ok(*arguments, "-o", "jsonl", timeout=timeout).splitlines()]
