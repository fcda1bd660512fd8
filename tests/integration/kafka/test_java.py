"""The Java client, compiled and run as it comes from Maven."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.servers.cache import ServerMissing, servers_required
from tests.servers.kafka import find_java, find_libs

SOURCE = Path(__file__).with_name("JavaClient.java")
HELD = [
    "administration",
    *(f"codec {codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd")),
    "positions",
    "commit and resume",
    "rebalance RangeAssignor",
    "rebalance CooperativeStickyAssignor",
    "static members",
    "groups",
    "transactions are refused",
]


@pytest.mark.slow
def test_the_java_client_works(bootstrap: str, name: str, tmp_path: Path) -> None:
    try:
        java, libs = find_java(), find_libs()
        compiler = java.with_name("javac") if java.with_name("javac").exists() else shutil.which("javac")
        if compiler is None:
            raise ServerMissing("there is no javac")
    except ServerMissing as missing:
        if servers_required():
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    subprocess.run(
        [str(compiler), "-nowarn", "-cp", f"{libs}/*", "-d", str(tmp_path), str(SOURCE)], check=True, timeout=120
    )
    ran = subprocess.run(
        [str(java), "-Xmx256m", "-cp", f"{tmp_path}:{libs}/*", "JavaClient", bootstrap, name[:20]],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    held = [line.removeprefix("held ") for line in ran.stdout.splitlines() if line.startswith("held ")]
    assert held == HELD, ran.stdout[-3000:] + ran.stderr[-5000:]
    assert ran.returncode == 0, ran.stderr[-5000:]
