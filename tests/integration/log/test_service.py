"""LogService among several agents: any of them may be asked about any topic."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import cramjam
import pytest

from headgate.log import v1 as api
from headgate_agent.log.contract import PartitionKey, PartitionSettings
from headgate_agent.log.edge_service import EdgeService
from headgate_agent.log.limits import CallLimits
from headgate_agent.log.record_batch import encode, header_at
from headgate_agent.log.records import partition_of_key
from headgate_agent.log.service import LogService
from headgate_agent.member import Member
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError
from tests.integration.log.kit import COORDINATOR, LogAgent, LogCluster, log_cluster
from tests.integration.log.test_broker import batch
from tests.integration.log.test_edges import OBJECT, WAL, made


def record(value: bytes | None, key: bytes | None = None, time: int = 0, **headers: bytes | None) -> api.Record:
    made = api.Record()
    if value is not None:
        made.value = value
    if key is not None:
        made.key = key
    if time:
        made.timestamp.FromMilliseconds(time)
    for name, content in headers.items():
        header = made.headers.add(key=name)
        if content is not None:
            header.value = content
    return made


async def produce(agent: LogAgent, topic: str, *records: api.Record, **where: int) -> list[tuple[int, int]]:
    request = api.ProduceRecordsRequest(topic=topic, records=records, **where)
    answer = await agent.service.produce_records(request, Call(timeout=10))
    return [(one.partition, one.offset) for one in answer.positions]


def fetch_request(topic: str, partition: int, **start: Any) -> api.FetchRecordsRequest:
    request = api.FetchRecordsRequest(topic=topic, partition=partition)
    for name, value in start.items():
        if name == "time":
            getattr(request, "from").time.FromMilliseconds(value)
        else:
            setattr(getattr(request, "from"), name, value)
    return request


async def refused(call: Any) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        await call
    return caught.value


def other_than(cluster: LogCluster, leader: str) -> LogAgent:
    return next(agent for name, agent in cluster.agents.items() if name != leader)


async def test_records_go_to_the_partition_of_their_key_through_any_agent_and_come_back_whole() -> None:
    async with log_cluster("a", "b") as cluster:
        await cluster.create("orders", 5)
        sent = [record(b"v%d" % n, b"key-%d" % n, time=1000 + n, trace=b"t", empty=None) for n in range(20)]
        positions = await produce(cluster.agents["a"], "orders", *sent)
        assert [partition for partition, _ in positions] == [partition_of_key(b"key-%d" % n, 5) for n in range(20)]
        found: list[api.Record] = []
        for index in range(5):
            answer = await cluster.agents["b"].service.fetch_records(fetch_request("orders", index), Call(timeout=10))
            found += answer.records
            assert answer.next_offset == answer.high_watermark == len(answer.records)
        for one in found:
            one.partition, one.offset = 0, 0
        assert sorted(found, key=lambda one: one.key) == sorted(sent, key=lambda one: one.key)


async def test_none_is_not_empty_and_records_without_key_go_to_one_partition() -> None:
    async with log_cluster("a") as cluster:
        await cluster.create("orders", 8)
        positions = await produce(cluster.agents["a"], "orders", record(None), record(b""), record(b"x"))
        assert len({partition for partition, _ in positions}) == 1
        assert [offset for _, offset in positions] == [0, 1, 2]
        answer = await cluster.agents["a"].service.fetch_records(fetch_request("orders", positions[0][0]), Call())
        assert [one.HasField("value") for one in answer.records] == [False, True, True]
        assert not any(one.HasField("key") for one in answer.records)


async def test_reading_begins_where_it_is_told_and_stops_where_it_is_told() -> None:
    async with log_cluster("a") as cluster:
        await cluster.create("orders", 1)
        service = cluster.agents["a"].service
        await produce(cluster.agents["a"], "orders", *(record(b"%d" % n, time=1000 * (n + 1)) for n in range(10)))

        async def values(request: api.FetchRecordsRequest, **limits: int) -> list[bytes]:
            for name, value in limits.items():
                setattr(request, name, value)
            return [one.value for one in (await service.fetch_records(request, Call(timeout=5))).records]

        assert await values(fetch_request("orders", 0, offset=7)) == [b"7", b"8", b"9"]
        assert await values(fetch_request("orders", 0, earliest=True), max_records=2) == [b"0", b"1"]
        assert await values(fetch_request("orders", 0, latest=True)) == []
        assert await values(fetch_request("orders", 0, time=8500)) == [b"8", b"9"]
        assert await values(fetch_request("orders", 0, time=99_000)) == []
        assert await values(fetch_request("orders", 0, offset=3), max_bytes=1) == [b"3"]
        error = await refused(service.fetch_records(fetch_request("orders", 0, offset=11), Call(timeout=5)))
        assert error.reason.name == "OFFSET_OUT_OF_RANGE"


async def test_a_fetch_of_plain_records_waits_for_the_first() -> None:
    async with log_cluster("a") as cluster:
        await cluster.create("orders", 1)
        request = fetch_request("orders", 0)
        request.max_wait.FromSeconds(10)
        waiting = asyncio.ensure_future(cluster.agents["a"].service.fetch_records(request, Call(timeout=20)))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await produce(cluster.agents["a"], "orders", record(b"x"))
        assert [one.value for one in (await asyncio.wait_for(waiting, 60)).records] == [b"x"]


async def test_tailing_follows_all_partitions_and_ends_when_told() -> None:
    async with log_cluster("a", "b") as cluster:
        await cluster.create("orders", 4)
        for n in range(8):
            await produce(cluster.agents["a"], "orders", record(b"%d" % n), partition=n % 4)
        service = cluster.agents["b"].service

        async def tail(**options: Any) -> list[bytes]:
            request = api.TailRecordsRequest(topic="orders", **options)
            async with asyncio.timeout(60):
                return [one.value async for page in service.tail_records(request, Call()) for one in page.records]

        assert sorted(await tail(until_end=True)) == [b"%d" % n for n in range(8)]
        assert sorted(await tail(until_end=True, partitions=[1])) == [b"1", b"5"]
        request = api.TailRecordsRequest(topic="orders", limit=3)
        getattr(request, "from").latest = True
        following = asyncio.ensure_future(_collect(service, request))
        await asyncio.sleep(0.3)
        for n in range(3):
            await produce(cluster.agents["a"], "orders", record(b"new-%d" % n), partition=n)
        assert sorted(await asyncio.wait_for(following, 60)) == [b"new-0", b"new-1", b"new-2"]


async def _collect(service: LogService, request: api.TailRecordsRequest) -> list[bytes]:
    return [one.value async for page in service.tail_records(request, Call()) for one in page.records]


async def test_tailing_to_the_end_ends_though_the_last_offsets_hold_nothing() -> None:
    async with log_cluster("a", "b") as cluster:
        topic = await cluster.create("orders", 1, wal=True)
        key = PartitionKey(topic.uid, 0)
        await produce(cluster.agents["a"], "orders", record(b"kept"), partition=0)
        leader = cluster.leader(key)
        await leader.broker.led[key].partition.flush()
        await produce(cluster.agents["a"], "orders", record(b"lost"), partition=0)
        other = other_than(cluster, leader.name)
        await leader.crash()
        await cluster.until(lambda: "volume" in other.view.leadership(key).waiting, "it to wait")
        await cluster.ask(api.RecoverPartitionsRequest(topic="orders", accept_loss=True))
        await cluster.until(lambda: key in other.broker.led, "the other to lead")
        request = api.TailRecordsRequest(topic="orders", until_end=True)
        assert await asyncio.wait_for(_collect(other.service, request), 60) == [b"kept"]


async def test_offsets_are_listed_and_records_deleted_through_any_agent() -> None:
    async with log_cluster("a", "b") as cluster:
        await cluster.create("orders", 4)
        for n in range(8):
            await produce(cluster.agents["a"], "orders", record(b"%d" % n, time=1000 + n), partition=n % 4)
        for agent in cluster.agents.values():
            request = api.ListOffsetsRequest(topic="orders")
            request.time.FromMilliseconds(1004)
            offsets = (await agent.service.list_offsets(request, Call(timeout=5))).offsets
            assert [(one.partition, one.log_start, one.high_watermark, one.offset_at_time) for one in offsets] == [
                (n, 0, 2, 1) for n in range(4)
            ]
            request = api.ListOffsetsRequest(topic="orders", max_timestamp=True)
            offsets = (await agent.service.list_offsets(request, Call(timeout=5))).offsets
            assert [(one.offset_of_max_timestamp, one.max_timestamp.ToMilliseconds()) for one in offsets] == [
                (1, 1004 + n) for n in range(4)
            ]
        for index in range(4):
            deletion = api.DeleteRecordsRequest(topic="orders", partition=index, before_offset=-1)
            agent = other_than(cluster, cluster.leaders("orders")[index])
            assert (await agent.service.delete_records(deletion, Call(timeout=5))).log_start == 2


async def test_what_is_not_there_or_not_allowed_has_a_reason() -> None:
    async with log_cluster("a") as cluster:
        await cluster.create("orders", 2, max_message_bytes=2048)
        agent = cluster.agents["a"]
        reasons = [
            (await refused(produce(agent, "nothing", record(b"x")))).reason.name,
            (await refused(produce(agent, "orders", record(b"x"), partition=2))).reason.name,
            (await refused(produce(agent, "orders", record(b"x" * 5000), partition=0))).reason.name,
            (await refused(agent.service.get_offsets(api.GetOffsetsRequest(group="g"), Call()))).reason.name,
        ]
        assert reasons == ["UNKNOWN_PARTITION", "UNKNOWN_PARTITION", "RECORD_TOO_LARGE", "GROUP_UNAVAILABLE"]
        # Many small records are several batches, in order.
        sent = [record(b"%03d" % n * 100) for n in range(30)]
        positions = await produce(agent, "orders", *sent, partition=1)
        assert [offset for _, offset in positions] == list(range(30))


async def test_batches_are_taken_by_the_leader_alone_and_each_part_answers_for_itself() -> None:
    async with log_cluster("a", "b") as cluster:
        topic = await cluster.create("orders", 2)
        leader = cluster.agents[cluster.leaders("orders")[0]]
        other = other_than(cluster, leader.name)
        damaged = bytearray(batch(b"x"))
        damaged[-1] ^= 1

        def part(data: bytes, uid: str = topic.uid) -> api.ProducePart:
            return api.ProducePart(topic_uid=uid, partition=0, batches=data)

        request = api.ProduceRequest(parts=[part(batch(b"x")), part(bytes(damaged)), part(batch(b"y"), "topic-none")])
        answer = await leader.service.produce(request, Call())
        assert [one.error_reason for one in answer.parts] == ["", "CORRUPT_BATCH", "UNKNOWN_PARTITION"]
        elsewhere = await other.service.produce(api.ProduceRequest(parts=[part(batch(b"z"))]), Call())
        (told,) = elsewhere.parts
        assert (told.error_reason, told.leader, told.leader_address) == ("NOT_LEADER", leader.name, leader.address)
        sequence = batch_of_producer(7, 5)
        gap = await leader.service.produce(
            api.ProduceRequest(parts=[part(batch_of_producer(7, 0)), part(sequence)]), Call()
        )
        assert [one.error_reason for one in gap.parts] == ["", "SEQUENCE_REFUSED"]
        fetch = api.FetchRequest(
            parts=[api.FetchPart(topic_uid=topic.uid, partition=0), api.FetchPart(topic_uid=topic.uid, offset=99)]
        )
        found = await leader.service.fetch(fetch, Call())
        assert header_at(found.parts[0].batches, 0).base_offset == 0
        assert (found.parts[0].high_watermark, found.parts[1].error_reason) == (2, "OFFSET_OUT_OF_RANGE")


async def test_a_former_leader_that_does_not_know_it_yet_cannot_answer_for_what_it_took() -> None:
    async with log_cluster("a", "b") as cluster:
        topic = await cluster.create("orders", 1)
        key = PartitionKey(topic.uid, 0)
        leader = cluster.leader(key)
        led = leader.broker.led[key]
        led.partition.epoch -= 1
        direct = api.ProduceRequest(parts=[api.ProducePart(topic_uid=topic.uid, partition=0, batches=batch(b"x"))])
        answer = await leader.service.produce(direct, Call())
        # Unless the agent has looked meanwhile and let go of it by itself.
        assert answer.parts[0].error_reason in ("RECORDS_UNCERTAIN", "LEASE_CONFLICT")


def batch_of_producer(producer: int, sequence: int) -> bytes:
    return bytes(encode(b"", 1, timestamp=1, producer=(producer, 0, sequence)))


async def test_a_stream_of_produces_is_answered_in_its_order() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", 1, wal=True)

        async def requests() -> AsyncIterator[api.StreamProduceRequest]:
            for n in range(100):
                part = api.ProducePart(topic_uid=topic.uid, partition=0, batches=batch(b"%d" % n))
                yield api.StreamProduceRequest(parts=[part])

        service = cluster.agents["a"].service
        answers = [one async for one in service.stream_produce(requests(), Call())]
        assert [one.parts[0].base_offset for one in answers] == list(range(100))


async def test_a_stream_of_fetches_brings_what_comes_and_says_what_fails() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", 2)
        agent = cluster.agents["a"]
        request = api.StreamFetchRequest(
            parts=[
                api.FetchPart(topic_uid=topic.uid, partition=0),
                api.FetchPart(topic_uid=topic.uid, partition=1, offset=50),
            ]
        )
        stream = agent.service.stream_fetch(request, Call())
        try:
            first = await asyncio.wait_for(anext(stream), 60)
            assert (first.part, first.fetched.error_reason) == (1, "OFFSET_OUT_OF_RANGE")
            offsets: list[int] = []
            for n in range(3):
                await produce(agent, "orders", record(b"%d" % n), partition=0)
                one = await asyncio.wait_for(anext(stream), 60)
                assert one.part == 0
                offsets.append(header_at(one.fetched.batches, 0).base_offset)
            assert offsets == [0, 1, 2]
        finally:
            await stream.aclose()


async def test_an_agent_that_passes_a_fetch_on_holds_what_it_brought_and_nothing_while_it_waits() -> None:
    async with log_cluster("a", "b") as cluster:
        topic = await cluster.create("orders", 1)
        leader = cluster.leader(PartitionKey(topic.uid, 0))
        other = other_than(cluster, leader.name)
        here, there = (agent.service._answers.memory for agent in (other, leader))
        untaken: list[Any] = []
        request = fetch_request("orders", 0, offset=0)
        request.max_wait.FromSeconds(10)
        before = cluster.wires.calls["Fetch"]
        waiting = asyncio.ensure_future(other.service.fetch_records(request, Call(timeout=20, on_sent=untaken.append)))
        tail = other.service.tail_records(api.TailRecordsRequest(topic="orders"), Call())
        following = asyncio.ensure_future(anext(tail))
        await cluster.until(lambda: cluster.wires.calls["Fetch"] == before + 4, "both to wait at the leader")
        await asyncio.sleep(0.1)
        assert (here.used, there.used) == (0, 0)
        await produce(leader, "orders", record(b"x" * 1000))
        assert [one.value for one in (await waiting).records] == [b"x" * 1000]
        assert [one.value for one in (await following).records] == [b"x" * 1000]
        assert here.used > 2000 and there.used == 0
        untaken.pop()()
        assert 1000 < here.used < 2000
        await tail.aclose()
        assert here.used == 0


class Kept:
    """Offsets of groups, kept in memory."""

    def __init__(self) -> None:
        self.offsets: dict[str, list[api.GroupOffset]] = {}

    async def commit(self, group: str, offsets: Sequence[api.GroupOffset], *, local_only: bool = False) -> None:
        self.offsets.setdefault(group, []).extend(offsets)

    async def read(self, group: str) -> Sequence[api.GroupOffset]:
        return self.offsets.get(group, [])


async def test_the_lag_of_a_group_is_what_is_left_to_read() -> None:
    async with log_cluster("a", "b") as cluster:
        await cluster.create("orders", 2)
        agent = cluster.agents["a"]
        agent.service._groups = Kept()
        for index in (0, 1):
            await produce(agent, "orders", *(record(b"%d" % n) for n in range(5)), partition=index)
        commit = api.CommitOffsetsRequest(
            group="g", offsets=[api.GroupOffset(topic="orders", partition=index, offset=2 + index) for index in (0, 1)]
        )
        await agent.service.commit_offsets(commit, Call())
        answer = await agent.service.get_offsets(api.GetOffsetsRequest(group="g"), Call())
        assert [(one.high_watermark, one.lag) for one in answer.offsets] == [(5, 3), (5, 2)]
        unknown = api.CommitOffsetsRequest(group="g", offsets=[api.GroupOffset(topic="orders", partition=9)])
        assert (await refused(agent.service.commit_offsets(unknown, Call()))).reason.name == "UNKNOWN_PARTITION"


async def test_a_leader_without_a_session_says_so_and_a_produce_waits_for_the_next_one() -> None:
    async with log_cluster("a", "b") as cluster:
        topic = await cluster.create("orders", 1)
        key = PartitionKey(topic.uid, 0)
        leader = cluster.leader(key)
        other = other_than(cluster, leader.name)
        leader.line.cut.add(COORDINATOR)
        await cluster.until(lambda: key not in leader.broker.led, "the leader to give up")
        direct = api.ProduceRequest(parts=[api.ProducePart(topic_uid=topic.uid, partition=0, batches=batch(b"x"))])
        answer = await leader.service.produce(direct, Call())
        assert answer.parts[0].error_reason in ("LEASE_CONFLICT", "NOT_LEADER")
        assert await produce(other, "orders", record(b"y"), partition=0) == [(0, 0)]


def doubt(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """No agent can be certain of its session any more, though all of them are renewed, until what is returned is
    called."""
    doubting = [True]
    session, until = Member.session, Member.valid_until

    def session_now(self: Member) -> str | None:
        return None if doubting else session.__get__(self)

    def until_now(self: Member) -> float:
        return SystemClock().monotonic() if doubting else until.__get__(self)

    monkeypatch.setattr(Member, "session", property(session_now))
    monkeypatch.setattr(Member, "valid_until", property(until_now))
    return doubting.clear


@pytest.mark.parametrize("durability", [OBJECT, WAL], ids=["OBJECT", "WAL"])
async def test_an_edge_that_is_read_while_the_session_is_in_doubt_is_answered_when_it_is_certain_again(
    durability: api.Durability.ValueType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with log_cluster("a") as cluster:
        edge = await made(cluster, durability)
        await edge.open(1)
        await edge.write(1, 0, b"one", b"two")
        service = EdgeService(cluster.agents["a"].broker, SystemClock())
        request = api.ReadEdgeRequest(topic_uid=edge.edge.uid, until_offset=2)

        async def read() -> list[bytes]:
            return [one async for part in service.read_edge(request, Call()) for one in part.batches]

        certain = doubt(monkeypatch)
        calls = [asyncio.ensure_future(call) for call in (read(), edge.state(), edge.trim(1, 1))]
        await asyncio.sleep(0.3)
        assert not any(call.done() for call in calls)
        certain()
        rows, state, _ = await asyncio.wait_for(asyncio.gather(*calls), 60)
        assert (rows, state.high_watermark) == ([b"one", b"two"], 2)
        assert (await edge.state()).log_start == 1


@pytest.mark.parametrize("durability", [OBJECT, WAL], ids=["OBJECT", "WAL"])
async def test_an_edge_that_is_written_while_the_session_is_in_doubt_has_it_when_it_is_certain_again(
    durability: api.Durability.ValueType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with log_cluster("a") as cluster:
        edge = await made(cluster, durability)
        await edge.open(1)
        await edge.stage(1, "one", b"one")
        for call, said in (
            (edge.stage(1, "two", b"two"), None),
            (edge.commit(1, 0, "one"), False),
            (edge.open(2), 0),
        ):
            certain = doubt(monkeypatch)
            asked = asyncio.ensure_future(call)
            await asyncio.sleep(0.3)
            assert not asked.done()
            certain()
            assert await asyncio.wait_for(asked, 60) == said
            monkeypatch.undo()
        assert await edge.rows() == [b"one"]


async def test_records_of_a_time_that_no_message_can_say_are_read_like_others() -> None:
    # Stored before such times were refused, or where they are not.
    async with log_cluster("a", "b", limits=PartitionSettings(after_max=1e18)) as cluster:
        topic = await cluster.create("orders", 1)
        key = PartitionKey(topic.uid, 0)
        leader = cluster.leader(key)
        times = [1_700_000_000_000, 1_700_000_000_000_000, 2**63 - 1, -7]
        for time in times:
            await leader.broker.produce(key, batch(b"%d" % time, time=time))
        last = 253_402_300_799_999
        for agent in cluster.agents.values():
            answer = await agent.service.fetch_records(fetch_request("orders", 0), Call(timeout=10))
            assert [int(one.value) for one in answer.records] == times
            assert [one.timestamp.ToMilliseconds() for one in answer.records] == [times[0], last, last, 0]
            request = api.TailRecordsRequest(topic="orders", until_end=True)
            assert await asyncio.wait_for(_collect(agent.service, request), 60) == [b"%d" % time for time in times]
            newest = api.ListOffsetsRequest(topic="orders", max_timestamp=True)
            (found,) = (await agent.service.list_offsets(newest, Call(timeout=5))).offsets
            assert (found.offset_of_max_timestamp, found.max_timestamp.ToMilliseconds()) == (2, last)


async def test_a_time_too_far_ahead_is_refused_with_a_reason() -> None:
    async with log_cluster("a") as cluster:
        await cluster.create("orders", 1)
        error = await refused(produce(cluster.agents["a"], "orders", record(b"x", time=253_402_300_799_999)))
        assert error.reason.name == "RECORDS_REFUSED" and "milliseconds since 1970" in error.message


async def test_a_batch_of_many_small_records_is_tailed_in_pages_whatever_they_say_of_themselves() -> None:
    async with log_cluster("a") as cluster:
        topic = await cluster.create("orders", 1)
        agent = cluster.agents["a"]
        # 30,000 records that all claim to be the first.
        body = bytes([12, 0, 0, 0, 1, 1, 0]) * 30_000
        data = bytes(encode(bytes(cramjam.zstd.compress(body)), 30_000, timestamp=1000, attributes=4))
        await agent.broker.produce(PartitionKey(topic.uid, 0), data)
        request = api.TailRecordsRequest(topic="orders", until_end=True)
        async with asyncio.timeout(60):
            pages = [[one.offset for one in page.records] async for page in agent.service.tail_records(request, Call())]
        assert [offset for page in pages for offset in page] == list(range(30_000))
        assert max(map(len, pages)) <= CallLimits().tail_page_records
        answer = await agent.service.fetch_records(fetch_request("orders", 0, offset=20_000), Call(timeout=10))
        assert [one.offset for one in answer.records] == list(range(20_000, 20_100))
