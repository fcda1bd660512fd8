"""Where runs begin in topics that they read from their end: asked once, kept by the coordinator, waited for."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.engine import v1 as engine
from headgate.log import v1 as log
from headgate_agent.errors import NOT_LEADER, STALE_EPOCH
from headgate_agent.fragments.starts import Starts, StartTimings
from headgate_agent.work import Threads
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Method
from headgate_common.errors import HeadgateError
from headgate_common.kafka_reasons import KAFKA_UNREACHABLE
from headgate_coordinator.errors import STALE_RUN

TIMINGS = StartTimings(brokers=1.0, topic_appears=0.3, retry=Backoff(initial=0.01, cap=0.02))
KAFKA = {"bootstrap_servers": "k:9092", "topic": "t"}


@dataclass
class World:
    """A log, a coordinator and brokers that answer what the test says; each keeps what it was asked."""

    # By topic: its ends, or None where it is not known.
    topics: dict[str, list[int] | None] = field(default_factory=dict)
    # Answers of the brokers, one after the other.
    brokers: list[list[int] | HeadgateError] = field(default_factory=list)
    asked: list[Mapping[str, str]] = field(default_factory=list)
    leaders_fail: list[HeadgateError] = field(default_factory=list)
    coordinator_fails: list[HeadgateError] = field(default_factory=list)
    # What is kept already.
    kept: list[catalog.TopicStart] = field(default_factory=list)
    requests: list[cluster.KeepStartsRequest] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)

    def starts(self, ends: Any = None, *, with_log: bool = True) -> Starts:
        return Starts(
            topics=lambda: self if with_log else None,
            coordinators=lambda: self,
            blocking=Threads(1),
            clock=SystemClock(),
            source=random.Random(1),
            timings=TIMINGS,
            ends=ends or self.ends,
        )

    async def settle(self, request: engine.StartFragmentRequest) -> None:
        async with asyncio.timeout(20):
            await self.starts().settle(request, self.waiting.append)

    async def topic(self, name: str) -> log.Topic | None:
        ends = self.topics.get(name)
        return None if ends is None else log.Topic(name=name, uid=f"uid-{name}", partitions=len(ends))

    async def bounds(self, topic: log.Topic, partition: int) -> tuple[int, int]:
        if self.leaders_fail:
            raise self.leaders_fail.pop(0)
        ends = self.topics[topic.name]
        assert ends is not None
        return 0, ends[partition]

    async def call(self, method: Method, request: Message, *, timeout: float | None = None) -> Any:
        assert method.path.endswith("/KeepStarts")
        assert isinstance(request, cluster.KeepStartsRequest)
        self.requests.append(request)
        if self.coordinator_fails:
            raise self.coordinator_fails.pop(0)
        self.kept = self.kept or list(request.starts)
        return cluster.KeepStartsResponse(starts=self.kept)

    def ends(self, options: Mapping[str, str], seconds: float, given_up: Callable[[], bool]) -> list[int]:
        self.asked.append(dict(options))
        answer = self.brokers.pop(0)
        if isinstance(answer, HeadgateError):
            raise answer
        return answer


def reading(start: str, *origins: catalog.TopicOrigin) -> engine.StartFragmentRequest:
    plan = catalog.ComputeFragment(start=start, inputs=[catalog.ComputeInput(topic=one) for one in origins])
    return engine.StartFragmentRequest(run=engine.RunRef(fragment_uid="f", epoch=3), plan=plan)


def native(topic: str, source: str = "", **options: str) -> catalog.TopicOrigin:
    kind = catalog.SOURCE_TYPE_TOPIC
    return catalog.TopicOrigin(physical_source=source or topic, type=kind, options={"topic": topic, **options})


def kafka(source: str = "k", **options: str) -> catalog.TopicOrigin:
    kind = catalog.SOURCE_TYPE_KAFKA
    return catalog.TopicOrigin(physical_source=source, type=kind, options={**KAFKA, **options})


def told(request: engine.StartFragmentRequest) -> list[tuple[str, str, list[int]]]:
    return [(one.physical_source, one.topic_uid, list(one.offsets)) for one in request.plan.starts]


async def test_a_run_begins_at_the_ends_that_the_coordinator_has_kept() -> None:
    world = World(topics={"n": [5, 0]}, brokers=[[7, 8, 9]])
    request = reading("latest", native("n"), kafka())
    await world.settle(request)
    assert told(request) == [("n", "uid-n", [5, 0]), ("k", "", [7, 8, 9])]
    assert [(one.uid, one.epoch) for one in world.requests] == [("f", 3)]
    assert world.waiting == []


async def test_what_was_kept_first_is_what_counts() -> None:
    first = catalog.TopicStart(physical_source="n", topic_uid="uid-n", offsets=[5])
    world = World(topics={"n": [9]}, kept=[first])
    request = reading("latest", native("n"))
    await world.settle(request)
    assert told(request) == [("n", "uid-n", [5])]


async def test_a_run_that_is_told_where_it_begins_asks_nobody() -> None:
    world = World()
    request = reading("latest", native("n"), kafka())
    request.plan.starts.add(physical_source="n", offsets=[1])
    await world.settle(request)
    assert told(request) == [("n", "", [1])]
    assert not world.requests and not world.asked


@pytest.mark.parametrize("start", ["earliest", "1700000000000000", ""])
async def test_nothing_is_asked_where_topics_are_not_read_from_their_end(start: str) -> None:
    world = World()
    request = reading(start, native("n"), kafka())
    await world.settle(request)
    assert not told(request) and not world.requests and not world.asked


async def test_each_source_says_where_it_begins_unless_the_query_does() -> None:
    world = World(topics={"n": [1], "m": [2]}, brokers=[[3]])
    request = reading("", native("n", start="latest"), native("m"), kafka(start="earliest"))
    await world.settle(request)
    assert told(request) == [("n", "uid-n", [1])]
    request = reading("earliest", native("n", start="latest"))
    await world.settle(request)
    assert not told(request)


async def test_a_source_that_is_read_twice_begins_at_one_place() -> None:
    world = World(brokers=[[3]])
    request = reading("latest", kafka(), kafka())
    await world.settle(request)
    assert told(request) == [("k", "", [3])]


async def test_brokers_leaders_and_coordinators_that_are_away_are_waited_for_and_named() -> None:
    away = HeadgateError(KAFKA_UNREACHABLE, "the brokers are away")
    world = World(topics={"n": [1]}, brokers=[away, away, [3]])
    world.leaders_fail = [HeadgateError(STALE_EPOCH, "the lead has passed on")]
    world.coordinator_fails = [HeadgateError(NOT_LEADER, "another one leads")]
    request = reading("latest", kafka(), native("n"))
    await world.settle(request)
    assert told(request) == [("k", "", [3]), ("n", "uid-n", [1])]
    brokers = "it asks the brokers of topic t, k:9092, and has no answer yet: the brokers are away"
    leaders = "it asks the agents that lead topic n, and has no answer yet: the lead has passed on"
    keeper = "it asks a coordinator to keep where it begins to read, and has no answer yet: another one leads"
    assert world.waiting == [brokers, brokers, "", leaders, "", keeper, ""]


async def test_a_run_that_was_replaced_does_not_begin() -> None:
    world = World(brokers=[[3]])
    world.coordinator_fails = [HeadgateError(STALE_RUN, "epoch 4 is STARTED")]
    request = reading("latest", kafka())
    with pytest.raises(HeadgateError) as raised:
        await world.settle(request)
    assert raised.value.reason.name == "STALE_RUN"
    assert not told(request)


async def test_a_topic_that_is_not_there_is_waited_for_a_moment_and_then_missed() -> None:
    world = World(topics={"n": None})
    request = reading("latest", native("n"))
    settling = asyncio.create_task(world.settle(request))
    while not world.waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    world.topics["n"] = [4]
    await settling
    assert told(request) == [("n", "uid-n", [4])]
    with pytest.raises(HeadgateError) as raised:
        await world.settle(reading("latest", native("nowhere")))
    assert raised.value.reason.name == "SOURCE_MISSING"
    assert raised.value.message == "there is no topic nowhere"


async def test_an_agent_without_a_log_refuses_native_topics() -> None:
    world = World()
    with pytest.raises(HeadgateError) as raised:
        await world.starts(with_log=False).settle(reading("latest", native("n")), world.waiting.append)
    assert raised.value.reason.name == "PLAN_UNSUPPORTED"


async def test_a_run_that_is_stopped_does_not_wait_for_brokers() -> None:
    began, ended = threading.Event(), threading.Event()

    def ends(options: Mapping[str, str], seconds: float, given_up: Callable[[], bool]) -> list[int]:
        began.set()
        while not given_up():
            ended.wait(0.01)
        ended.set()
        return []

    world = World()
    starts = world.starts(ends)
    settling = asyncio.create_task(starts.settle(reading("latest", kafka()), world.waiting.append))
    while not began.is_set():  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    settling.cancel()
    await asyncio.wait((settling,), timeout=20)
    assert settling.cancelled() and ended.is_set()
