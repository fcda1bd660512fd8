"""Log agents whose segments are in S3: on a real MinIO, by configuration alone."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from tests.e2e.log.kit import Log, log_of, until
from tests.servers.minio import Bucket

pytestmark = [pytest.mark.slow, pytest.mark.minio]


def test_what_one_agent_put_into_s3_another_reads_after_its_death(tmp_path: Path, minio: Bucket) -> None:
    options = {
        "endpoint": minio.endpoint,
        "region": minio.region,
        "access_key_id": minio.access_key,
        "secret_access_key": minio.secret_key,
        "allow_http": "true",
    }
    settings = ["--object-store", f"s3://{minio.name}/segments"]
    settings += [part for key, value in options.items() for part in ("--set", f"log.object_options.{key}={value}")]
    with log_of(tmp_path, options=("--set", "timings.session_ttl=3s")) as log:
        agents = {name: log.cluster.add_agent(name, *settings) for name in ("a", "b")}
        until(lambda: all(log.cluster.agent(name).present for name in agents), "both to be present")
        log.create("orders", 4)
        for index in range(4):
            log.produce("orders", index, b"before-%d" % index)
        assert set(log.leaders("orders").values()) == {"a", "b"}
        shown = (tmp_path / "a-1.log").read_text()
        assert minio.secret_key not in shown.split("log.object_options", 1)[1].split(" ", 1)[0]
        agents["a"].kill()
        for index in range(4):
            log.produce("orders", index, b"after")
            assert log.values("orders", index, agents["b"]) == [b"before-%d" % index, b"after"]
        requests = _metric(log, "b", 'headgate_log_object_requests_total{operation="create",outcome="OK"}')
        assert requests >= 4


def _metric(log: Log, agent: str, name: str) -> float:
    with urllib.request.urlopen(f"http://{log.cluster.agents[agent].http}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))
