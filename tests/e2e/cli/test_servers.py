"""`headgate dev` on real servers: Postgres for the catalog, S3 for topics, and brokers for those who name none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.e2e.cli.conftest import PORTS, start_dev
from tests.servers.minio import Bucket
from tests.servers.ports import free_port_base

pytestmark = [pytest.mark.slow, pytest.mark.postgres, pytest.mark.minio]


def test_the_catalog_is_in_postgres_and_topics_are_in_s3(
    postgres_url: str, minio: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", minio.endpoint)
    monkeypatch.setenv("AWS_REGION", minio.region)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", minio.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", minio.secret_key)
    arguments = ["--postgres", postgres_url, "--s3", f"s3://{minio.name}/dev", "--kafka", "broker:9092"]
    base = free_port_base(PORTS)
    first = start_dev(tmp_path / "first.log", 1, "--data", str(tmp_path / "data"), *arguments, base=base)
    try:
        first.headgate.ok("topics", "create", "orders")
        first.headgate.ok("topics", "produce", "orders", "one", "two")
        sink = "CREATE SINK out (a INT32) TYPE Kafka SET('t' AS `SINK`.topic)"
        first.headgate.ok("sql", "-c", sink)
        assert first.headgate.json("get", "sink/out")["options"]["bootstrap_servers"] == "broker:9092"
        words = Path(f"/proc/{first.pids['coordinator']}/cmdline").read_bytes()
        assert os.fsencode(postgres_url) not in words
    finally:
        first.process.stop()
    assert not (tmp_path / "data" / "catalog.db").exists()
    assert not (tmp_path / "data" / "objects").exists()

    # The records are where they were put, although nothing of the agent's own folder is left.
    second = start_dev(tmp_path / "second.log", 1, "--ephemeral", *arguments, base=base)
    try:
        assert "the catalog in Postgres outlives the temporary folder" in second.log
        consumed = second.headgate.process("topics", "consume", "orders")
        assert consumed.stdout.splitlines() == ["one", "two"], consumed.stderr
    finally:
        second.process.stop()
