"""A broker looks over who should lead what by itself: what the watch did not wake it for is repaired in time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from headgate.catalog import v1 as catalog
from headgate.log import v1 as api
from headgate_agent.log.block_cache import BlockCache
from headgate_agent.log.broker import Broker, BrokerSettings, World
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.segment_reader import SegmentReader
from headgate_agent.log.tail import Memory
from headgate_agent.log.view import CatalogView
from headgate_agent.log.wal import Wal
from headgate_agent.work import Inline
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds
from tests.unit.log.test_partition import Files, Objects

KEY = PartitionKey("topic-1", 0)


class Alive:
    session = known = "session-1"

    @property
    def valid_until(self) -> float:
        return SystemClock().monotonic() + 100


class Granting:
    """A catalog that grants whatever is asked for."""

    async def once(self, method: str, request: Any) -> Any:
        assert method == "AcquirePartitions"
        return api.AcquirePartitionsResponse(
            partitions=[api.AcquiredPartition(partition=one, epoch=1) for one in request.partitions]
        )


@asynccontextmanager
async def running(relook: float) -> AsyncIterator[tuple[Broker, CatalogView]]:
    """A broker that has looked once, and found nothing to lead."""
    clock, source = SystemClock(), random.Random(1)
    coordinators: Any = None
    view = CatalogView(coordinators, clock=clock, source=source, backoff=Backoff())
    agent = catalog.Agent(name="a", address="a:1", roles=[catalog.AGENT_ROLE_LOG], present=True)
    view._state.put(catalog.Resource(agent=agent))
    view.revision = 1
    objects = Objects()
    world = World(
        wal=Wal(Files()),
        objects=objects,
        reader=SegmentReader(objects, BlockCache(1 << 20)),
        clock=clock,
        ids=RandomIds(source),
        source=source,
        memory=Memory(),
        work=Inline(),
        metrics=LogMetrics(CollectorRegistry()),
    )
    member: Any = Alive()
    granting: Any = Granting()
    broker = Broker(
        "a", "v", member=member, view=view, catalog=granting, world=world, settings=BrokerSettings(relook=relook)
    )
    await broker.open()
    task = asyncio.ensure_future(broker.run())
    try:
        # The guard has seen the session, and woken the broker for it.
        while broker._wake.is_set() or broker.session is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not broker.led
        yield broker, view
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await broker.close()


def miss(view: CatalogView) -> None:
    """A topic becomes known, and nobody is told."""
    view._state.put(catalog.Resource(topic=api.Topic(uid=KEY.topic_uid, name="orders", partitions=1)))


async def test_an_assignment_that_the_watch_did_not_wake_it_for_is_found_by_looking_again_alone() -> None:
    async with running(relook=0.05) as (broker, view):
        miss(view)
        async with asyncio.timeout(10):
            while KEY not in broker.led:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_nothing_else_wakes_a_broker_that_was_not_told() -> None:
    async with running(relook=3600.0) as (broker, view):
        miss(view)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                while KEY not in broker.led:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        for tell in view._listeners:
            tell()
        async with asyncio.timeout(10):
            while KEY not in broker.led:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
