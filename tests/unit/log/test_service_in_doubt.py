"""Calls that come while it is in doubt whether the agent's session lives are answered when it is certain again, however
short that was."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from headgate.catalog import v1 as catalog
from headgate.log import v1 as api
from headgate_agent.errors import NOT_LEADER
from headgate_agent.log.block_cache import BlockCache
from headgate_agent.log.broker import Broker, BrokerSettings, World
from headgate_agent.log.contract import InDoubt, NotLeader
from headgate_agent.log.edge_service import EdgeService
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.segment_reader import SegmentReader
from headgate_agent.log.service import LogService
from headgate_agent.log.tail import Memory
from headgate_agent.log.view import CatalogView
from headgate_agent.log.wal import Wal
from headgate_agent.work import Inline
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_common.signals import Signal
from tests.unit.log.test_looks import KEY, Granting
from tests.unit.log.test_partition import Files, Objects

CLOCK = SystemClock()
LONG = 3600.0


class Renewed:
    """A session that lives until it is said to be in doubt, or its time has passed."""

    def __init__(self) -> None:
        self.known = "session-1"
        self.valid_until = CLOCK.monotonic() + LONG
        self._news = Signal()

    @property
    def session(self) -> str | None:
        return self.known if self.known and CLOCK.monotonic() < self.valid_until else None

    async def news(self, seconds: float) -> bool:
        return await self._news.wait(seconds)

    def doubt(self) -> None:
        self.valid_until = CLOCK.monotonic()

    def renew(self, lasts: float = LONG) -> None:
        """As `Member`: it tells only if nobody could be certain of the session before."""
        doubted = self.session is None
        self.valid_until = CLOCK.monotonic() + lasts
        if doubted:
            self._tell()

    def end(self) -> None:
        self.known = ""
        self._tell()

    def _tell(self) -> None:
        told, self._news = self._news, Signal()
        told.set()


class Catalog(Granting):
    async def ask(self, method: str, request: Any, **_: Any) -> Any:
        assert method == "ListSegments"
        return api.ListSegmentsResponse()


@pytest.fixture
def member() -> Renewed:
    return Renewed()


@pytest.fixture
async def broker(member: Renewed) -> AsyncIterator[Broker]:
    """Leads one partition. It looks at its session when that tells, and else when its time has passed."""
    source = random.Random(1)
    coordinators: Any = None
    view = CatalogView(coordinators, clock=CLOCK, source=source, backoff=Backoff())
    agent = catalog.Agent(name="a", address="a:1", roles=[catalog.AGENT_ROLE_LOG], present=True)
    view._state.put(catalog.Resource(agent=agent))
    view._state.put(catalog.Resource(topic=api.Topic(uid=KEY.topic_uid, name="orders", partitions=1)))
    view.revision = 1
    objects = Objects()
    world = World(
        wal=Wal(Files()),
        objects=objects,
        reader=SegmentReader(objects, BlockCache(1 << 20)),
        clock=CLOCK,
        ids=RandomIds(source),
        source=source,
        memory=Memory(),
        work=Inline(),
        metrics=LogMetrics(CollectorRegistry()),
    )
    session: Any = member
    granting: Any = Catalog()
    settings = BrokerSettings(relook=LONG, guard=LONG, doubt=LONG)
    made = Broker("a", "v", member=session, view=view, catalog=granting, world=world, settings=settings)
    await made.open()
    running = asyncio.ensure_future(made.run())
    async with asyncio.timeout(60):
        while KEY not in made.led:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await made.close()


async def waits(asked: Awaitable[Any]) -> asyncio.Future[Any]:
    begun = asyncio.ensure_future(asked)
    for _ in range(50):
        await asyncio.sleep(0)
    assert not begun.done()
    return begun


async def test_one_that_begins_to_wait_before_the_agent_has_looked_is_told(broker: Broker, member: Renewed) -> None:
    member.doubt()
    with pytest.raises(InDoubt):
        broker.bounds(KEY)
    waiting = await waits(broker.confirm(KEY))
    member.renew()
    async with asyncio.timeout(60):
        await waiting
    assert broker.bounds(KEY).epoch == 1


async def test_one_is_told_though_the_renewal_comes_as_the_time_of_the_session_passes(
    broker: Broker, member: Renewed
) -> None:
    # So that the guard has to look again soon.
    member.doubt()
    member.renew(lasts=0.2)
    for _ in range(50):
        await asyncio.sleep(0)
    assert member.session is not None
    # The event loop stands still until it has passed. Then, in one of its rounds: the call, the renewal, the guard.
    time.sleep(0.3)  # noqa: ASYNC251
    waiting = asyncio.ensure_future(broker.confirm(KEY))
    asyncio.get_running_loop().call_soon(member.renew)
    async with asyncio.timeout(60):
        await waiting
    assert broker.bounds(KEY).epoch == 1


async def call(broker: Broker, name: str) -> Any:
    """One call to the leader, and what it answers."""
    nowhere: Any = None
    service = LogService(broker, transport=nowhere, clock=CLOCK, source=random.Random(1), name="a")
    edges = EdgeService(broker, CLOCK)
    match name:
        case "ListOffsets":
            asked = api.ListOffsetsRequest(topic="orders", partitions=[0], local_only=True, max_timestamp=True)
            asked.time.FromMilliseconds(1)
            return await service.list_offsets(asked, Call())
        case "DeleteRecords":
            deletion = api.DeleteRecordsRequest(topic="orders", before_offset=-1, local_only=True)
            return await service.delete_records(deletion, Call())
        case "GetEdge":
            return await edges.get_edge(api.GetEdgeRequest(topic_uid=KEY.topic_uid), Call())
        case "ReadEdge":
            reading = api.ReadEdgeRequest(topic_uid=KEY.topic_uid, until_offset=1)
            return [one async for one in edges.read_edge(reading, Call())]
    (part,) = (await service.fetch(api.FetchRequest(parts=[api.FetchPart(topic_uid=KEY.topic_uid)]), Call())).parts
    if part.error_reason:
        assert part.error_reason == NOT_LEADER.name
        raise HeadgateError(NOT_LEADER, part.error_message)
    return part


CALLS = pytest.mark.parametrize("name", ["ListOffsets", "DeleteRecords", "GetEdge", "ReadEdge", "Fetch"])


@CALLS
async def test_a_call_to_the_leader_waits_and_is_answered(broker: Broker, member: Renewed, name: str) -> None:
    member.doubt()
    begun = await waits(call(broker, name))
    member.renew()
    async with asyncio.timeout(60):
        await begun


@CALLS
async def test_a_call_to_the_leader_is_refused_if_the_session_had_ended(
    broker: Broker, member: Renewed, name: str
) -> None:
    member.doubt()
    begun = await waits(call(broker, name))
    member.end()
    with pytest.raises(HeadgateError) as refused:
        async with asyncio.timeout(60):
            await begun
    assert refused.value.reason is NOT_LEADER
    with pytest.raises(NotLeader):
        broker.bounds(KEY)
