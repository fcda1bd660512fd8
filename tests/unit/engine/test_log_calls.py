"""How a native topic is found and read: leaders that move, agents that are away, ranges that are not there."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from headgate.log import v1 as log
from headgate_agent.log.records import PlainRecord, pack
from headgate_engine.executor import log_calls
from headgate_engine.executor.batches import headers, records_of
from headgate_engine.executor.log_calls import LogClient, TopicAccess, first_offsets
from headgate_engine.executor.topics import TopicStreamReader, read_records
from headgate_engine.executor.wire import EdgeError

UID = "topic-uid"


def end_of(batch: bytes) -> int:
    (header,) = headers(batch)
    return header.next_offset


class Agent:
    """Answers ListOffsets and Fetch for partitions that it leads."""

    def __init__(self) -> None:
        self.address = ""
        self.batches: dict[int, list[bytes]] = {}
        self.watermarks: dict[int, int] = {}
        self.refusals: dict[int, tuple[str, str]] = {}
        self.fetches: list[log.FetchPart] = []
        self.log_start = 0
        self.listed: list[log.ListOffsetsRequest] = []

    def put(self, partition: int, *values: bytes) -> None:
        (batch,) = pack([PlainRecord(None, value, 0) for value in values], 2**30)
        at = self.watermarks.get(partition, 0)
        self.batches.setdefault(partition, []).append(struct.pack(">q", at) + batch[8:])
        self.watermarks[partition] = at + len(values)

    def list_offsets(self, request: log.ListOffsetsRequest, context: Any) -> log.ListOffsetsResponse:
        self.listed.append(request)
        answer = log.ListOffsetsResponse()
        for partition in sorted(self.watermarks, reverse=True):
            answer.offsets.add(
                partition=partition,
                log_start=self.log_start,
                high_watermark=self.watermarks[partition],
                offset_at_time=-1,
            )
        return answer

    def fetch(self, request: log.FetchRequest, context: Any) -> log.FetchResponse:
        (part,) = request.parts
        self.fetches.append(part)
        if part.partition in self.refusals:
            reason, address = self.refusals[part.partition]
            refused = log.FetchedPart(error_reason=reason, error_message="no", leader="x", leader_address=address)
            return log.FetchResponse(parts=[refused])
        found = [one for one in self.batches.get(part.partition, ()) if end_of(one) > part.offset]
        answered = log.FetchedPart(
            batches=b"".join(found[:1]), high_watermark=self.watermarks.get(part.partition, 0), log_start=self.log_start
        )
        return log.FetchResponse(parts=[answered])


@contextmanager
def serving() -> Iterator[Agent]:
    agent = Agent()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    make = grpc.unary_unary_rpc_method_handler
    handlers = {
        "ListOffsets": make(
            agent.list_offsets, log.ListOffsetsRequest.FromString, log.ListOffsetsResponse.SerializeToString
        ),
        "Fetch": make(agent.fetch, log.FetchRequest.FromString, log.FetchResponse.SerializeToString),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("headgate.log.v1.LogService", handlers)])
    agent.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield agent
    finally:
        server.stop(0).wait(5)


@pytest.fixture
def agent() -> Iterator[Agent]:
    log_calls._leaders.clear()
    with serving() as made:
        yield made


def client(*addresses: str, patience: float = 30.0) -> LogClient:
    return LogClient(TopicAccess("t", UID, addresses, patience=patience))


def values(found: LogClient, partition: int, start: int, until: int) -> list[tuple[bytes, int]]:
    batches = read_records(found, (partition, start, until))
    return [(row["value"], row["offset"]) for batch in batches for row in batch.to_pylist()]


def test_requests_are_as_the_proto_says(agent: Agent) -> None:
    agent.put(2, b"a", b"b", b"c")
    agent.put(0, b"d")
    bounds = client(agent.address).offsets(1_500_000_123_456)
    assert [(one.partition, one.log_start, one.high_watermark, one.at_time) for one in bounds] == [
        (0, 0, 1, -1),
        (2, 0, 3, -1),
    ]
    (asked,) = agent.listed
    assert asked.topic == "t"
    assert asked.time.ToMicroseconds() == 1_500_000_123_456
    assert values(client(agent.address), 2, 1, 3) == [(b"b", 1), (b"c", 2)]
    (part,) = agent.fetches
    assert (part.topic_uid, part.partition, part.offset) == (UID, 2, 1)


def test_reading_begins_where_it_is_told(agent: Agent) -> None:
    agent.put(0, b"a", b"b", b"c")
    agent.log_start = 1
    bounds = client(agent.address).offsets()
    assert first_offsets(bounds, "earliest") == {"0": 1}
    assert first_offsets(bounds, "latest") == {"0": 3}
    # Nothing is that late: what comes then is.
    assert first_offsets(bounds, "1000") == {"0": 3}


@pytest.mark.parametrize("reason", ["NOT_LEADER", "STALE_EPOCH"])
def test_the_leader_is_followed_and_remembered(agent: Agent, reason: str) -> None:
    with serving() as leader:
        for number in range(3):
            leader.put(0, b"%d" % number)
        agent.refusals[0] = (reason, leader.address)
        found = client(agent.address)
        assert values(found, 0, 0, 3) == [(b"0", 0), (b"1", 1), (b"2", 2)]
        assert len(agent.fetches) == 1
        # When it is gone, the agents that were named are asked again.
    agent.refusals.clear()
    agent.put(0, b"x", b"y")
    assert values(client(agent.address), 0, 0, 2) == [(b"x", 0), (b"y", 1)]


def test_another_agent_is_asked_when_one_is_away(agent: Agent) -> None:
    agent.put(0, b"x", b"y")
    found = client("127.0.0.1:1", agent.address)
    assert [one.high_watermark for one in found.offsets()] == [2]
    assert values(client("127.0.0.1:1", agent.address), 0, 0, 2) == [(b"x", 0), (b"y", 1)]


def test_records_that_are_gone_are_told_at_once_and_offsets_without_records_are_passed_over(agent: Agent) -> None:
    agent.refusals[0] = ("OFFSET_OUT_OF_RANGE", "")
    with pytest.raises(EdgeError, match="OFFSET_OUT_OF_RANGE"):
        values(client(agent.address), 0, 0, 2)
    agent.refusals.clear()
    agent.put(0, b"x")
    agent.watermarks[0] = 40
    agent.put(0, b"y")
    agent.watermarks[0] = 50
    assert values(client(agent.address), 0, 0, 50) == [(b"x", 0), (b"y", 40)]
    # A leader that does not know of them yet is waited for.
    with pytest.raises(EdgeError, match="ends at 50, before 60"):
        values(client(agent.address, patience=0.0), 0, 0, 60)


def reader(agent: Agent, **options: str) -> TopicStreamReader:
    access = TopicAccess("t", UID, (agent.address,)).to_json()
    known = {"access_secret": access, "first": '{"0": 1}', "batch_bytes": "1000", "tasks": "4", "nap": "0.001"}
    return TopicStreamReader({**known, **options})


def test_a_batch_takes_about_as_many_bytes_as_it_may_and_an_added_partition_from_its_beginning(agent: Agent) -> None:
    agent.put(0, *[b"x" * 93 for _ in range(100)])
    stream = reader(agent)
    start = stream.initialOffset()
    assert start == {"topic": UID, "offsets": {"0": 1}}
    latest = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert 5 <= latest["offsets"]["0"] - 1 <= 15
    assert stream.reportLatestOffset() == {"offsets": {"0": 100}}
    agent.put(1, b"y")
    following = stream.latestOffset(latest, stream.getDefaultReadLimit())
    assert following["offsets"]["1"] == 1
    assert (1, 0, 1) in [part.value for part in stream.partitions(latest, following)]
    covered = [part.value for part in stream.partitions(latest, following) if part.value[0] == 0]
    assert covered == [(0, latest["offsets"]["0"], following["offsets"]["0"])]


def test_a_drain_ends_at_the_offsets_of_its_moment(agent: Agent) -> None:
    agent.put(0, b"a", b"b", b"c")
    stream = reader(agent)
    stream.prepareForTriggerAvailableNow()
    agent.put(0, b"d")
    agent.put(1, b"e", b"f")
    start = stream.initialOffset()
    latest = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert latest["offsets"]["0"] == 3
    assert stream.latestOffset(latest, stream.getDefaultReadLimit()) == latest


def test_a_topic_that_was_created_again_and_records_that_expired_are_losses(agent: Agent) -> None:
    agent.put(0, b"a", b"b")
    agent.log_start = 1
    stream = reader(agent)
    with pytest.raises(EdgeError, match=r"DATA_LOSS.*created again"):
        stream.latestOffset({"topic": "former", "offsets": {"0": 1}}, stream.getDefaultReadLimit())
    with pytest.raises(EdgeError, match=r"DATA_LOSS.*begins at 1; the query is at 0"):
        stream.latestOffset({"topic": UID, "offsets": {"0": 0}}, stream.getDefaultReadLimit())


def test_a_range_is_exact_also_inside_of_a_batch(agent: Agent) -> None:
    agent.put(0, *[b"%d" % number for number in range(50)])
    (batch,) = agent.batches[0]
    (header,) = headers(batch)
    assert records_of(batch, header, 7, 9) == ([b"7", b"8"], range(7, 9))
    assert values(client(agent.address), 0, 7, 9) == [(b"7", 7), (b"8", 8)]
