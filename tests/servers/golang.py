"""Builds a command out of a public Go module."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.servers.cache import ServerMissing, run_build, say


def build_go_command(module: str, version: str, package: str, target: Path) -> None:
    """Builds `package` of `module`, required from an empty module so that the module's own `replace` lines are left out
    of account."""
    go = shutil.which("go")
    if go is None:
        raise ServerMissing(f"{target.stem} is neither on PATH nor in the cache, and without Go it cannot be built")
    say(f"building {target.stem} with Go (once; some minutes)")
    environment = {"GONOSUMDB": "*", "GOFLAGS": "-mod=mod"}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        run_build([go, "mod", "init", "headgate.test/servers"], folder, environment)
        run_build([go, "get", f"{module}@{version}"], folder, environment)
        run_build([go, "build", "-trimpath", "-ldflags", "-s -w", "-o", str(target), package], folder, environment)
    say(f"built {target.stem}")
