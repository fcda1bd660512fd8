"""The generated clients of examples/, fetched and built by the command that people use."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.servers.cache import BUILD_DEADLINE_SECONDS, ServerMissing

ROOT = Path(__file__).resolve().parents[2]


def fetch_sdk(name: str) -> Path:
    """Its folder, with everything fetched that building it needs."""
    done = _sdks("--fetch", name)
    if done.returncode != 0:
        raise ServerMissing(done.stderr.strip())
    return Path(done.stdout.splitlines()[-1])


def build_sdk(name: str) -> Path:
    """The path of its example. One that cannot be built from what was fetched is a defect, no reason to skip."""
    fetch_sdk(name)
    done = _sdks(name)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1])


def _sdks(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "tools/sdks.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=BUILD_DEADLINE_SECONDS,
        check=False,
    )
