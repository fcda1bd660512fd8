"""DeleteRecords ends in its client's time, whatever the object store does, and each partition tells its own outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headgate_agent.kafka.config import KafkaLimits
from tests.unit.kafka.kit import Cluster, running_cluster
from tests.unit.kafka.test_every_version import create
from tests.unit.kafka.wire import Wire, batch

NONE = ErrorCode.none


def fill(wire: Wire, name: str) -> None:
    """Three records in each of two partitions, in the write-ahead log alone."""
    create(wire, name)
    parts = [{"index": index, "records": batch(3)} for index in (0, 1)]
    data = [{"name": name, "partition_data": parts}]
    (answer,) = wire.ask(0, 9, {"acks": -1, "timeout": 10_000, "topic_data": data}).responses
    assert [one.error_code for one in answer.partition_responses] == [NONE, NONE]


def hang(monkeypatch: pytest.MonkeyPatch, cluster: Cluster, partition: int) -> asyncio.Event:
    """The object store takes nothing of one partition until the event is set."""
    (agent,) = cluster.agents.values()
    objects: Any = agent.broker.world.objects
    create_object = objects.create
    free = asyncio.Event()

    async def slowly(key: str, buffers: Sequence[bytes]) -> None:
        if key.split("/")[1] == str(partition):
            await free.wait()
        await create_object(key, buffers)

    monkeypatch.setattr(objects, "create", slowly)
    return free


def delete(wire: Wire, name: str, timeout: int) -> list[tuple[int, ErrorCode, int]]:
    """Two of three records of both partitions."""
    partitions = [{"partition_index": index, "offset": 2} for index in (0, 1)]
    (topic,) = wire.ask(21, 2, {"topics": [{"name": name, "partitions": partitions}], "timeout": timeout}).topics
    return [(one.partition_index, one.error_code, one.low_watermark) for one in topic.partitions]


def starts(cluster: Cluster) -> dict[int, int]:
    (agent,) = cluster.agents.values()
    return {key.index: led.bounds.log_start for key, led in agent.broker.led.items()}


@pytest.mark.slow
def test_a_partition_that_cannot_be_flushed_times_out_by_itself_and_keeps_its_records(
    cluster: Cluster, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(wire, "orders")
    free = hang(monkeypatch, cluster, 0)
    began = time.monotonic()
    assert delete(wire, "orders", 1000) == [(0, ErrorCode.request_timed_out, -1), (1, NONE, 2)]
    assert time.monotonic() - began >= 1, "it had its time"
    assert starts(cluster) == {0: 0, 1: 2}
    cluster.loop.call_soon_threadsafe(free.set)
    assert delete(wire, "orders", 10_000) == [(0, NONE, 2), (1, NONE, 2)]


@pytest.mark.slow
def test_no_client_waits_longer_than_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = KafkaLimits(drain=0.5, admin_timeout=2.0)
    with running_cluster(tmp_path, limits=limits) as cluster, Wire(cluster.bootstrap, timeout=10) as wire:
        fill(wire, "orders")
        hang(monkeypatch, cluster, 0)
        # The wire gives up before the client's own time is over.
        assert delete(wire, "orders", 600_000)[0] == (0, ErrorCode.request_timed_out, -1)


def test_a_defect_of_one_partition_is_no_answer_for_the_others(
    cluster: Cluster, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(wire, "orders")
    (agent,) = cluster.agents.values()
    deletes = agent.broker.delete_records

    async def broken(key: Any, before: int) -> int:
        if key.index == 0:
            raise RuntimeError("a defect")
        return await deletes(key, before)

    monkeypatch.setattr(agent.broker, "delete_records", broken)
    assert delete(wire, "orders", 5000) == [(0, ErrorCode.unknown_server_error, -1), (1, NONE, 2)]
