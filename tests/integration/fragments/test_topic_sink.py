"""The TOPIC sink against real agents and a real coordinator: each row once, whoever is killed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.catalog import v1 as catalog
from headgate.log import v1 as api
from headgate_agent.errors import RECORD_TOO_LARGE, SINK_CHANGED, SINK_MISSING, SINK_UNAVAILABLE
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.sinks.build import Reach, build_sink, discard_sink
from headgate_agent.fragments.sinks.sink import run_sink
from headgate_agent.fragments.sinks.topic import TopicSink, TopicTimings, group_of
from headgate_agent.fragments.sinks.topic_log import ClusterTopics, with_log
from headgate_agent.fragments.sinks.topic_places import Known, producer_id
from headgate_agent.groups.asking import Asking
from headgate_agent.groups.groups import Groups
from headgate_agent.kafka.config import KafkaConfig
from headgate_agent.kafka.port import make_groups, make_offsets
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.records import PlainRecord, pack, partition_of_key, unpack_batches
from headgate_agent.log.service import LogService
from headgate_agent.work import Inline
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Dispatcher
from headgate_common.errors import HeadgateError
from tests.integration.fragments.delivering import COLUMNS, SETTINGS, ComputedEdge, batch_at, numbers, rows_of
from tests.integration.fragments.remote_topics import without_log
from tests.integration.log.kit import Line, LogAgent, LogCluster, log_cluster
from tests.unit.fragments.kit import sink_fragment

pytestmark = pytest.mark.timeout(120)

CLOCK = SystemClock()
BRISK = TopicTimings(patience=20.0, appears=0.3, note=0.05, refresh=0.5)


@dataclass
class Cluster:
    """Log agents that look after consumer groups too, and the way of a sink to them."""

    log: LogCluster
    groups: dict[str, Groups] = field(default_factory=dict)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def serve(self, agent: LogAgent) -> None:
        """After each start of an agent."""
        source = random.Random(agent.seed)
        groups = make_groups(
            agent.name,
            agent.view,
            agent.member.coordinators,
            agent.broker.certainty,
            KafkaConfig(),
            clock=CLOCK,
            source=source,
        )
        self.groups[agent.name] = groups
        self.tasks.append(asyncio.create_task(groups.run()))
        offsets = make_offsets(agent.name, groups, agent.line, KafkaConfig())
        service = LogService(agent.broker, transport=agent.line, clock=CLOCK, source=source, groups=offsets)
        self.log.wires.servers[agent.address] = Dispatcher([service])

    def topics(self, agent: LogAgent, line: Line | None = None) -> ClusterTopics:
        """As a process on the node of an agent, with a line of its own that can be cut."""
        line = line or agent.line
        source = random.Random(5)
        asking = Asking(agent.member.coordinators, CLOCK, source)
        if line is agent.line:
            offsets = make_offsets(agent.name, self.groups[agent.name], line, KafkaConfig())
            return with_log(
                agent.broker,
                offsets,
                agent.name,
                asking,
                transport=line,
                clock=CLOCK,
                source=source,
                config=FragmentConfig(),
            )
        return without_log(agent.view, "", asking, transport=line, clock=CLOCK, source=source)

    async def create(self, name: str, partitions: int, **settings: Any) -> api.Topic:
        while True:
            try:
                return await self.log.create(name, partitions, **settings)
            except HeadgateError as error:
                # A coordinator that was kept from renewing on a busy machine leads again in a moment.
                assert error.reason.name == "NOT_LEADER", error
                await asyncio.sleep(0.1)

    async def read(self, topic: api.Topic) -> list[list[PlainRecord]]:
        views = [agent.view for agent in self.log.agents.values()]
        await self.log.until(lambda: all(view.topic(topic.name) is not None for view in views), "all to know the topic")
        topics = self.topics(self.log.agents["a"])
        found: list[list[PlainRecord]] = []
        for index in range(topic.partitions):
            at, end = await topics.bounds(topic, index)
            records: list[PlainRecord] = []
            while at < end:
                records += [one for one in unpack_batches(await topics.read(topic, index, at)) if one.offset >= at]
                at = records[-1].offset + 1
            found.append(records)
        return found


def _reached(run: asyncio.Task[None], edge: ComputedEdge, reads: int) -> bool:
    return run.done() or edge.reads >= reads


@asynccontextmanager
async def cluster(*names: str, **options: Any) -> AsyncIterator[Cluster]:
    async with log_cluster(*names, **options) as made:
        found = Cluster(made)
        for agent in made.agents.values():
            found.serve(agent)
        try:
            yield found
        finally:
            for task in found.tasks:
                task.cancel()
            await asyncio.gather(*found.tasks, return_exceptions=True)


def sink_to(
    topics: Any,
    topic: str,
    columns: str = COLUMNS,
    timings: TopicTimings = BRISK,
    **more: str,
) -> TopicSink:
    fragment = sink_fragment(catalog.SINK_TYPE_TOPIC, {"topic": topic, **more}, columns)
    return TopicSink(
        "fragment",
        fragment.options,
        fragment.update_keys,
        topics=topics,
        clock=CLOCK,
        source=random.Random(3),
        blocking=Inline(),
        timings=timings,
    )


def all_rows(count: int) -> list[int]:
    return [n for batch in range(count) for n in rows_of(batch)]


def values(records: Sequence[PlainRecord]) -> list[int]:
    return numbers([record.value or b"" for record in records])


def check(found: Sequence[Sequence[PlainRecord]], count: int) -> None:
    for part in found:
        assert values(part) == sorted(values(part))
    assert sorted(n for part in found for n in values(part)) == all_rows(count)


async def test_rows_go_where_the_java_client_would_put_their_key() -> None:
    async with cluster("a", "b") as made:
        topic = await made.create("t", 3)
        fragment = sink_fragment(catalog.SINK_TYPE_TOPIC, {"topic": "t", "key_column": "K"}, COLUMNS)
        reach = Reach(CLOCK, random.Random(1), made.topics(made.log.agents["a"]))
        sink = build_sink("f", fragment, state=Path("unused"), config=SETTINGS, blocking=Inline(), reach=reach)
        edge = ComputedEdge(60)
        await run_sink(sink, edge, SETTINGS, CLOCK)
        assert edge.trimmed == 60
        found = await made.read(topic)
        check(found, 60)
        for index, part in enumerate(found):
            assert all(record.key == f"k{n % 7}".encode() for record, n in zip(part, values(part), strict=True))
            assert all(partition_of_key(record.key or b"", 3) == index for record in part)


async def test_rows_without_a_key_use_every_partition() -> None:
    async with cluster("a") as made:
        topic = await made.create("t", 4)
        sink = sink_to(made.topics(made.log.agents["a"]), "t")
        await run_sink(sink, ComputedEdge(80), SETTINGS, CLOCK)
        found = await made.read(topic)
        check(found, 80)
        assert all(found)


async def test_arrow_records_hold_whole_batches_and_large_ones_are_cut() -> None:
    async with cluster("a") as made:
        topic = await made.create("t", 1, max_message_bytes=50_000)
        sink = sink_to(made.topics(made.log.agents["a"]), "t", columns="n INT64, t VARCHAR", format="ARROW")
        small = pa.RecordBatch.from_pydict({"n": [1, 2], "t": ["a", "b"]})
        large = pa.RecordBatch.from_pydict({"n": list(range(100)), "t": ["x" * 2_000] * 100})
        await sink.open(0)
        await sink.deliver([small, large], 2)
        assert await sink.flush() == 2
        await sink.close()
        ((first, *rest),) = await made.read(topic)
        assert pa.ipc.open_stream(first.value).read_all().to_pylist() == small.to_pylist()
        read = [pa.ipc.open_stream(one.value).read_all() for one in rest]
        assert [n for table in read for n in table["n"].to_pylist()] == list(range(100))


async def test_a_new_query_begins_after_what_others_wrote_and_among_what_they_write() -> None:
    async with cluster("a") as made:
        topic = await made.create("t", 2)
        agent = made.log.agents["a"]

        async def others() -> None:
            (batch,) = pack([PlainRecord(None, b'{"n":-1}', 0)], 1000)
            for index in range(2):
                await agent.broker.produce(PartitionKey(topic.uid, index), batch)

        await others()
        for step in range(1, 5):
            sink = sink_to(made.topics(agent), "t")
            await run_sink(sink, ComputedEdge(step * 10), SETTINGS, CLOCK)
            await others()
        found = [[one for one in part if one.value != b'{"n":-1}'] for part in await made.read(topic)]
        check(found, 40)


async def test_two_runs_at_the_same_time_store_each_row_once() -> None:
    async with cluster("a", "b") as made:
        topic = await made.create("t", 3)
        runs = [
            run_sink(
                sink_to(made.topics(agent), "t", key_column="k"),
                ComputedEdge(200, pace=pace),
                SETTINGS,
                CLOCK,
            )
            for agent, pace in zip(made.log.agents.values(), (0.002, 0.003), strict=True)
        ]
        await asyncio.gather(*runs)
        check(await made.read(topic), 200)


async def test_a_run_that_had_nothing_to_send_finds_what_another_wrote_meanwhile() -> None:
    async with cluster("a") as made:
        topic = await made.create("t", 2)
        topics = made.topics(made.log.agents["a"])
        idle = sink_to(topics, "t", timings=TopicTimings(patience=2.0))
        await idle.open(0)
        other = sink_to(topics, "t")
        await other.open(0)
        await other.deliver([batch_at(number) for number in range(20)], 20)
        assert await other.flush() == 20
        await idle._move_on(topic)
        await idle.deliver([batch_at(number) for number in range(30)], 30)
        assert await idle.flush() == 30
        for sink in (idle, other):
            await sink.close()
        check(await made.read(topic), 30)


@pytest.mark.parametrize("wal", [False, True])
@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_killed_at_random_moments_while_leaders_come_and_go_it_delivers_every_row_once(
    seed: int, wal: bool
) -> None:
    """A run that is killed sends nothing more, and what it had sent may still arrive. Notes are lost with it."""
    moments = random.Random(seed)
    async with cluster("a", "b", "c") as made:
        topic = await made.create("t", 3, wal=wal)
        agents = made.log.agents
        count, kills, edge = 600, 0, ComputedEdge(600, trim_every=70)
        done = False
        while not done:
            # The sink's own node is not killed, only the sink on it; leaders are, every second time.
            line = Line(made.log.wires)
            topics = made.topics(agents["a"], line if moments.random() < 0.7 else None)
            sink = sink_to(topics, "t", key_column="k" if seed != 2 else "n")
            run = asyncio.create_task(run_sink(sink, edge, SETTINGS, CLOCK))
            edge.shown = min(count, 60 * (kills + 1))
            until = edge.reads + (moments.randint(2, 12) if edge.shown < count else 10_000)
            await made.log.until(partial(_reached, run, edge, until), seconds=60)
            await asyncio.wait((run,), timeout=moments.uniform(0.0, 0.02))
            if kills % 2 == 1:
                victim = agents[moments.choice("bc")]
                await victim.crash()
                await asyncio.wait((run,), timeout=moments.uniform(0.0, 0.3))
                await victim.start()
                made.serve(victim)
            if run.done():
                await run
                done = True
            else:
                kills += 1
                # Nothing of it gets through any more; what is with a leader stays there.
                line.broken = True
                sink._topic = None
                run.cancel()
                await asyncio.gather(run, return_exceptions=True)
        assert kills >= 9
        check(await made.read(topic), count)


async def test_an_answer_that_was_lost_is_no_second_copy() -> None:
    async with cluster("a", "b") as made:
        topic = await made.create("t", 4)
        line = Line(made.log.wires)
        sink = sink_to(made.topics(made.log.agents["a"], line), "t")
        await sink.open(0)
        for step in range(20):
            made.log.wires.lose_answers["Produce"] = 3
            await sink.deliver([batch_at(step * 2), batch_at(step * 2 + 1)], step * 2 + 2)
            assert await sink.flush() == step * 2 + 2
        await sink.close()
        check(await made.read(topic), 40)


async def test_what_a_killed_run_has_on_its_way_is_not_stored_again() -> None:
    """The next run makes other batches of the same rows, while those of the run before are not visible yet."""
    async with cluster("a") as made:
        topic = await made.create("t", 1)
        agent = made.log.agents["a"]
        topics = made.topics(agent)
        first = sink_to(topics, "t")
        await first.open(0)
        await first.deliver([batch_at(number) for number in range(20)], 20)
        partition = agent.broker.led[PartitionKey(topic.uid, 0)].partition
        # An append waits for company now.
        partition.settings = replace(partition.settings, linger=0.6)
        sending = asyncio.create_task(first.flush())
        await asyncio.sleep(0.05)
        second = sink_to(topics, "t")
        assert await second.open(0) == 0
        await second.deliver([batch_at(number) for number in range(3)], 3)
        assert await second.flush() == 3
        await second.deliver([batch_at(number) for number in range(3, 30)], 30)
        assert await second.flush() == 30
        assert await sending == 20
        for sink in (first, second):
            await sink.close()
        check(await made.read(topic), 30)


async def test_what_a_killed_run_has_on_its_way_for_long_is_waited_for() -> None:
    """As while the object store is away: it is not lost, and the query must not end by it."""
    async with cluster("a") as made:
        topic = await made.create("t", 1)
        agent = made.log.agents["a"]
        topics = made.topics(agent)
        first = sink_to(topics, "t")
        await first.open(0)
        await first.deliver([batch_at(number) for number in range(20)], 20)
        partition = agent.broker.led[PartitionKey(topic.uid, 0)].partition
        partition.settings = replace(partition.settings, linger=3.0)
        sending = asyncio.create_task(first.flush())
        await asyncio.sleep(0.05)
        second = sink_to(topics, "t", timings=TopicTimings(patience=0.5))
        await second.open(0)
        await second.deliver([batch_at(number) for number in range(3)], 3)
        with pytest.raises(HeadgateError) as raised:
            await second.flush()
        assert raised.value.reason is SINK_UNAVAILABLE
        assert "earlier run" in raised.value.message
        await second.close()
        assert await sending == 20
        await first.close()
        edge = ComputedEdge(30)
        await run_sink(sink_to(topics, "t"), edge, SETTINGS, CLOCK)
        check(await made.read(topic), 30)


async def test_a_position_is_found_without_notes_when_the_edge_was_trimmed() -> None:
    async with cluster("a") as made:
        topic = await made.create("t", 2)
        agent = made.log.agents["a"]
        topics = made.topics(agent)
        edge = ComputedEdge(20, trim_every=1)
        await run_sink(sink_to(topics, "t"), edge, SETTINGS, CLOCK)
        sink = sink_to(topics, "t")
        await sink.open(20)
        await sink.deliver([batch_at(20), batch_at(21)], 22)
        await sink.flush()
        sink._topic = None
        await sink.close()
        await made.groups["a"].delete(group_of("fragment"))
        assert not await topics.load(group_of("fragment"))
        edge.count = 30
        await run_sink(sink_to(topics, "t"), edge, SETTINGS, CLOCK)
        check(await made.read(topic), 30)


async def test_an_old_note_is_as_good_as_a_new_one() -> None:
    async with cluster("a") as made:
        topic = await made.create("t", 2)
        topics = made.topics(made.log.agents["a"])
        edge = ComputedEdge(10, trim_every=1)
        await run_sink(sink_to(topics, "t"), edge, SETTINGS, CLOCK)
        old = await topics.load(group_of("fragment"))
        edge.count = 40
        await run_sink(sink_to(topics, "t"), edge, SETTINGS, CLOCK)
        await topics.store(group_of("fragment"), old)
        edge.count = 50
        await run_sink(sink_to(topics, "t"), edge, SETTINGS, CLOCK)
        check(await made.read(topic), 50)


async def test_a_partition_that_lost_delivered_rows_is_said_to_have_changed() -> None:
    async with cluster("a") as made:
        topic = await made.create("t", 1)
        topics = made.topics(made.log.agents["a"])
        await run_sink(sink_to(topics, "t"), ComputedEdge(5, trim_every=1), SETTINGS, CLOCK)
        await topics.store(group_of("fragment"), [Known((9, 1), 900, 3).note("t", 0, 9)])
        await topics._leaders.delete_records(topic, 0, -1, 5.0)
        patience = TopicTimings(patience=0.5, appears=0.3)
        sink = sink_to(topics, "t", timings=patience)
        assert await sink.open(5) == 9
        await sink.deliver([batch_at(13)], 14)
        with pytest.raises(HeadgateError) as raised:
            await sink.flush()
        await sink.close()
        assert raised.value.reason is SINK_CHANGED


async def test_a_topic_that_is_not_there_is_refused_by_name() -> None:
    async with cluster("a") as made:
        sink = sink_to(made.topics(made.log.agents["a"]), "nowhere")
        with pytest.raises(HeadgateError) as raised:
            await sink.open(0)
        await sink.close()
        assert raised.value.reason is SINK_MISSING
        assert "nowhere" in raised.value.message


async def test_a_row_that_is_too_large_for_the_topic_is_no_passing_error() -> None:
    async with cluster("a") as made:
        await made.create("t", 1, max_message_bytes=10_000)
        sink = sink_to(made.topics(made.log.agents["a"]), "t", columns="t VARCHAR")
        await sink.open(0)
        with pytest.raises(HeadgateError) as raised:
            await sink.deliver([pa.RecordBatch.from_pydict({"t": ["x" * 20_000]})], 1)
        await sink.close()
        assert raised.value.reason is RECORD_TOO_LARGE


async def test_no_leader_is_an_error_that_may_pass() -> None:
    async with cluster("a", "b") as made:
        await made.create("t", 2)
        line = Line(made.log.wires)
        sink = sink_to(made.topics(made.log.agents["a"], line), "t", timings=TopicTimings(patience=0.5))
        await sink.open(0)
        line.broken = True
        await sink.deliver([batch_at(0), batch_at(2)], 3)
        with pytest.raises(HeadgateError) as raised:
            await sink.flush()
        await sink.close()
        assert raised.value.reason is SINK_UNAVAILABLE


async def test_a_fragment_that_is_gone_leaves_no_group() -> None:
    async with cluster("a") as made:
        await made.create("t", 1)
        topics = made.topics(made.log.agents["a"])
        fragment = sink_fragment(catalog.SINK_TYPE_TOPIC, {"topic": "t"}, COLUMNS)
        await run_sink(sink_to(topics, "t"), ComputedEdge(5), SETTINGS, CLOCK)
        assert await topics.load(group_of("fragment"))
        await made.groups["a"].leave()
        for _ in range(2):
            await discard_sink(
                "fragment",
                fragment,
                state=Path("unused"),
                blocking=Inline(),
                reach=Reach(CLOCK, random.Random(1), topics),
            )
            assert not await topics.load(group_of("fragment"))


def test_a_fragment_is_always_the_same_producer_and_never_one_of_the_catalog() -> None:
    assert producer_id("fragment-1") == producer_id("fragment-1") != producer_id("fragment-2")
    assert 1 << 62 <= producer_id("fragment-1") < 1 << 63
