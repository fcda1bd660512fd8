"""Two coordinators on one Postgres: the leading one is killed under produces and fetches, over gRPC and over Kafka's
protocol. And one that is away for a while under members of consumer groups.

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
from kio.schema.errors import ErrorCode

from headgate.log import v1 as api
from headgate.log.v1 import log_service_pb2_grpc
from headgate_agent.log.records import PlainRecord, pack, unpack_batches
from tests.e2e.life.kit import cluster_of, until
from tests.e2e.life.test_leaders import leader_first, leads
from tests.e2e.log.kit import Log
from tests.unit.kafka.test_every_version import join
from tests.unit.kafka.wire import Wire

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
            except (grpc.RpcError, OSError) as error:
                self._refuse(step.__name__, str(error))

    def _next_batch(self) -> tuple[bytes, bytes]:
        """A value that nobody has produced yet, and the batch with it."""
        value = b"%d" % len(self.acknowledged)
        return value, b"".join(pack([PlainRecord(None, value, int(time.time() * 1000))], 1 << 20))

    def _produce(self) -> None:
        value, batches = self._next_batch()
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
        self._take(told.batches)

    def _take(self, batches: bytes) -> None:
        self.fetches += 1
        for record in unpack_batches(batches):
            if record.offset >= self._next:
                assert record.value is not None
                self.read[record.offset] = record.value
                self._next = record.offset + 1

    def _refuse(self, what: str, why: str) -> None:
        self.refused.append(f"{time.monotonic() - self._began:.2f} s: {self.where}: {what}: {why}")


class KafkaTraffic(Traffic):
    """The same as a Kafka client, which asks for metadata at no error: it has none to expect."""

    def __init__(self, address: str, topic: api.Topic, partition: int, began: float) -> None:
        self._producer, self._consumer = Wire(address, timeout=PATIENCE), Wire(address, timeout=PATIENCE)
        super().__init__(address, topic, partition, began)

    def end(self) -> None:
        super().end()
        self._producer.socket.close()
        self._consumer.socket.close()

    def _produce(self) -> None:
        value, batches = self._next_batch()
        data = [{"name": self._topic.name, "partition_data": [{"index": self._partition, "records": batches}]}]
        request = {"acks": -1, "timeout": int(PATIENCE * 1000), "topic_data": data}
        (told,) = self._producer.ask(0, 9, request).responses[0].partition_responses
        if told.error_code is not ErrorCode.none:
            self._refuse("produce", f"{told.error_code.name}: {told.error_message}")
        else:
            self.acknowledged[told.base_offset] = value

    def _fetch(self) -> None:
        part = {"partition": self._partition, "fetch_offset": self._next, "partition_max_bytes": 1 << 20}
        topics = [{"topic": self._topic.name, "partitions": [part]}]
        request = {"replica_id": -1, "max_wait": 200, "min_bytes": 1, "max_bytes": 1 << 20, "topics": topics}
        (told,) = self._consumer.ask(1, 11, request).responses[0].partitions
        if told.error_code is not ErrorCode.none:
            self._refuse("fetch", told.error_code.name)
        else:
            self._take(bytes(told.records or b""))


@pytest.mark.parametrize("protocol", [Traffic, KafkaTraffic], ids=["gRPC", "Kafka"])
def test_a_failover_of_the_coordinator_refuses_no_produce_and_no_fetch_and_loses_nothing(
    tmp_path: Path, postgres_url: str, protocol: type[Traffic]
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
        over_kafka = protocol is KafkaTraffic
        traffic = [
            protocol(
                cluster.agent(leader).kafka_address if over_kafka else cluster.agents[leader].address,
                topic,
                partition,
                began,
            )
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


class GroupTraffic:
    """The member of a consumer group, which says that it is alive, commits where it is and reads that back."""

    def __init__(self, agent: str, group: str, topic: str) -> None:
        with Wire(agent) as wire:
            (found,) = wire.ask(10, 4, {"key_type": 0, "coordinator_keys": [group]}).coordinators
        self.group, self.rounds = group, 0
        self.refused: list[str] = []
        self._topic = topic
        self._wire = Wire(f"{found.host}:{found.port}", timeout=PATIENCE)
        self._member, self._generation = join(self._wire, group)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join(2 * PATIENCE)
        self._wire.socket.close()

    def _run(self) -> None:
        try:
            while not self.refused and not self._stop.wait(0.02):
                self._beat()
                self._commit()
                self.rounds += 1
        except OSError as error:
            self.refused.append(str(error))

    def _beat(self) -> None:
        asked = {"group_id": self.group, "generation_id": self._generation, "member_id": self._member}
        self._told("heartbeat", self._wire.ask(12, 4, asked).error_code)

    def _commit(self) -> None:
        offset = {"partition_index": 0, "committed_offset": self.rounds, "committed_metadata": None}
        request = {
            "group_id": self.group,
            "member_id": self._member,
            "generation_id_or_member_epoch": self._generation,
            "topics": [{"name": self._topic, "partitions": [offset]}],
        }
        ((told,),) = [one.partitions for one in self._wire.ask(8, 9, request).topics]
        self._told("commit", told.error_code)
        wanted = [{"name": self._topic, "partition_indexes": [0]}]
        (answer,) = self._wire.ask(9, 9, {"groups": [{"group_id": self.group, "topics": wanted}]}).groups
        self._told("offsets", answer.error_code)
        if not self.refused and answer.topics[0].partitions[0].committed_offset != self.rounds:
            self.refused.append(f"{self.group}: {self.rounds} was committed, and {answer} is told")

    def _told(self, what: str, code: ErrorCode) -> None:
        if code is not ErrorCode.none:
            self.refused.append(f"{self.group}: {what} {self.rounds}: {code.name}")


def test_while_the_coordinator_is_away_nothing_is_refused_that_members_of_groups_ask_and_no_generation_ends(
    tmp_path: Path,
) -> None:
    """For longer than an agent can be certain of its session (0.9 of 6 s after it was renewed), so that members wait;
    and they may wait for as long as a coordinator takes to start on a busy machine."""
    with cluster_of(tmp_path) as cluster:
        for name in ("a", "b"):
            cluster.add_agent(name, "--set", "log.doubt=60s", "--set", "kafka.groups.catalog_timeout=60s")
        until(lambda: all(cluster.agent(name).present for name in cluster.agents), "both agents")
        Log(cluster).create("read")
        address = cluster.agent("a").kafka_address
        members = [GroupTraffic(address, f"group-{number}", "read") for number in range(6)]
        until(lambda: all(one.rounds > 5 or one.refused for one in members), "groups")
        cluster.coordinator.kill()
        time.sleep(6.0)
        cluster.coordinator.start()
        before = [one.rounds for one in members]
        until(
            lambda: all(one.refused or one.rounds > was + 5 for one, was in zip(members, before, strict=True)),
            "groups after the coordinator was away",
            60,
        )
        for one in members:
            one.end()
        assert [line for one in members for line in one.refused] == []
