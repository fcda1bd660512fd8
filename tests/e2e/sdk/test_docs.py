"""The commands of docs/sdks.md do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.e2e.sdk.conftest import Behind
from tests.servers.grpcurl import Grpcurl
from tests.servers.sdks import ROOT

COMMANDS = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)


def commands_with(text: str) -> str:
    found = [block for block in COMMANDS.findall((ROOT / "docs" / "sdks.md").read_text()) if text in block]
    assert len(found) == 1, f"docs/sdks.md has {len(found)} blocks with {text}"
    return str(found[0]).replace(".venv/bin/python", sys.executable)


def run(script: str, out: Path, *folders: Path) -> None:
    environment = {**os.environ, "OUT": str(out), "PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]])}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_client_is_generated_with_protoc(tmp_path: Path) -> None:
    run(commands_with("find headgate"), tmp_path)
    generated = {str(path.relative_to(tmp_path / "python")) for path in tmp_path.rglob("*_pb2*.py")}
    expected = {
        str(path.relative_to(ROOT / "protos").with_suffix("")) + "_pb2.py"
        for path in (ROOT / "protos" / "headgate").rglob("*.proto")
    }
    assert expected <= generated
    assert "headgate/catalog/v1/watch_service_pb2_grpc.py" in generated
    assert "buf/validate/validate_pb2.py" in generated


def test_a_client_is_generated_from_a_running_server(tmp_path: Path, behind: Behind, grpcurl: Grpcurl) -> None:
    script = commands_with("-protoset-out").replace("localhost:7400", behind.cluster.coordinator.address)
    run(script, tmp_path, grpcurl.path.parent)
    generated = tmp_path / "reflected" / "headgate" / "catalog" / "v1" / "query_service_pb2.py"
    assert "CreateQueryRequest" in generated.read_text()
    assert "headgate.catalog.v1.QueryService is a service" in (tmp_path / "services.txt").read_text()
