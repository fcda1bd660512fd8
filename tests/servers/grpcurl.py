"""The grpcurl command: a gRPC client that knows nothing but what a server's reflection tells it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers.cache import find_or_build_command
from tests.servers.golang import build_go_command

MODULE = "github.com/fullstorydev/grpcurl"
PACKAGE = f"{MODULE}/cmd/grpcurl"


def find_grpcurl() -> Path:
    return find_or_build_command(
        "grpcurl", "HEADGATE_GRPCURL", lambda path: build_go_command(MODULE, "latest", PACKAGE, path)
    )


@dataclass(frozen=True, slots=True)
class Grpcurl:
    """Runs the command. `list`, `describe` and the like go through `run`, calls through `call`."""

    path: Path

    def run(self, *arguments: str, timeout: float = 30) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.path, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def call(
        self, address: str, method: str, request: object | None = None, *options: str, timeout: float = 30
    ) -> subprocess.CompletedProcess[str]:
        """Calls `package.Service/Method` in plain text, with the request as JSON."""
        body = json.dumps(request if request is not None else {})
        return self.run("-plaintext", *options, "-d", body, address, method, timeout=timeout)
