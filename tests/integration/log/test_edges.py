"""Edges over gRPC, with a real coordinator: written, read, trimmed, moved to other agents and cleaned up."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import update

from headgate.log import v1 as api
from headgate.log.v1 import edge_service_pb2
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.upkeep import UpkeepSettings
from headgate_common.dispatch import methods
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.log import topics
from headgate_coordinator.catalog.log.schema import topics as topics_table
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.tx import Tx
from tests.integration.log.kit import LogCluster, log_cluster
from tests.integration.log.test_broker import batch
from tests.integration.log.test_object_stores import s3
from tests.servers.minio import Bucket

_METHODS = methods(edge_service_pb2.DESCRIPTOR.services_by_name["EdgeService"])
OBJECT, WAL = api.DURABILITY_OBJECT, api.DURABILITY_WAL


@dataclass
class Edge:
    """An edge and its topic of error rows, with a fragment that writes them."""

    cluster: LogCluster
    edge: api.Topic
    errors: api.Topic
    agent: str

    async def ask(self, method: str, **fields: Any) -> Any:
        called = _METHODS[method]
        address = self.cluster.agents[self.agent].address
        return await self.cluster.wires.call(address, called, called.request(**fields), timeout=10.0)

    async def open(self, epoch: int) -> int:
        uids = [self.edge.uid, self.errors.uid]
        return int((await self.ask("OpenWriter", writer=run(epoch), topic_uids=uids)).batch_id)

    async def stage(self, epoch: int, stage_id: str, *values: bytes, bad: bool = False) -> None:
        uid = self.errors.uid if bad else self.edge.uid
        await self.ask("Stage", writer=run(epoch), stage_id=stage_id, topic_uid=uid, batches=values)

    async def commit(self, epoch: int, batch_id: int, *stages: str, end: bool = False) -> bool:
        """Whether it was committed before."""
        answer = await self.ask("CommitBatch", writer=run(epoch), batch_id=batch_id, stage_ids=stages, end=end)
        return bool(answer.already_committed)

    async def write(self, epoch: int, batch_id: int, *values: bytes) -> None:
        await self.stage(epoch, f"{epoch}-{batch_id}", *values)
        assert not await self.commit(epoch, batch_id, f"{epoch}-{batch_id}")

    async def trim(self, epoch: int, start: int) -> None:
        await self.ask("TrimEdge", topic_uid=self.edge.uid, reader=run(epoch, "reader"), log_starts=[start])

    async def state(self) -> Any:
        return (await self.ask("GetEdge", topic_uid=self.edge.uid)).partitions[0]

    async def rows(self, *, errors: bool = False) -> list[bytes]:
        uid = self.errors.uid if errors else self.edge.uid
        bounds = (await self.ask("GetEdge", topic_uid=uid)).partitions[0]
        request = api.ReadEdgeRequest(topic_uid=uid, from_offset=bounds.log_start, until_offset=bounds.high_watermark)
        address = self.cluster.agents[self.agent].address
        answers = self.cluster.wires.stream(address, _METHODS["ReadEdge"], request, timeout=10.0)
        return [batch for part in [part async for part in answers] for batch in part.batches]  # type: ignore[attr-defined]

    async def pin(self, agent: str) -> None:
        """As the coordinator does when a fragment has moved."""
        assert self.cluster.client is not None
        await self.cluster.client.store.write(partial(_pin, [self.edge.name, self.errors.name], agent))
        self.agent = agent
        await self.led()

    async def led(self) -> None:
        keys = {PartitionKey(topic.uid, 0) for topic in (self.edge, self.errors)}
        broker = self.cluster.agents[self.agent].broker
        await self.cluster.until(lambda: keys <= broker.led.keys(), f"{self.agent} to lead the edge")


def run(epoch: int, fragment: str = "fragment-1") -> api.WriterRef:
    return api.WriterRef(fragment_uid=fragment, epoch=epoch)


def _pin(names: Sequence[str], agent: str, tx: Tx) -> None:
    for name in names:
        before = topics.get_topic(tx, api.GetTopicRequest(name=name))
        change = update(topics_table).where(topics_table.c.name == name)
        tx.connection.execute(change.values(pinned_agent=agent, revision=tx.revision))
        tx.record("TOPIC", name, before.uid, before, topics.get_topic(tx, api.GetTopicRequest(name=name)))


def _drop(name: str, tx: Tx) -> None:
    topics.drop_topic(tx, api.DropTopicRequest(name=name))


async def made(cluster: LogCluster, durability: api.Durability.ValueType, agent: str = "a") -> Edge:
    assert cluster.client is not None

    def create(name: str, tx: Tx) -> api.Topic:
        return topics.create(
            tx,
            name=name,
            partition_count=1,
            wanted=api.TopicSettings(durability=durability),
            rules=TopicRules(),
            internal=True,
            pinned_agent=agent,
        )

    store = cluster.client.store
    edge = Edge(
        cluster, await store.write(partial(create, "edge")), await store.write(partial(create, "errors")), agent
    )
    await edge.led()
    return edge


BOTH = pytest.mark.parametrize("durability", [OBJECT, WAL], ids=["OBJECT", "WAL"])


@BOTH
async def test_an_edge_is_written_read_and_ended(durability: api.Durability.ValueType) -> None:
    async with log_cluster("a") as cluster:
        edge = await made(cluster, durability)
        assert await edge.open(1) == -1
        await edge.stage(1, "a", b"one", b"two")
        await edge.stage(1, "e", b"bad", bad=True)
        assert (await edge.state()).high_watermark == 0
        assert not await edge.commit(1, 0, "a", "e")
        assert await edge.commit(1, 0, "a", "e")
        assert await edge.rows() == [b"one", b"two"]
        assert await edge.rows(errors=True) == [b"bad"]
        await edge.commit(1, 1, end=True)
        state = await edge.state()
        assert state.ended and state.high_watermark == 3
        with pytest.raises(HeadgateError, match="STAGE_NOT_FOUND"):
            await edge.commit(1, 2, "never staged")
        await edge.open(2)
        with pytest.raises(HeadgateError, match="STALE_EPOCH"):
            await edge.stage(1, "late", b"late")


async def test_an_agent_lost_for_good_loses_no_committed_batch_and_none_comes_twice() -> None:
    async with log_cluster("a", "b") as cluster:
        edge = await made(cluster, OBJECT)
        await edge.open(1)
        for number in range(5):
            await edge.write(1, number, b"row %d" % number)
        await edge.stage(1, "pending", b"row 5")
        await cluster.agents.pop("a").crash()
        await edge.pin("b")
        assert await edge.rows() == [b"row %d" % number for number in range(5)]
        # The engine's run is still there, and goes on with what it had staged.
        assert await edge.commit(1, 4, "whatever")
        assert not await edge.commit(1, 5, "pending")
        assert await edge.open(2) == 5
        with pytest.raises(HeadgateError, match="STALE_EPOCH"):
            await edge.commit(1, 6)
        assert await edge.rows() == [b"row %d" % number for number in range(6)]


@pytest.mark.minio
async def test_on_s3_a_new_leader_has_everything_too(minio: Bucket) -> None:
    async with log_cluster() as cluster:
        cluster.objects = s3(minio)
        for name in ("a", "b"):
            await cluster.add(name)
        edge = await made(cluster, OBJECT)
        await edge.open(1)
        for number in range(3):
            await edge.write(1, number, b"row %d" % number)
        await edge.stage(1, "pending", b"row 3")
        await cluster.agents.pop("a").crash()
        await edge.pin("b")
        # The answer was lost, so it is staged again; then something else under the same id.
        await edge.stage(1, "pending", b"row 3")
        with pytest.raises(HeadgateError, match="RECORDS_REFUSED"):
            await edge.stage(1, "pending", b"something else")
        assert not await edge.commit(1, 3, "pending")
        assert await edge.rows() == [b"row %d" % number for number in range(4)]


async def test_a_leader_that_restarts_goes_on_with_the_same_run() -> None:
    async with log_cluster("a") as cluster:
        edge = await made(cluster, OBJECT)
        await edge.open(1)
        await edge.write(1, 0, b"zero")
        await edge.stage(1, "pending", b"one")
        agent = cluster.agents["a"]
        await agent.crash()
        await agent.start()
        with pytest.raises(HeadgateError, match=r"NOT_LEADER|UNKNOWN_PARTITION"):
            await edge.commit(1, 1, "pending")
        await edge.led()
        assert not await edge.commit(1, 1, "pending")
        assert await edge.rows() == [b"zero", b"one"]


async def test_an_edge_that_moves_while_it_is_written_keeps_its_writer() -> None:
    async with log_cluster("a", "b") as cluster:
        edge = await made(cluster, OBJECT)
        await edge.open(1)
        batch = 0
        for agent in ("b", "a", "b"):
            await edge.write(1, batch, b"%d" % batch)
            await edge.stage(1, f"moved-{batch}", b"%d" % (batch + 1))
            await edge.pin(agent)
            assert not await edge.commit(1, batch + 1, f"moved-{batch}")
            batch += 2
        assert await edge.rows() == [b"%d" % number for number in range(6)]


async def test_a_reader_that_was_shut_out_elsewhere_stays_so_where_the_edge_comes_back_to() -> None:
    async with log_cluster("a", "b") as cluster:
        edge = await made(cluster, OBJECT)
        await edge.open(1)
        await edge.write(1, 0, b"zero", b"one")
        await edge.trim(2, 0)
        await edge.pin("b")
        await edge.trim(3, 1)
        await edge.pin("a")
        with pytest.raises(HeadgateError, match="STALE_EPOCH"):
            await edge.trim(2, 2)
        await edge.trim(3, 1)
        assert await edge.rows() == [b"one"]


@pytest.mark.parametrize("method", ["OpenEdge", "CommitStages"])
async def test_an_answer_of_the_catalog_that_is_lost_is_asked_for_again(method: str) -> None:
    async with log_cluster("a") as cluster:
        edge = await made(cluster, OBJECT)
        cluster.wires.lose_answers[method] = 2
        await edge.open(1)
        await edge.write(1, 0, b"zero")
        await edge.write(1, 1, b"one")
        assert cluster.wires.lose_answers[method] == 0
        assert await edge.rows() == [b"zero", b"one"]
        assert cluster.agents["a"].broker.led[PartitionKey(edge.edge.uid, 0)].partition.lost is None


async def test_a_stage_is_collected_when_it_cannot_be_committed_any_more_and_not_before() -> None:
    async with log_cluster("a", upkeep_settings=UpkeepSettings(delete_grace=0.0, orphan_grace=-1.0)) as cluster:
        edge = await made(cluster, OBJECT)
        agent, objects = cluster.agents["a"], cluster.objects.objects
        await edge.open(1)
        await edge.stage(1, "a", b"a")
        await edge.stage(1, "pending", b"pending")
        # However old it is.
        assert await agent.upkeep.collect_orphans() == 0
        await agent.crash()
        await agent.start()
        await edge.led()
        await edge.commit(1, 0, "a")
        assert len(objects) == 2
        assert await agent.upkeep.collect_orphans() == 1
        assert await edge.rows() == [b"a"] and len(objects) == 1
        await edge.stage(1, "of the first run", b"x")
        await edge.open(2)
        await edge.stage(2, "of the second run", b"y")
        assert await agent.upkeep.delete_doomed() == 1
        assert await agent.upkeep.collect_orphans() == 0
        await edge.commit(2, 1, "of the second run")
        assert await agent.upkeep.collect_orphans() == 0
        assert await edge.rows() == [b"a", b"y"]


async def test_stages_of_an_edge_that_is_gone_are_collected_though_its_error_rows_stay() -> None:
    async with log_cluster("a", upkeep_settings=UpkeepSettings(delete_grace=0.0, orphan_grace=-1.0)) as cluster:
        edge = await made(cluster, OBJECT)
        await edge.open(1)
        await edge.stage(1, "a", b"a")
        await edge.stage(1, "e", b"bad", bad=True)
        assert cluster.client is not None
        await cluster.client.store.write(partial(_drop, edge.edge.name))
        upkeep = cluster.agents["a"].upkeep
        assert await upkeep.collect_orphans() == 1
        assert [name.split("/")[0] for name in cluster.objects.objects] == [edge.errors.uid]


async def test_what_a_commit_does_not_name_goes_with_it() -> None:
    async with log_cluster("a") as cluster:
        edge = await made(cluster, OBJECT)
        await edge.open(1)
        await edge.stage(1, "a", b"a")
        await edge.stage(1, "lost", b"of a task that lost")
        await edge.commit(1, 0, "a")
        assert await cluster.agents["a"].upkeep.delete_doomed() == 1
        assert len(cluster.objects.objects) == 1 and await edge.rows() == [b"a"]


async def test_stages_that_were_committed_are_merged_like_any_segments() -> None:
    async with log_cluster("a", upkeep_settings=UpkeepSettings(merge_least=4, delete_grace=0.0)) as cluster:
        edge = await made(cluster, OBJECT)
        await edge.open(1)
        for number in range(10):
            await edge.write(1, number, b"row %d" % number)
        agent = cluster.agents["a"]
        assert await agent.upkeep.merge() == 10
        await agent.upkeep.delete_doomed()
        assert len(cluster.objects.objects) == 1
        assert await edge.rows() == [b"row %d" % number for number in range(10)]
        await edge.write(1, 10, b"after")
        await agent.crash()
        await agent.start()
        await edge.led()
        assert (await edge.rows())[-2:] == [b"row 9", b"after"]


@BOTH
async def test_the_size_of_an_edge_is_that_of_what_is_left_to_read(durability: api.Durability.ValueType) -> None:
    async with log_cluster("a") as cluster:
        edge = await made(cluster, durability)
        await edge.open(1)
        assert (await edge.state()).bytes == 0
        sizes = [0]
        for number in range(4):
            # Nothing that could be compressed away.
            await edge.write(1, number, random.Random(number).randbytes(1000))
            sizes.append((await edge.state()).bytes)
        assert all(later - earlier > 500 for earlier, later in pairwise(sizes))
        await edge.trim(1, 3)
        left = (await edge.state()).bytes
        assert left == sizes[4] - sizes[3]
        agent = cluster.agents["a"]
        await agent.upkeep.tell_trims()
        assert (await edge.state()).bytes == left
        await agent.crash()
        await agent.start()
        await edge.led()
        assert (await edge.state()).bytes == left
        await edge.trim(1, 4)
        assert (await edge.state()).bytes == 0


@BOTH
async def test_trimming_an_edge_asks_nothing_of_the_catalog_until_its_time(
    durability: api.Durability.ValueType,
) -> None:
    async with log_cluster("a") as cluster:
        edge = await made(cluster, durability)
        agent = cluster.agents["a"]
        await edge.open(1)
        await edge.write(1, 0, b"row 0")
        await edge.trim(1, 0)
        writes = ("TrimPartitions", "CommitSegments", "OpenEdge")
        before = {method: cluster.wires.calls[method] for method in writes}
        for number in range(1, 30):
            await edge.write(1, number, b"row %d" % number)
            await edge.trim(1, number)
            assert (await edge.state()).log_start == number
        assert {method: cluster.wires.calls[method] for method in writes} == before
        with pytest.raises(HeadgateError, match="OFFSET_OUT_OF_RANGE"):
            await edge.trim(1, 31)
        assert await edge.rows() == [b"row 29"]
        assert await agent.upkeep.tell_trims() == 1 and await agent.upkeep.tell_trims() == 0
        assert cluster.wires.calls["TrimPartitions"] == before["TrimPartitions"] + 1
        await agent.upkeep.delete_doomed()
        # A stage each, of which one is left; a WAL edge whose reader keeps up uploads nothing at all.
        assert len(cluster.objects.objects) == (1 if durability == OBJECT else 0)
        await agent.crash()
        await agent.start()
        await edge.led()
        assert await edge.rows() == [b"row 29"]


async def test_a_trim_that_the_catalog_was_not_told_of_is_forgotten_by_a_crash_and_loses_nothing() -> None:
    async with log_cluster("a") as cluster:
        edge = await made(cluster, WAL)
        await edge.open(1)
        for number in range(5):
            await edge.write(1, number, b"row %d" % number)
        await edge.trim(2, 3)
        agent = cluster.agents["a"]
        await agent.crash()
        await agent.start()
        await edge.led()
        state = await edge.state()
        assert (state.log_start, state.high_watermark) == (0, 5)
        # Who was shut out stays so.
        with pytest.raises(HeadgateError, match="STALE_EPOCH"):
            await edge.trim(1, 5)
        await edge.trim(2, 3)
        assert await edge.rows() == [b"row 3", b"row 4"]


async def test_write_ahead_files_of_a_trimmed_edge_go_once_the_catalog_knows() -> None:
    async with log_cluster("a") as cluster:
        edge = await made(cluster, WAL)
        agent = cluster.agents["a"]
        await edge.open(1)
        for number in range(40):
            await edge.write(1, number, b"%d" % number * 3000)
        await edge.trim(1, 39)
        assert len(agent.files.files) > 2
        await agent.upkeep.tell_trims()
        await agent.upkeep.free_wal()
        assert len(agent.files.files) <= 2 and not cluster.objects.objects
        await agent.crash()
        await agent.start()
        await edge.led()
        assert await edge.open(2) == 39
        assert await edge.rows() == [b"39" * 3000]


async def test_a_stage_that_nobody_commits_keeps_few_write_ahead_files_and_can_be_committed_after_all() -> None:
    async with log_cluster("a") as cluster:
        edge = await made(cluster, WAL)
        topic = await cluster.create("orders", wal=True)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await edge.open(1)
        await edge.stage(1, "pending", b"of a run that is away")
        for _ in range(4):
            for number in range(40):
                await agent.broker.produce(key, batch(b"%d" % number * 5000))
            await agent.broker.led[key].partition.flush()
            for _ in range(2):
                await agent.upkeep.free_wal()
            assert len(agent.files.files) <= UpkeepSettings().wal_files + 2
        await agent.crash()
        await agent.start()
        await edge.led()
        assert not await edge.commit(1, 0, "pending")
        assert await edge.rows() == [b"of a run that is away"]


async def test_write_ahead_files_with_stages_stay_while_it_is_not_worth_writing_these_again() -> None:
    async with log_cluster("a") as cluster:
        edge = await made(cluster, WAL)
        agent = cluster.agents["a"]
        await edge.open(1)
        rows = [b"%d" % number * 30_000 for number in range(8)]
        for number, row in enumerate(rows):
            await edge.stage(1, str(number), row)
        before = set(agent.files.files)
        assert len(before) > UpkeepSettings().wal_files
        written = agent.broker.world.wal.bytes_written
        for _ in range(3):
            await agent.upkeep.free_wal()
        assert set(agent.files.files) == before and agent.broker.world.wal.bytes_written == written
        await agent.crash()
        await agent.start()
        await edge.led()
        assert not await edge.commit(1, 0, *map(str, range(8)))
        assert await edge.rows() == rows
