"""Two coordinators on one Postgres: the leading one is killed under produces and fetches.

Batches go straight to the leader of their partition, in calls that nobody repeats: any other way in waits for a leader
and tries again, so that a refusal would not be seen.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from headgate.log import v1 as api
from headgate.log.v1 import log_service_pb2_grpc
from headgate_agent.log.records import PlainRecord, pack, unpack_batches
from tests.e2e.life.kit import cluster_of, until
from tests.e2e.life.test_leaders import leader_first, leads
from tests.e2e.log.kit import Log

pytestmark = pytest.mark.slow

PARTITIONS = 2
# How long a call may wait: an OBJECT produce needs a coordinator, and its clients would wait for as long.
PATIENCE = 30.0


class Traffic:
    """Produces to one partition, and reads what it holds, one call after the other, until it is stopped."""

    def __init__(self, address: str, topic: api.Topic, partition: int, began: float) -> None:
        self.where = f"{topic.name}-{partition}"
        self.acknowledged: dict[int, bytes] = {}
        self.read: dict[int, bytes] = {}
        self.refused: list[str] = []
        self.fetches = 0
        self._topic, self._partition, self._began = topic, partition, began
        self._next = 0
        self._stop = threading.Event()
        self._channel = grpc.insecure_channel(address)
        self._stub: Any = log_service_pb2_grpc.LogServiceStub(self._channel)
        self._threads = [
            threading.Thread(target=self._until_stopped, args=(step,), daemon=True)
            for step in (self._produce, self._fetch)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * PATIENCE)
        until(self._has_read_all, f"{self.where} to be read", PATIENCE)
        self._channel.close()

    def _has_read_all(self) -> bool:
        if not self.refused:
            self._fetch()
        return bool(self.refused) or set(self.read) >= set(self.acknowledged)

    def _until_stopped(self, step: Callable[[], None]) -> None:
        while not self._stop.wait(0.02):
            try:
                step()
            except grpc.RpcError as error:
                self._refuse(step.__name__, str(error))

    def _produce(self) -> None:
        value = b"%d" % len(self.acknowledged)
        batches = b"".join(pack([PlainRecord(None, value, int(time.time() * 1000))], 1 << 20))
        part = api.ProducePart(topic_uid=self._topic.uid, partition=self._partition, batches=batches)
        (told,) = self._stub.Produce(api.ProduceRequest(parts=[part]), timeout=PATIENCE).parts
        if told.error_reason:
            self._refuse("produce", f"{told.error_reason}: {told.error_message}")
        else:
            self.acknowledged[told.base_offset] = value

    def _fetch(self) -> None:
        part = api.FetchPart(topic_uid=self._topic.uid, partition=self._partition, offset=self._next)
        request = api.FetchRequest(parts=[part])
        request.max_wait.FromMilliseconds(200)
        (told,) = self._stub.Fetch(request, timeout=PATIENCE).parts
        if told.error_reason:
            self._refuse("fetch", f"{told.error_reason}: {told.error_message}")
            return
        self.fetches += 1
        for record in unpack_batches(told.batches):
            if record.offset >= self._next:
                assert record.value is not None
                self.read[record.offset] = record.value
                self._next = record.offset + 1

    def _refuse(self, what: str, why: str) -> None:
        self.refused.append(f"{time.monotonic() - self._began:.2f} s: {self.where}: {what}: {why}")


def test_a_failover_of_the_coordinator_refuses_no_produce_and_no_fetch_and_loses_nothing(
    tmp_path: Path, postgres_url: str
) -> None:
    """With the timings of production: a standby takes over after up to 5 s, and a session that is due for renewal is
    certain for 3.4 s only, so calls wait in between."""
    with cluster_of(tmp_path, url=postgres_url, coordinators=2) as cluster:
        for name in ("a", "b"):
            cluster.add_agent(name)
        until(lambda: all(cluster.agent(name).present for name in cluster.agents), "both agents")
        first, second = leader_first(cluster)
        cluster.coordinators = [first, second]
        log = Log(cluster)
        topics = [log.create("objects", PARTITIONS), log.create("wal", PARTITIONS, wal=True)]
        epochs = {topic.name: [one.epoch for one in log.partitions(topic.name)] for topic in topics}
        began = time.monotonic()
        traffic = [
            Traffic(cluster.agents[leader].address, topic, partition, began)
            for topic in topics
            for partition, leader in log.leaders(topic.name).items()
        ]
        until(lambda: all(len(one.read) > 20 for one in traffic), "traffic")
        first.kill()
        killed = time.monotonic() - began
        cluster.coordinators = [second]
        until(lambda: leads(cluster, second), "the standby to take over")
        over = time.monotonic() - began
        before = {one.where: len(one.read) for one in traffic}
        until(
            lambda: (
                any(one.refused for one in traffic) or all(len(one.read) > before[one.where] + 20 for one in traffic)
            ),
            "traffic after the failover",
        )
        for one in traffic:
            one.end()
        refused = [line for one in traffic for line in one.refused]
        assert refused == [], "\n".join([f"killed at {killed:.2f} s, taken over by {over:.2f} s", *refused[:20]])
        for one in traffic:
            assert one.read == one.acknowledged, f"{one.where}: what was acknowledged is what is there"
        assert {topic.name: [one.epoch for one in log.partitions(topic.name)] for topic in topics} == epochs
