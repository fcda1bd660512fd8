"""Where runs begin in topics that they read from their end (`start = latest`).

Found out when a fragment is first started, before its run waits for an engine: what is produced while Spark warms up is
read. Contract: a run reads nothing before the coordinator has kept where it begins, and begins where the coordinator
answers that it does, so every run of a fragment, on any agent, begins at the same place. An agent that dies before that
leaves nothing behind, and the next one asks anew.

Where topics are read from their beginning or from a time, Spark finds that out itself at its first batch: the records
are the same, and what retention has removed until then is not missed.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from grpc import StatusCode

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.cluster.v1 import membership_service_pb2
from headgate.engine import v1 as engine
from headgate.log import v1 as log
from headgate_agent.errors import PLAN_UNSUPPORTED, SOURCE_MISSING
from headgate_agent.fragments.kafka_ends import ends_of
from headgate_agent.groups.asking import Caller
from headgate_agent.work import Work
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.dispatch import methods
from headgate_common.errors import HeadgateError

T = TypeVar("T")
Waits = Callable[[str], None]

_KEEP = methods(membership_service_pb2.DESCRIPTOR.services_by_name["MembershipService"])["KeepStarts"]
_PASSING = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.ABORTED, StatusCode.RESOURCE_EXHAUSTED)
# ABORTED, and will not pass.
_STALE = "STALE_RUN"
# Seconds between two looks for a topic that is not known yet.
_LOOK = 0.1


class NativeTopics(Protocol):
    """The log of the cluster; `sinks.topic_log` implements it."""

    async def topic(self, name: str) -> log.Topic | None: ...

    async def bounds(self, topic: log.Topic, partition: int) -> tuple[int, int]: ...


@dataclass(frozen=True, slots=True)
class StartTimings:
    """Seconds."""

    # How long the brokers of a Kafka topic have to answer.
    brokers: float
    # How long a topic that this agent does not know yet is waited for.
    topic_appears: float
    # Between attempts.
    retry: Backoff


@dataclass(frozen=True, slots=True)
class Starts:
    # There once the log is open; None on an agent without one.
    topics: Callable[[], NativeTopics | None]
    coordinators: Callable[[], Caller]
    # Where brokers are waited for.
    blocking: Work
    clock: Clock
    source: random.Random
    timings: StartTimings
    ends: Callable[[Mapping[str, str], float, Callable[[], bool]], list[int]] = field(default=ends_of)

    async def settle(self, request: engine.StartFragmentRequest, waits: Waits) -> None:
        """Writes into the plan of a request where to begin, unless it says so. `waits` is told what is in the way."""
        plan = request.plan
        origins = from_their_end(plan)
        if plan.starts or not origins:
            return
        asked = cluster.KeepStartsRequest(uid=request.run.fragment_uid, epoch=request.run.epoch)
        for name, origin in origins.items():
            asked.starts.append(await self._find(name, origin, waits))
        call = partial(self.coordinators().call, _KEEP, asked)
        kept = await self._patiently("a coordinator to keep where it begins to read", call, waits)
        plan.starts.extend(kept.starts)

    async def _find(self, source: str, origin: catalog.TopicOrigin, waits: Waits) -> catalog.TopicStart:
        name = origin.options["topic"]
        if origin.type == catalog.SOURCE_TYPE_KAFKA:
            what = f"the brokers of topic {name}, {origin.options['bootstrap_servers']}"
            offsets = await self._patiently(what, lambda: self._kafka(origin.options), waits)
            return catalog.TopicStart(physical_source=source, offsets=offsets)
        topics = self.topics()
        if topics is None:
            raise HeadgateError(PLAN_UNSUPPORTED, "an agent without the role log knows no topics")
        topic = await self._known(topics, name, waits)
        what = f"the agents that lead topic {name}"
        offsets = await self._patiently(what, lambda: _native(topics, topic), waits)
        return catalog.TopicStart(physical_source=source, topic_uid=topic.uid, offsets=offsets)

    async def _known(self, topics: NativeTopics, name: str, waits: Waits) -> log.Topic:
        until: float | None = None
        whom = "a coordinator to say which topics there are"
        while (topic := await self._patiently(whom, lambda: topics.topic(name), waits)) is None:
            until = until or self.clock.monotonic() + self.timings.topic_appears
            if self.clock.monotonic() >= until:
                raise HeadgateError(SOURCE_MISSING, f"there is no topic {name}", metadata={"topic": name})
            waits(f"there is no topic {name} yet")
            await asyncio.sleep(_LOOK)
        return topic

    async def _kafka(self, options: Mapping[str, str]) -> list[int]:
        given_up = threading.Event()
        seconds, find = self.timings.brokers, self.ends
        asking = asyncio.ensure_future(self.blocking.run(lambda: find(options, seconds, given_up.is_set)))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            given_up.set()
            await asyncio.wait((asking,))
            raise

    async def _patiently(self, whom: str, attempt: Callable[[], Awaitable[T]], waits: Waits) -> T:
        """Asks until there is an answer, or an error that will not pass: the query has a deadline of its own."""
        tries = 0
        while True:
            try:
                answer = await attempt()
            except HeadgateError as error:
                if error.reason.code not in _PASSING or error.reason.name == _STALE:
                    raise
                waits(f"it asks {whom}, and has no answer yet: {error.message}")
            else:
                if tries:
                    waits("")
                return answer
            await asyncio.sleep(self.timings.retry.delay(tries, self.source))
            tries += 1


def from_their_end(plan: catalog.ComputeFragment) -> dict[str, catalog.TopicOrigin]:
    """The topics that a plan reads from their end, by physical source: one that is read twice begins at one place."""
    origins = [entry.topic for entry in plan.inputs if entry.HasField("topic")]
    return {
        one.physical_source: one for one in origins if (plan.start or one.options.get("start", "earliest")) == "latest"
    }


async def _native(topics: NativeTopics, topic: log.Topic) -> list[int]:
    found = await asyncio.gather(*(topics.bounds(topic, index) for index in range(topic.partitions)))
    return [end for _, end in found]
