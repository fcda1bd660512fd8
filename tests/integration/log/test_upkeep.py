"""Retention, merging, deletion of objects and write-ahead files: what goes may go, and readers do not notice."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from headgate.log import v1 as api
from headgate_agent.errors import CATALOG_MISMATCH
from headgate_agent.log.access import FetchPart
from headgate_agent.log.contract import NotLeader, PartitionKey, SegmentInfo
from headgate_agent.log.led import Led
from headgate_agent.log.metadata import ref
from headgate_agent.log.objects import ObjectMissing, ObjectStoreFailed
from headgate_agent.log.segment import CorruptSegment
from headgate_agent.log.store_identity import claim
from headgate_agent.log.upkeep import UpkeepSettings, small_run
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.errors import OFFSET_CONFLICT
from tests.integration.log.kit import LogAgent, LogCluster, log_cluster
from tests.integration.log.test_broker import batch, produce, read_all

MERGING = UpkeepSettings(merge_least=4, delete_grace=0.0, orphan_grace=0.0)


async def one_segment_each(agent: LogAgent, key: PartitionKey, *values: bytes, at: int = 1000) -> None:
    for value in values:
        await agent.broker.produce(key, batch(value, time=at))
        await agent.broker.led[key].partition.flush()


def now() -> int:
    return int(time.time() * 1000)


def counted(agent: LogAgent, name: str, **labels: str) -> float:
    registry = agent.broker.world.metrics.registry
    return registry.get_sample_value(f"headgate_log_{name}_total", labels) or 0.0


async def test_records_older_than_their_time_go_with_their_objects_and_younger_ones_stay() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", retention=Duration(seconds=3600))
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await one_segment_each(agent, key, b"old", b"older")
        await one_segment_each(agent, key, b"young", at=now())
        assert await agent.upkeep.expire() == 2
        assert agent.broker.bounds(key).log_start == 2
        assert await read_all(agent, key, 2) == [b"young"]
        assert len(cluster.objects.objects) == 3
        assert counted(agent, "objects_deleted", why="retention") == 0
        assert await agent.upkeep.delete_doomed() == 2
        assert len(cluster.objects.objects) == 1
        assert await agent.upkeep.expire() == 0
        assert counted(agent, "segments_expired") == 2
        assert counted(agent, "objects_deleted", why="retention") == 2


async def test_records_without_a_time_are_as_old_as_the_first_look_at_them() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", retention=Duration(seconds=3600))
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await one_segment_each(agent, key, b"no time", b"nor here", at=-1)
        await one_segment_each(agent, key, b"old")
        await one_segment_each(agent, key, b"young", at=now())
        timeless = [info.uid for info in await agent.broker.led[key].segments.all() if info.max_timestamp < 0]
        assert len(timeless) == 2
        assert [await agent.upkeep.expire() for _ in range(2)] == [0, 0]
        agent.upkeep._timeless[timeless[0]] -= 3601
        assert await agent.upkeep.expire() == 1
        assert list(agent.upkeep._timeless) == timeless, "and what is gone is forgotten at the next look"
        await one_segment_each(agent, key, b"new", at=-1)
        assert await agent.upkeep.expire() == 0
        assert timeless[0] not in agent.upkeep._timeless
        agent.upkeep._timeless[timeless[1]] -= 3601
        assert await agent.upkeep.expire() == 2, "it and the old one behind it"
        assert await read_all(agent, key, 3) == [b"young", b"new"]


async def test_records_of_a_time_to_come_hold_up_nothing_behind_them_for_longer_than_that() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", retention=Duration(seconds=3600))
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await one_segment_each(agent, key, b"to come", at=now() + 100 * 86_400_000)
        await one_segment_each(agent, key, b"old")
        await one_segment_each(agent, key, b"young", at=now())
        assert await agent.upkeep.expire() == 0
        (to_come,) = [info.uid for info in await agent.broker.led[key].segments.all() if info.max_timestamp > now()]
        agent.upkeep._timeless[to_come] -= 3601
        assert await agent.upkeep.expire() == 2
        assert await read_all(agent, key, 2) == [b"young"]


async def test_a_partition_above_its_size_loses_records_without_a_time_too() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", retention=Duration(seconds=3600), retention_bytes=1000)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await one_segment_each(agent, key, *(b"%d" % number * 10 for number in range(20)), at=-1)
        assert 0 < await agent.upkeep.expire() < 20


async def test_a_partition_above_its_size_loses_its_oldest_segments_and_stays_above_it() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", retention=Duration(seconds=0), retention_bytes=1000)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await one_segment_each(agent, key, *(b"%d" % number * 10 for number in range(20)), at=now())
        sizes = [info.size for info in await agent.broker.led[key].segments.all()]
        gone = await agent.upkeep.expire()
        assert 0 < gone < 20
        left = sum(sizes[gone:])
        assert left >= 1000 and left - sizes[gone] < 1000


async def test_a_topic_without_retention_keeps_everything() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", retention=Duration(seconds=0))
        agent = cluster.agents["a"]
        await one_segment_each(agent, PartitionKey(topic.uid, 0), b"very old", at=1)
        assert await agent.upkeep.expire() == 0


@pytest.mark.parametrize("problem", ["segments not listed", "trim refused"])
async def test_a_partition_that_cannot_be_trimmed_keeps_no_other_from_it_and_is_named_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, problem: str
) -> None:
    async with log_cluster("a") as cluster:
        agent = cluster.agents["a"]
        made = [await cluster.create(name, retention=Duration(seconds=3600)) for name in ("bad", "good", "also-good")]
        keys = [PartitionKey(topic.uid, 0) for topic in made]
        for key in keys:
            await one_segment_each(agent, key, b"old")
            await one_segment_each(agent, key, b"no time", at=-1)
        assert list(agent.broker.led) == keys
        (_, timeless) = await agent.broker.led[keys[0]].segments.all()
        first_seen = agent.upkeep._timeless[timeless.uid] = time.monotonic() - 10_000

        async def refuse(*_: object) -> None:
            raise HeadgateError(OFFSET_CONFLICT, "segments are not there")

        with monkeypatch.context() as patched:
            bad = agent.broker.led[keys[0]]
            if problem == "trim refused":
                patched.setattr(bad.partition, "tell_trim", refuse)
            else:
                patched.setattr(bad, "segments", SimpleNamespace(all=refuse))
            with pytest.raises(HeadgateError, match="segments are not there"):
                await agent.upkeep.expire()
        assert [agent.broker.bounds(key).log_start for key in keys[1:]] == [1, 1]
        assert [one.partition for one in caplog.records if "upkeep" in vars(one)] == ["bad/0"]  # type: ignore[attr-defined]
        assert agent.upkeep._timeless[timeless.uid] == first_seen, "it is as old as it was"
        await agent.upkeep.expire()
        assert agent.broker.bounds(keys[0]).log_start == 2


async def test_small_segments_are_merged_and_readers_find_the_same_records() -> None:
    async with log_cluster("a", upkeep_settings=MERGING) as cluster:
        topic = await cluster.create("orders")
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        values = [b"%d" % number for number in range(10)]
        await one_segment_each(agent, key, *values)
        agent.broker.led[key].partition._tail.clear()
        assert await read_all(agent, key) == values
        assert await agent.upkeep.merge() == 10
        (merged,) = await agent.broker.led[key].segments.all()
        assert (merged.base_offset, merged.next_offset) == (0, 10)
        assert await agent.upkeep.delete_doomed() == 10
        assert list(cluster.objects.objects) == [merged.key]
        assert await read_all(agent, key) == values
        assert await read_all(agent, key, 7) == values[7:]
        await agent.crash()
        await agent.start()
        assert await produce(cluster, key, batch(b"after")) == 10
        assert await read_all(agent, key) == [*values, b"after"]


@pytest.mark.parametrize("problem", ["missing", "damaged", "refused"])
async def test_a_partition_that_cannot_be_merged_keeps_no_other_from_it_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, problem: str
) -> None:
    async with log_cluster("a", upkeep_settings=MERGING) as cluster:
        agent = cluster.agents["a"]
        keys = [PartitionKey((await cluster.create(name)).uid, 0) for name in ("bad", "good", "also-good")]
        for key in keys:
            await one_segment_each(agent, key, *(b"%d" % number for number in range(5)))
        assert list(agent.broker.led) == keys
        broken = (await agent.broker.led[keys[0]].segments.all())[2].key
        whole = cluster.objects.objects[broken]
        kind: type[Exception] = ObjectMissing
        with monkeypatch.context() as patched:
            if problem == "missing":
                del cluster.objects.objects[broken]
            elif problem == "damaged":
                cluster.objects.objects[broken], kind = bytes(len(whole)), CorruptSegment
            else:
                kind = HeadgateError
                patched.setattr(agent.broker, "ask_as_leader", refusing(agent, keys[0]))
            for merged in (10, 0):
                before = counted(agent, "segments_merged")
                with pytest.raises(kind):
                    await agent.upkeep.merge()
                assert counted(agent, "segments_merged") - before == merged
        assert [len(await agent.broker.led[key].segments.all()) for key in keys] == [5, 1, 1]
        cluster.objects.objects[broken] = whole
        assert await agent.upkeep.merge() == 5


def refusing(agent: LogAgent, key: PartitionKey) -> Callable[..., Awaitable[Any]]:
    """The catalog refuses what is asked about one partition."""
    ask = agent.broker.ask_as_leader

    async def asked(led: Led, method: str, request: Message) -> Any:
        if led.partition.key == key:
            raise HeadgateError(OFFSET_CONFLICT, "segments are not there")
        return await ask(led, method, request)

    return asked


async def test_a_reader_far_behind_goes_on_while_its_segments_are_merged() -> None:
    async with log_cluster("a", upkeep_settings=MERGING) as cluster:
        topic = await cluster.create("orders")
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await one_segment_each(agent, key, *(b"%d" % number for number in range(8)))
        agent.broker.led[key].partition._tail.clear()
        reading = asyncio.ensure_future(
            agent.broker.fetch([FetchPart(key, 0, 1 << 20)], max_wait=0, min_bytes=1, max_bytes=1 << 20)
        )
        await agent.upkeep.merge()
        (part,) = await reading
        assert part.error is None and part.batches


async def test_objects_that_the_catalog_does_not_know_are_deleted_once_they_are_old_enough() -> None:
    async with log_cluster("a", "b") as cluster:
        topic = await cluster.create("orders")
        key = PartitionKey(topic.uid, 0)
        await produce(cluster, key, batch(b"x"))
        (known,) = cluster.objects.objects
        # What a former leader has uploaded and could not commit.
        orphan = f"{topic.uid}/0/{1:016d}/{99:020d}-segment-orphan"
        await cluster.objects.create(orphan, [b"orphan"])
        patient = [agent.upkeep for agent in cluster.agents.values()]
        for upkeep in patient:
            upkeep._settings = UpkeepSettings(orphan_grace=3600.0)
        assert [await upkeep.collect_orphans() for upkeep in patient] == [0, 0]
        for upkeep in patient:
            upkeep._settings = UpkeepSettings(orphan_grace=-1.0)
        deleted = [await upkeep.collect_orphans() for upkeep in patient]
        assert sorted(deleted) == [0, 1], "one agent does it for all"
        assert [counted(agent, "objects_deleted", why="orphan") for agent in cluster.agents.values()] == deleted
        assert list(cluster.objects.objects) == [known]


def refuse_to_delete(monkeypatch: pytest.MonkeyPatch, cluster: LogCluster, *keys: str) -> None:
    """These keys cannot be deleted, others can."""
    delete = cluster.objects.delete

    async def refusing(key: str) -> None:
        if key in keys:
            raise ObjectStoreFailed(f"{key}: access denied")
        await delete(key)

    monkeypatch.setattr(cluster.objects, "delete", refusing)


async def test_an_object_that_cannot_be_deleted_blocks_none_behind_it_and_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders")
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await one_segment_each(agent, key, *(b"%d" % number for number in range(5)))
        first, *others = [info.key for info in await agent.broker.led[key].segments.all()]
        await agent.broker.delete_records(key, 5)
        with monkeypatch.context() as patched:
            refuse_to_delete(patched, cluster, first)
            with pytest.raises(ObjectStoreFailed):
                await agent.upkeep.delete_doomed()
            assert list(cluster.objects.objects) == [first], "the others are gone"
            assert counted(agent, "objects_deleted", why="retention") == 4
        assert await agent.upkeep.delete_doomed() == 1
        assert counted(agent, "objects_deleted", why="retention") == 5
        assert not cluster.objects.objects and len(others) == 4


@contextmanager
def deletes_nothing(cluster: LogCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The store refuses to delete inside the block; the keys that it was asked to delete."""
    asked: list[str] = []

    async def refusing(key: str) -> None:
        asked.append(key)
        raise ObjectStoreFailed("503")

    with monkeypatch.context() as patched:
        patched.setattr(cluster.objects, "delete", refusing)
        yield asked


async def test_a_store_that_deletes_nothing_is_asked_a_few_times_and_nothing_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with log_cluster("a") as cluster:
        upkeep = cluster.agents["a"].upkeep
        keys = [f"k{number:03}" for number in range(100)]
        upkeep._doom(keys)
        with deletes_nothing(cluster, monkeypatch) as asked:
            for turn in range(1, 4):
                with pytest.raises(ObjectStoreFailed):
                    await upkeep.delete_doomed()
                assert asked == keys[: 10 * turn], "each turn asks for others"
        assert await upkeep.delete_doomed() == 100


async def test_an_orphan_that_cannot_be_deleted_does_not_keep_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders")
        upkeep = cluster.agents["a"].upkeep
        upkeep._settings = UpkeepSettings(orphan_grace=-1.0)
        first, second = (f"{topic.uid}/0/{1:016d}/{at:020d}-segment-orphan" for at in (1, 2))
        for orphan in (first, second):
            await cluster.objects.create(orphan, [b"orphan"])
        refuse_to_delete(monkeypatch, cluster, first)
        with pytest.raises(ObjectStoreFailed):
            await upkeep.collect_orphans()
        assert list(cluster.objects.objects) == [first]
        assert list(upkeep._unknown) == [first]
        assert counted(cluster.agents["a"], "objects_deleted", why="orphan") == 1


def refuse_to_answer(
    monkeypatch: pytest.MonkeyPatch, agent: LogAgent, refused: Callable[[Message], bool], method: str
) -> None:
    """The catalog does not take these requests, others it does."""
    once = agent.broker.catalog.once

    async def refusing(asked: str, request: Message) -> Any:
        if asked == method and refused(request):
            raise HeadgateError(OFFSET_CONFLICT, "it cannot be told")
        return await once(asked, request)

    monkeypatch.setattr(agent.broker.catalog, "once", refusing)


async def test_orphans_that_the_catalog_cannot_be_asked_for_do_not_keep_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders")
        agent = cluster.agents["a"]
        agent.upkeep._settings = UpkeepSettings(orphan_grace=10.0)
        orphans = [f"{topic.uid}/0/{1:016d}/{at:020d}-segment-orphan" for at in (1, 2)]
        for orphan in orphans:
            await cluster.objects.create(orphan, [b"orphan"])
        first = orphans[0]
        agent.upkeep._unknown = dict.fromkeys(orphans, -100.0)
        monkeypatch.setattr("headgate_agent.log.upkeep._ORPHANS_AT_ONCE", 1)
        with monkeypatch.context() as patched:
            refuse_to_answer(patched, agent, lambda request: first in request.keys, "FindObjects")  # type: ignore[attr-defined]
            with pytest.raises(HeadgateError, match="it cannot be told"):
                await agent.upkeep.collect_orphans()
        assert list(cluster.objects.objects) == [first]
        assert agent.upkeep._unknown == {first: -100.0}, "it need not have its time again"
        assert await agent.upkeep.collect_orphans() == 1


async def test_a_store_that_deletes_no_orphan_is_asked_a_few_times_and_nothing_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders")
        agent = cluster.agents["a"]
        agent.upkeep._settings = UpkeepSettings(orphan_grace=-1.0, delete_failures=3)
        orphans = [f"{topic.uid}/0/{1:016d}/{at:020d}-segment-orphan" for at in range(9)]
        for orphan in orphans:
            await cluster.objects.create(orphan, [b"orphan"])
        with deletes_nothing(cluster, monkeypatch) as asked, pytest.raises(ObjectStoreFailed):
            await agent.upkeep.collect_orphans()
        assert len(asked) == 3
        assert sorted(agent.upkeep._unknown) == orphans
        assert await agent.upkeep.collect_orphans() == 9


async def test_an_upload_is_no_orphan_however_wrong_the_wall_clock_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders")
        upkeep = cluster.agents["a"].upkeep
        upkeep._settings = UpkeepSettings(orphan_grace=3600.0)
        uploaded = f"{topic.uid}/0/{1:016d}/{0:020d}-segment-under-way"
        await cluster.objects.create(uploaded, [b"its commit is on its way"])
        monkeypatch.setattr(SystemClock, "wall", lambda _: datetime.now(UTC) + timedelta(days=365))
        assert [await upkeep.collect_orphans() for _ in range(2)] == [0, 0]
        assert uploaded in cluster.objects.objects
        monkeypatch.setattr(SystemClock, "wall", lambda _: datetime.now(UTC) - timedelta(days=365))
        upkeep._unknown[uploaded] -= 3601
        assert await upkeep.collect_orphans() == 1


async def test_what_becomes_known_in_time_is_no_orphan_later() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders")
        agent = cluster.agents["a"]
        agent.upkeep._settings = UpkeepSettings(orphan_grace=3600.0)
        await produce(cluster, PartitionKey(topic.uid, 0), batch(b"x"))
        (key,) = cluster.objects.objects
        agent.upkeep._unknown = {key: SystemClock().monotonic() - 7200}
        assert await agent.upkeep.collect_orphans() == 0
        assert agent.upkeep._unknown == {}, "and if it were unknown again it would have its time again"


async def test_a_dropped_topics_objects_are_orphans() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders")
        await produce(cluster, PartitionKey(topic.uid, 0), batch(b"x"))
        await cluster.ask(api.DropTopicRequest(name="orders"))
        agent = cluster.agents["a"]
        await cluster.until(lambda: not agent.broker.led)
        agent.upkeep._settings = UpkeepSettings(orphan_grace=-1.0)
        assert await agent.upkeep.collect_orphans() == 1
        assert not cluster.objects.objects


async def test_write_ahead_files_go_when_segments_have_everything_in_them_and_not_before() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", wal=True)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        for number in range(30):
            await agent.broker.produce(key, batch(b"%d" % number * 4000))
        assert len(agent.files.files) > 1
        before = set(agent.files.files)
        await agent.upkeep.free_wal()
        assert set(agent.files.files) == before, "nothing is in segments yet"
        await agent.broker.led[key].partition.flush()
        await agent.upkeep.free_wal()
        assert len(agent.files.files) == 1
        await agent.crash()
        await agent.start()
        assert await produce(cluster, key, batch(b"after")) == 30


async def restarted(cluster: LogCluster) -> LogAgent:
    """Agent a, whose write-ahead files hold what it led in "orders" before it left."""
    topic = await cluster.create("orders", 4, wal=True)
    for index in range(4):
        await produce(cluster, PartitionKey(topic.uid, index), batch(b"x" * 1000))
    agent = cluster.agents["a"]
    await agent.stop()
    await agent.start()
    return agent


async def test_write_ahead_files_of_what_another_agent_leads_by_now_go_too() -> None:
    async with log_cluster("a", "b") as cluster:
        stopped = await restarted(cluster)
        assert stopped.broker.held, "its files still hold what it had"
        await cluster.until(lambda: len(cluster.leaders("orders")) == 4)
        await stopped.upkeep.free_wal()
        assert not stopped.broker.held
        assert len(stopped.files.files) == 1


async def test_a_partition_that_the_catalog_cannot_be_asked_for_does_not_keep_the_files_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with log_cluster("a", "b") as cluster:
        stopped = await restarted(cluster)
        await cluster.until(lambda: len(cluster.leaders("orders")) == 4)
        bad = min(stopped.broker.held, key=lambda key: key.index)
        assert len(stopped.broker.held) > 1
        with monkeypatch.context() as patched:
            refuse_to_answer(patched, stopped, lambda request: request.partition == ref(bad), "ListSegments")  # type: ignore[attr-defined]
            with pytest.raises(HeadgateError, match="it cannot be told"):
                await stopped.upkeep.free_wal()
        assert set(stopped.broker.held) == {bad}
        await stopped.upkeep.free_wal()
        assert not stopped.broker.held


def info(base: int, size: int = 10, epoch: int = 1) -> SegmentInfo:
    return SegmentInfo(f"s{base}", f"k{base}", base, base + 1, size, 0, 0, epoch)


def test_what_is_merged_is_small_adjacent_and_of_one_epoch() -> None:
    settings = UpkeepSettings(merge_least=3, merge_below=100, merge_most=1000)
    small = [info(base) for base in range(5)]
    assert small_run(small, settings) == small
    assert small_run(small[:2], settings) == ()
    large = [*small[:2], info(2, 500), *(info(base) for base in range(3, 6))]
    assert [one.base_offset for one in small_run(large, settings)] == [3, 4, 5]
    epochs = [info(0), info(1), info(2, epoch=2), info(3, epoch=2), info(4, epoch=2)]
    assert [one.base_offset for one in small_run(epochs, settings)] == [2, 3, 4]
    hole = [info(0), info(1), info(10), info(11), info(12)]
    assert [one.base_offset for one in small_run(hole, settings)] == [10, 11, 12]
    bounded = UpkeepSettings(merge_least=3, merge_below=100, merge_most=45)
    assert [one.base_offset for one in small_run([info(base) for base in range(9)], bounded)] == [0, 1, 2, 3]


EAGER = UpkeepSettings(retention_interval=0.02, orphan_interval=0.02, orphan_grace=0.0, wal_interval=0.02)
ONE, TWO = (RandomIds().uid("catalog") for _ in range(2))


async def test_an_agent_whose_store_is_given_to_another_catalog_stops_at_once_and_deletes_nothing_of_it() -> None:
    async with log_cluster("a", upkeep_settings=EAGER) as cluster:
        topic = await cluster.create("orders", wal=True, segment_age=Duration(seconds=3600))
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await claim(cluster.objects, ONE, random.Random())
        running = asyncio.ensure_future(agent.upkeep.run(ONE))
        await produce(cluster, key, batch(b"acknowledged"))
        await cluster.objects.create(f"{topic.uid}/orphan", [b"of nobody"])
        await cluster.until(lambda: f"{topic.uid}/orphan" not in cluster.objects.objects, "the orphan to go")
        await claim(cluster.objects, TWO, random.Random(), adopt=True)
        await cluster.objects.create("topic-of-two/0/segment", [b"the other catalog knows it"])
        with pytest.raises(HeadgateError) as ended:
            async with asyncio.timeout(60):
                await running
        assert ended.value.reason is CATALOG_MISMATCH
        assert TWO in ended.value.message and "--adopt-catalog" in ended.value.message
        with pytest.raises(NotLeader):
            await agent.broker.produce(key, batch(b"too late"))
        await cluster.until(lambda: key in agent.broker.held, "what only the disk has to be kept there")
        await agent.broker.leave()
        await asyncio.sleep(0.2)
        assert not agent.broker.led, "it takes no lead again"
        assert set(cluster.objects.objects) == {"headgate-catalog", "topic-of-two/0/segment"}


async def test_while_nobody_can_say_whose_a_store_is_nothing_is_collected_and_the_agent_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with log_cluster("a", upkeep_settings=EAGER) as cluster:
        topic = await cluster.create("orders")
        agent = cluster.agents["a"]
        await claim(cluster.objects, ONE, random.Random())
        read = cluster.objects.read
        failed = 0

        async def fails(key: str, start: int, length: int) -> bytes:
            nonlocal failed
            failed += 1
            raise ObjectStoreFailed("it is away")

        monkeypatch.setattr(cluster.objects, "read", fails)
        running = asyncio.ensure_future(agent.upkeep.run(ONE))
        orphan = f"{topic.uid}/orphan"
        await cluster.objects.create(orphan, [b"of nobody"])
        await cluster.until(lambda: failed > 10, "it to be looked at")
        assert orphan in cluster.objects.objects and not running.done()
        for task in ("retention", "orphans"):
            assert counted(agent, "upkeep_failures", task=task) > 0
        assert counted(agent, "upkeep_failures", task="wal") == 0
        assert counted(agent, "objects_deleted", why="orphan") == 0
        # Without its mark it is nobody else's.
        monkeypatch.setattr(cluster.objects, "read", read)
        await cluster.objects.delete("headgate-catalog")
        await cluster.until(lambda: orphan not in cluster.objects.objects, "the orphan to go")
        assert not running.done() and agent.leads() == {("orders", 0)}
        assert counted(agent, "objects_deleted", why="orphan") == 1
        running.cancel()
