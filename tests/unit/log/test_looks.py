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
from headgate_agent.log.wal import Wal, WalRefused
from headgate_agent.work import Inline
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds
from headgate_common.signals import Signal
from tests.unit.log.test_partition import Files, Objects

KEY = PartitionKey("topic-1", 0)


class Alive:
    session = known = "session-1"

    @property
    def valid_until(self) -> float:
        return SystemClock().monotonic() + 100

    async def news(self, seconds: float) -> bool:
        return await Signal().wait(seconds)


class Granting:
    """A catalog that grants whatever is asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def once(self, method: str, request: Any) -> Any:
        if method == "AnswerTransfers":
            return api.AnswerTransfersResponse()
        assert method == "AcquirePartitions"
        self.asked.append(len(request.partitions))
        return api.AcquirePartitionsResponse(
            partitions=[api.AcquiredPartition(partition=one, epoch=1) for one in request.partitions]
        )


@asynccontextmanager
async def running(relook: float, acquire_partitions: int = 500) -> AsyncIterator[tuple[Broker, CatalogView]]:
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
    settings = BrokerSettings(relook=relook, acquire_partitions=acquire_partitions)
    broker = Broker("a", "v", member=member, view=view, catalog=granting, world=world, settings=settings)
    await broker.open()
    task = asyncio.create_task(broker.run(), name="broker")
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


def miss(view: CatalogView, partitions: int = 1) -> None:
    """A topic becomes known, and nobody is told."""
    view._state.put(catalog.Resource(topic=api.Topic(uid=KEY.topic_uid, name="orders", partitions=partitions)))


async def test_an_assignment_that_the_watch_did_not_wake_it_for_is_found_by_looking_again_alone() -> None:
    async with running(relook=0.05) as (broker, view):
        miss(view)
        async with asyncio.timeout(60):
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
        async with asyncio.timeout(60):
            while KEY not in broker.led:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


async def test_no_more_partitions_are_asked_for_at_once_than_is_set() -> None:
    async with running(relook=0.05, acquire_partitions=2) as (broker, view):
        miss(view, partitions=5)
        async with asyncio.timeout(60):
            while len(broker.led) < 5:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        granting: Any = broker.catalog
        assert granting.asked == [2, 2, 1]


async def test_a_partition_that_is_given_up_while_the_disk_is_full_can_be_led_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refused(item: object) -> int:
        raise WalRefused("not written: no space left")

    async with running(relook=0.05) as (broker, view), asyncio.timeout(60):
        miss(view)
        while KEY not in broker.led:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        before = broker.led[KEY]
        monkeypatch.setattr(broker.world.wal, "append", refused)
        broker.retire(before, "it is another's")
        while broker.led.get(KEY) in (None, before):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not broker.retiring


async def test_a_broker_whose_guard_has_failed_ends_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = asyncio.Event()

    async def news(self: Alive, seconds: float) -> bool:
        await failing.wait()
        raise RuntimeError("a defect")

    monkeypatch.setattr(Alive, "news", news)
    async with running(relook=3600.0) as (_, view), asyncio.timeout(60):
        (task,) = [one for one in asyncio.all_tasks() if one.get_name() == "broker"]
        for tell in view._listeners:
            tell()
        await asyncio.sleep(0)
        assert not task.done()
        failing.set()
        with pytest.raises(RuntimeError, match="a defect"):
            await task


async def test_offers_that_were_answered_are_forgotten_when_the_catalog_has_ended_them() -> None:
    async with running(relook=3600.0) as (broker, view):
        for number in range(3):
            offer = api.Transfer(uid=f"transfer-{number}", to_agent="a", state=api.TRANSFER_STATE_PENDING)
            view._state.put(catalog.Resource(transfer=offer))
            broker._transfers.look({})
            assert broker._transfers._answered == {offer.uid}
            broker._transfers.look({})
            assert broker._transfers._answered == {offer.uid}, "it is answered once"
            view._state.drop(catalog.Resource(transfer=offer))
        broker._transfers.look({})
        assert not broker._transfers._answered
