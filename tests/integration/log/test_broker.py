"""Log agents among themselves, against a real coordinator: who leads, what is kept, what is read."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from headgate.log import v1 as api
from headgate_agent.log.access import FetchPart, OffsetOutOfRange, UnknownPartition
from headgate_agent.log.contract import NotLeader, PartitionKey
from headgate_agent.log.record_batch import headers
from headgate_agent.log.records import PlainRecord, pack, unpack_batches
from headgate_agent.log.store_identity import LABEL
from headgate_common.errors import HeadgateError
from tests.integration.log.kit import COORDINATOR, TTL, LogAgent, LogCluster, log_cluster

BOTH = pytest.mark.parametrize("wal", [False, True], ids=["OBJECT", "WAL"])


def batch(*values: bytes, time: int = 1000) -> bytes:
    (made,) = pack([PlainRecord(None, value, time) for value in values], 1 << 20)
    return made


async def read_all(agent: LogAgent, key: PartitionKey, offset: int = 0, max_bytes: int = 1 << 20) -> list[bytes]:
    """The values of all records, read page by page."""
    found: list[bytes] = []
    while True:
        (part,) = await agent.broker.fetch(
            [FetchPart(key, offset, max_bytes)], max_wait=0, min_bytes=1, max_bytes=max_bytes
        )
        if part.error is not None:
            raise part.error
        if not part.batches:
            return found
        for data in part.batches:
            found += [record.value or b"" for record in unpack_batches(data) if record.offset >= offset]
            offset = list(headers(data))[-1].next_offset


async def produce(cluster: LogCluster, key: PartitionKey, data: bytes, seconds: float = 60.0) -> int:
    """Produces to whoever leads, until one acknowledges."""
    async with asyncio.timeout(seconds):
        while True:
            for agent in cluster.agents.values():
                if agent.tasks and key in agent.broker.led:
                    try:
                        return (await agent.broker.produce(key, data)).base_offset
                    except NotLeader:
                        continue
            await asyncio.sleep(0.01)


async def read_from_leader(cluster: LogCluster, key: PartitionKey) -> list[bytes]:
    """Everything, read from whoever leads, though that may change meanwhile."""
    async with asyncio.timeout(60):
        while True:
            for agent in cluster.agents.values():
                if agent.tasks and key in agent.broker.led:
                    with suppress(NotLeader):
                        return await read_all(agent, key)
            await asyncio.sleep(0.01)


@BOTH
async def test_what_is_acknowledged_is_read_back_from_memory_and_from_segments(wal: bool) -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", wal=wal)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        for number in range(20):
            await agent.broker.produce(key, batch(b"%d" % number))
        expected = [b"%d" % number for number in range(20)]
        assert await read_all(agent, key) == expected
        await agent.broker.led[key].partition.flush()
        # Nothing is kept in memory: everything comes from the object store.
        agent.broker.led[key].partition._tail.clear()
        assert await read_all(agent, key) == expected
        assert await read_all(agent, key, 7, max_bytes=1) == expected[7:]


async def test_partitions_are_spread_as_the_ring_says_and_follow_it_when_an_agent_joins() -> None:
    async with log_cluster("a", "b") as cluster:
        await cluster.create("orders", 24)
        before = cluster.leaders("orders")
        assert set(before.values()) == {"a", "b"}
        await cluster.add("c")
        await cluster.until(lambda: set(cluster.leaders("orders").values()) == {"a", "b", "c"}, "c to lead something")

        def settled() -> bool:
            agent = cluster.agents["a"]
            topics = [topic for topic in agent.view.topics() if topic.name == "orders"]
            wanted = agent.broker.assignment.leaders(agent.view.peers(), topics)
            return cluster.leaders("orders") == {key.index: name for key, name in wanted.items()}

        await cluster.until(settled, "everyone to lead what the ring gives")
        after = cluster.leaders("orders")
        assert all(after[index] in (before[index], "c") for index in after), "only the new agent gains"


@BOTH
async def test_a_graceful_stop_hands_everything_over_with_its_records(wal: bool) -> None:
    async with log_cluster("a", "b") as cluster:
        topic = await cluster.create("orders", 6, wal=wal)
        keys = [PartitionKey(topic.uid, index) for index in range(6)]
        for key in keys:
            await produce(cluster, key, batch(b"before"))
        await cluster.agents["a"].stop()
        await cluster.until(lambda: len(cluster.leaders("orders")) == 6, "b to lead everything")
        for key in keys:
            assert await produce(cluster, key, batch(b"after")) == 1
            assert await read_all(cluster.agents["b"], key) == [b"before", b"after"]


async def test_an_object_partition_of_a_crashed_agent_is_led_by_another_with_nothing_lost() -> None:
    async with log_cluster("a", "b") as cluster:
        topic = await cluster.create("orders", 6)
        keys = [PartitionKey(topic.uid, index) for index in range(6)]
        for key in keys:
            await produce(cluster, key, batch(b"before"))
        await cluster.agents["a"].crash()
        for key in keys:
            await produce(cluster, key, batch(b"after"))
            assert await read_all(cluster.agents["b"], key) == [b"before", b"after"]


async def test_a_wal_partition_waits_for_its_volume_and_goes_on_where_it_was() -> None:
    async with log_cluster("a", "b", limits=_slow_segments()) as cluster:
        topic = await cluster.create("orders", 6, wal=True)
        keys = [PartitionKey(topic.uid, index) for index in range(6)]
        for key in keys:
            await produce(cluster, key, batch(b"before"))
        mine = [PartitionKey(topic.uid, index) for index, name in cluster.leaders("orders").items() if name == "a"]
        assert mine
        crashed = cluster.agents["a"]
        await crashed.crash()
        await cluster.until(
            lambda: all("volume-a" in cluster.agents["b"].view.leadership(key).waiting for key in mine),
            "a's partitions to wait",
        )
        assert not any(key in cluster.agents["b"].broker.led for key in mine)
        await crashed.start()
        for key in mine:
            assert await produce(cluster, key, batch(b"after")) == 1
            assert await read_from_leader(cluster, key) == [b"before", b"after"]


async def test_a_leader_cut_off_from_the_coordinator_acknowledges_nothing_after_its_time() -> None:
    async with log_cluster("a", "b") as cluster:
        topic = await cluster.create("orders", 1, wal=True)
        key = PartitionKey(topic.uid, 0)
        await produce(cluster, key, batch(b"before"))
        old = cluster.leader(key)
        await old.broker.led[key].partition.flush()
        led = old.broker.led[key]
        old.line.cut.add(COORDINATOR)
        await cluster.until(lambda: key not in old.broker.led, "the leader to give up by its own clock")
        with pytest.raises(NotLeader):
            await led.partition.produce(batch(b"too late"))
        with pytest.raises(NotLeader):
            await old.broker.produce(key, batch(b"too late"))


async def test_a_leader_that_wakes_up_too_late_answers_no_reader_either() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", 1, wal=True)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await produce(cluster, key, batch(b"x"))
        # As after a long pause: nothing of this process has run yet to notice it.
        agent.member._valid_until = 0.0
        (part,) = await agent.broker.fetch([FetchPart(key, 0, 100)], max_wait=0, min_bytes=1, max_bytes=100)
        assert isinstance(part.error, NotLeader)
        for ask in (agent.broker.bounds, lambda key: agent.broker.epoch_end(key, 1)):
            agent.member._valid_until = 0.0
            with pytest.raises(NotLeader):
                ask(key)


async def test_a_leader_that_stops_by_its_own_clock_and_leads_again_does_so_in_a_new_epoch() -> None:
    """Its session has lived on, and so would what it sent before, such as a merge that comes late."""
    async with log_cluster("a", limits=_slow_segments()) as cluster:
        topic = await cluster.create("orders", 1, wal=True)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await produce(cluster, key, batch(b"one"))
        session, before = agent.broker.session, agent.broker.led[key]
        agent.member._valid_until = 0.0
        await cluster.until(lambda: agent.broker.led.get(key) not in (None, before), "it to lead again")
        assert agent.broker.session == session
        assert agent.broker.led[key].partition.epoch == before.partition.epoch + 1
        assert await produce(cluster, key, batch(b"two")) == 1
        assert await read_all(agent, key) == [b"one", b"two"]


async def test_a_session_that_ended_and_came_back_keeps_what_only_the_write_ahead_log_has() -> None:
    async with log_cluster("a", limits=_slow_segments()) as cluster:
        topic = await cluster.create("orders", 1, wal=True)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await produce(cluster, key, batch(b"one", b"two"))
        agent.line.cut.add(COORDINATOR)
        await cluster.until(lambda: key not in agent.broker.led, "it to give up")
        await asyncio.sleep(TTL * 1.5)
        agent.line.cut.clear()
        assert await produce(cluster, key, batch(b"three")) == 2
        assert await read_all(agent, key) == [b"one", b"two", b"three"]
        # And the same again from the disk.
        await agent.crash()
        await agent.start()
        assert await produce(cluster, key, batch(b"four")) == 3
        assert await read_all(agent, key) == [b"one", b"two", b"three", b"four"]


@BOTH
async def test_a_coordinator_that_restarts_within_the_sessions_time_fails_no_produce(wal: bool) -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", 1, wal=wal)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await agent.broker.produce(key, batch(b"before"))
        epoch = agent.broker.bounds(key).epoch
        # Wait for a fresh renewal, so that the whole time is left.
        until = agent.member.valid_until
        await cluster.until(lambda: agent.member.valid_until > until)
        await cluster.stop_coordinator()
        producing = asyncio.ensure_future(agent.broker.produce(key, batch(b"during")))
        await cluster.start_coordinator()
        await producing
        await agent.broker.produce(key, batch(b"after"))
        assert agent.broker.bounds(key).epoch == epoch
        assert await read_all(agent, key) == [b"before", b"during", b"after"]


async def test_reading_what_is_not_listed_while_the_coordinator_is_away_is_told_in_time_and_works_again_later() -> None:
    async with log_cluster("a", read_timeout=0.1) as cluster:
        topic = await cluster.create("orders", 1)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await produce(cluster, key, batch(b"x", b"y"))
        # As after a restart: it leads, and has not asked for the segments yet.
        await agent.crash()
        await agent.start()
        await cluster.until(lambda: key in agent.broker.led)
        broker = agent.broker
        cluster.wires.cut.add(COORDINATOR)
        async with asyncio.timeout(TTL):
            (part,) = await broker.fetch([FetchPart(key, 0, 100)], max_wait=0.05, min_bytes=1, max_bytes=100)
            assert isinstance(part.error, HeadgateError) and part.error.reason.name == "DEADLINE_EXCEEDED"
            with pytest.raises(HeadgateError, match="ask again"):
                await broker.offset_at(key, 1000)
        loading = broker.led[key].segments._loading
        assert len(loading.running()) == 1, "all who want the list wait for one call"
        await cluster.until(lambda: key not in broker.led, "leadership to end")
        (part,) = await broker.fetch([FetchPart(key, 0, 100)], max_wait=0.05, min_bytes=1, max_bytes=100)
        assert isinstance(part.error, NotLeader)
        await cluster.until(lambda: not loading.running(), "the call to be given up")
        cluster.wires.cut.clear()
        await cluster.until(lambda: key in broker.led)
        assert await read_all(agent, key) == [b"x", b"y"]


async def test_a_fetch_waits_for_records_and_reads_several_partitions() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", 3)
        keys = [PartitionKey(topic.uid, index) for index in range(3)]
        broker = cluster.agents["a"].broker
        parts = [FetchPart(key, 0, 1 << 20) for key in keys]
        waiting = asyncio.ensure_future(broker.fetch(parts, max_wait=10, min_bytes=1, max_bytes=1 << 20))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await broker.produce(keys[1], batch(b"x"))
        found = await asyncio.wait_for(waiting, 60)
        assert [len(part.batches) for part in found] == [0, 1, 0]
        nothing = await broker.fetch([FetchPart(keys[0], 0, 100)], max_wait=0.05, min_bytes=1, max_bytes=100)
        assert not nothing[0].batches and nothing[0].error is None


async def test_a_reader_far_behind_evicts_nobodys_tail() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", 2)
        history, recent = (PartitionKey(topic.uid, index) for index in range(2))
        agent = cluster.agents["a"]
        await agent.broker.produce(recent, batch(b"recent"))
        for number in range(10):
            await agent.broker.produce(history, batch(b"%d" % number * 1000))
        agent.broker.led[history].partition._tail.clear()
        kept = agent.broker.world.memory.kept
        assert len(await read_all(agent, history)) == 10
        assert agent.broker.world.memory.kept == kept
        assert agent.broker.led[recent].partition.read(0, 100) is not None, "still served from memory"


async def test_a_part_that_fails_does_not_fail_the_others() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", 1)
        key = PartitionKey(topic.uid, 0)
        broker = cluster.agents["a"].broker
        await broker.produce(key, batch(b"x"))
        unknown = PartitionKey("topic-nowhere", 0)
        good, beyond, missing = await broker.fetch(
            [FetchPart(key, 0, 100), FetchPart(key, 9, 100), FetchPart(unknown, 0, 100)],
            max_wait=1,
            min_bytes=1,
            max_bytes=1000,
        )
        assert len(good.batches) == 1
        assert isinstance(beyond.error, OffsetOutOfRange)
        assert beyond.bounds is not None and beyond.bounds.high_watermark == 1
        assert isinstance(missing.error, UnknownPartition)


@BOTH
async def test_offsets_are_found_by_time_in_segments_and_in_the_tail(wal: bool) -> None:
    async with log_cluster("a", limits=_slow_segments()) as cluster:
        topic = await cluster.create("orders", 1, wal=wal)
        key = PartitionKey(topic.uid, 0)
        broker = cluster.agents["a"].broker

        async def look(time: int) -> int | None:
            found = await broker.offset_at(key, time)
            return None if found is None else found.offset

        await broker.produce(key, batch(b"a", b"b", time=1000))
        await broker.led[key].partition.flush()
        await broker.produce(key, batch(b"c", time=2000))
        assert [await look(time) for time in (0, 1000, 1001, 2000, 2001)] == [0, 0, 2, 2, None]


@BOTH
async def test_the_first_record_with_the_largest_timestamp_is_found_wherever_it_is(wal: bool) -> None:
    async with log_cluster("a", limits=_slow_segments()) as cluster:
        topic = await cluster.create("orders", 1, wal=wal)
        key = PartitionKey(topic.uid, 0)
        broker = cluster.agents["a"].broker
        partition = broker.led[key].partition

        async def look() -> tuple[int, int] | None:
            found = await broker.largest_timestamp(key)
            return None if found is None else (found.offset, found.timestamp)

        assert await look() is None
        await broker.produce(key, batch(b"a", b"b", time=2000))
        assert await look() == (0, 2000)
        await partition.flush()
        assert await look() == (0, 2000)
        await broker.produce(key, batch(b"c", b"d", time=3000))
        await partition.flush()
        await broker.produce(key, batch(b"e", time=1000))
        await partition.flush()
        assert await look() == (2, 3000), "in a segment that is not the last"
        await broker.produce(key, batch(b"f", time=3000))
        assert await look() == (2, 3000), "the first of two"
        await broker.produce(key, batch(b"g", time=4000))
        assert await look() == (6, 4000), "in the tail"
        await broker.delete_records(key, 3)
        await partition.flush()
        assert await look() == (6, 4000)


async def test_a_record_before_the_start_has_not_the_largest_timestamp() -> None:
    async with log_cluster("a", limits=_slow_segments()) as cluster:
        topic = await cluster.create("orders", 1)
        key = PartitionKey(topic.uid, 0)
        broker = cluster.agents["a"].broker
        times = (9000, 5000, 7000, 7000)
        records = [PlainRecord(None, b"x", time, ()) for time in times]
        await broker.produce(key, b"".join(pack(records, 1 << 20)))
        await broker.led[key].partition.flush()
        found = await broker.largest_timestamp(key)
        assert found is not None and (found.offset, found.timestamp) == (0, 9000)
        await broker.delete_records(key, 1)
        found = await broker.largest_timestamp(key)
        assert found is not None and (found.offset, found.timestamp) == (2, 7000), "the segment still begins at 0"
        await broker.delete_records(key, 4)
        assert await broker.largest_timestamp(key) is None


async def test_epochs_end_where_the_next_one_began() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", 1)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        await produce(cluster, key, batch(b"a", b"b"))
        first = agent.broker.bounds(key).epoch
        await agent.crash()
        await agent.start()
        await produce(cluster, key, batch(b"c"))
        second = agent.broker.bounds(key).epoch
        assert second > first
        assert agent.broker.epoch_end(key, first) == (first, 2)
        assert agent.broker.epoch_end(key, second) == (second, 3)
        assert agent.broker.epoch_end(key, 0) == (0, 0)
        assert agent.broker.epoch_end(key, -1) == (-1, -1), "no epoch was named"
        assert agent.broker.epoch_end(key, second + 1) == (-1, -1), "that epoch is still to come"
        await agent.broker.delete_records(key, 2)
        assert agent.broker.epoch_end(key, first) == (first, 2)


async def test_what_a_former_epoch_wrote_ahead_stays_that_epochs_when_a_later_one_uploads_it() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", 1, wal=True)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        epochs: list[int] = []
        for values in ((b"a", b"b"), (b"c",), ()):
            await cluster.until(lambda: key in agent.broker.led, "it to be led")
            epochs.append(agent.broker.bounds(key).epoch)
            if values:
                await produce(cluster, key, batch(*values))
            if len(epochs) == 2:
                assert agent.broker.epoch_end(key, epochs[0]) == (epochs[0], 2)
                await agent.broker.led[key].partition.flush()
            if len(epochs) < 3:
                await agent.crash()
                await agent.start()
        assert agent.broker.epoch_end(key, epochs[0]) == (epochs[0], 2)
        assert agent.broker.epoch_end(key, epochs[1]) == (epochs[1], 3)
        assert await read_all(agent, key) == [b"a", b"b", b"c"]


@BOTH
async def test_deleted_records_are_gone_for_good(wal: bool) -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", 1, wal=wal)
        key = PartitionKey(topic.uid, 0)
        agent = cluster.agents["a"]
        for number in range(4):
            await agent.broker.produce(key, batch(b"%d" % number))
        with pytest.raises(OffsetOutOfRange):
            await agent.broker.delete_records(key, 5)
        assert await agent.broker.delete_records(key, 3) == 3
        assert await agent.broker.delete_records(key, 1) == 3
        with pytest.raises(OffsetOutOfRange):
            await read_all(agent, key, 2)
        assert await read_all(agent, key, 3) == [b"3"]
        await agent.crash()
        await agent.start()
        await cluster.until(lambda: key in agent.broker.led)
        assert agent.broker.bounds(key).log_start == 3


async def test_a_dropped_topic_is_let_go_and_its_namesake_is_another() -> None:
    async with log_cluster("a") as cluster:
        old = await cluster.create("orders", 1)
        agent = cluster.agents["a"]
        await agent.broker.produce(PartitionKey(old.uid, 0), batch(b"old"))
        await cluster.ask(api.DropTopicRequest(name="orders"))
        await cluster.until(lambda: not agent.broker.led, "it to be let go")
        new = await cluster.create("orders", 1)
        key = PartitionKey(new.uid, 0)
        assert await produce(cluster, key, batch(b"new")) == 0
        assert await read_all(agent, key) == [b"new"]
        with pytest.raises(UnknownPartition):
            await agent.broker.produce(PartitionKey(old.uid, 0), batch(b"x"))


async def test_an_offer_that_nobody_answers_is_given_up_and_the_leader_goes_on() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", 12)
        keys = [PartitionKey(topic.uid, index) for index in range(12)]
        deaf = LogAgent("b", cluster.wires, cluster.objects)
        cluster.agents["b"] = deaf
        await deaf.start()
        answer = deaf.broker._transfers._answer_offers
        deaf.broker._transfers._answer_offers = lambda: None  # type: ignore[method-assign]
        await cluster.until(lambda: list(cluster.agents["a"].view.transfers()), "a to offer something")
        for key in keys:
            await produce(cluster, key, batch(b"still here"))
        assert set(cluster.leaders("orders").values()) == {"a"}
        await cluster.until(lambda: not list(cluster.agents["a"].view.transfers()), "the offers to be given up")
        deaf.broker._transfers._answer_offers = answer  # type: ignore[method-assign]
        await cluster.until(
            lambda: set(cluster.leaders("orders").values()) == {"a", "b"}, "the next offers to be taken"
        )
        for key in keys:
            await produce(cluster, key, batch(b"after"))
            assert await read_from_leader(cluster, key) == [b"still here", b"after"]


@BOTH
async def test_answers_that_are_lost_change_nothing(wal: bool) -> None:
    async with log_cluster("a") as cluster:
        cluster.wires.lose_answers = {"AcquirePartitions": 2, "CommitSegments": 3, "ReserveOffsets": 2}
        topic = await cluster.create("orders", 3, wal=wal)
        keys = [PartitionKey(topic.uid, index) for index in range(3)]
        for number in range(5):
            await asyncio.gather(*(produce(cluster, key, batch(b"%d" % number)) for key in keys))
        await cluster.add("b")
        cluster.wires.lose_answers = {"StartTransfers": 1, "AnswerTransfers": 1, "CompleteTransfers": 1}
        await cluster.agents["a"].stop()
        await cluster.until(
            lambda: set(cluster.leaders("orders").values()) == {"b"} and len(cluster.leaders("orders")) == 3
        )
        for key in keys:
            assert await read_all(cluster.agents["b"], key) == [b"%d" % number for number in range(5)]


async def test_a_loss_that_an_operator_accepts_is_a_hole_which_readers_cross() -> None:
    async with log_cluster("a", "b", limits=_slow_segments()) as cluster:
        topic = await cluster.create("orders", 6, wal=True)
        keys = [PartitionKey(topic.uid, index) for index in range(6)]
        for key in keys:
            await produce(cluster, key, batch(b"kept"))
            await cluster.leader(key).broker.led[key].partition.flush()
            await produce(cluster, key, batch(b"lost"))
        mine = [key for key in keys if cluster.leader(key).name == "a"]
        crashed = cluster.agents["a"]
        await crashed.crash()
        other = cluster.agents["b"]
        await cluster.until(lambda: all(other.view.leadership(key).waiting for key in mine), "them to wait")
        await cluster.ask(api.RecoverPartitionsRequest(topic="orders", accept_loss=True))
        for key in mine:
            offset = await produce(cluster, key, batch(b"after"))
            assert offset > 2, "nothing that may have been acknowledged is used again"
            assert await read_all(other, key) == [b"kept", b"after"]
        # The volume comes back: what it has is not taken for the log any more.
        await crashed.start()
        await cluster.until(crashed.leads, "it to lead again")
        for key in mine:
            await produce(cluster, key, batch(b"last"))
            assert await read_from_leader(cluster, key) == [b"kept", b"after", b"last"]


async def test_a_reader_of_what_was_lost_is_told_that_its_epoch_ended_behind_the_hole() -> None:
    async with log_cluster("a", limits=_slow_segments()) as cluster:
        topic = await cluster.create("orders", wal=True)
        key = PartitionKey(topic.uid, 0)
        await produce(cluster, key, batch(b"lost"))
        lost = cluster.agents["a"]
        epoch = lost.broker.bounds(key).epoch
        await lost.crash()
        other = await cluster.add("b")
        await cluster.until(lambda: other.view.leadership(key).waiting, "it to wait")
        answer = await cluster.ask(api.RecoverPartitionsRequest(topic="orders", accept_loss=True))
        (hole,) = answer.partitions[0].offsets.holes
        assert hole.from_offset == 0, "nothing of its epoch is left"
        after = await produce(cluster, key, batch(b"after"))
        assert other.broker.epoch_end(key, epoch) == (epoch, hole.to_offset) == (epoch, after)


async def test_agents_with_different_object_stores_lead_nothing_and_say_why() -> None:
    async with log_cluster() as cluster:
        one = await cluster.add("a", labels={LABEL: "store-1"})
        two = await cluster.add("b", labels={LABEL: "store-2"})
        await cluster.until(lambda: one.broker.trouble and two.broker.trouble, "both to notice")
        assert "agent b" in one.broker.trouble and "log.object_store" in one.broker.trouble
        await cluster.ask(api.CreateTopicRequest(name="orders", partitions=4))
        await asyncio.sleep(0.3)
        assert cluster.leaders("orders") == {}
        await two.crash()
        two.labels = {LABEL: "store-1"}
        await two.start()
        await cluster.until(lambda: len(cluster.leaders("orders")) == 4, "both to lead")


def _slow_segments() -> object:
    from headgate_agent.log.contract import PartitionSettings

    return PartitionSettings(linger=0.002, segment_age=3600.0)
