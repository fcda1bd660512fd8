"""Who leads: two coordinators on one catalog, with clocks that the test moves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog import sessions
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.store import LEADER_KEY, LEADER_KIND
from headgate_coordinator.cluster.leadership import Leadership
from headgate_coordinator.config import Timings
from headgate_coordinator.errors import CATALOG_UNAVAILABLE, NOT_LEADER

TIMINGS = Timings(leader_ttl=0.4, leader_renew=0.1, leader_margin=0.1)


class JumpingClock(SystemClock):
    """Its wall time, which is the catalog's, is wherever the test puts it."""

    offset = timedelta()

    def wall(self) -> datetime:
        return datetime.now(UTC) + self.offset


class Coordinator:
    def __init__(self, database: InlineDatabase, name: str, timings: Timings = TIMINGS, sole: bool = False) -> None:
        self.clock = JumpingClock()
        self.store = InlineStore(database, clock=self.clock, ids=RandomIds())
        self.terms: list[int] = []
        self.acting = 0
        self.leadership = Leadership(
            self.store,
            clock=self.clock,
            source=random.Random(name),
            timings=timings,
            holder=name,
            address=f"{name}:1",
            lead=self._lead,
            sole=sole,
        )
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.leadership.run())

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait((self.task,))

    def kill(self) -> None:
        """As SIGKILL: nothing is said, nothing is written."""
        self.store.crash()
        if self.task is not None:
            self.task.cancel()

    async def _lead(self, term: int) -> None:
        self.terms.append(term)
        self.acting = term
        try:
            await asyncio.Event().wait()
        finally:
            self.acting = 0


@asynccontextmanager
async def coordinators(*names: str, **options: object) -> AsyncIterator[list[Coordinator]]:
    database = InlineDatabase()
    made = [Coordinator(database, name, **options) for name in names]  # type: ignore[arg-type]
    try:
        yield made
    finally:
        for one in made:
            await one.stop()
        database.close()


async def until(condition: object, seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # type: ignore[operator]  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.005)


@pytest.mark.slow
async def test_the_first_leads_at_once_and_the_second_points_to_it() -> None:
    async with coordinators("one", "two") as (one, two):
        one.start()
        await until(lambda: one.leadership.term == 1)
        two.start()
        await until(lambda: two.leadership.leader.address == "one:1")
        await asyncio.sleep(1.0)
        assert one.leadership.term == 1 and two.leadership.term is None
        with pytest.raises(HeadgateError) as caught:
            two.leadership.require_term()
        assert caught.value.reason is NOT_LEADER and caught.value.metadata["leader"] == "one:1"


async def test_a_leader_that_is_killed_is_followed_with_a_higher_term_after_its_ttl() -> None:
    async with coordinators("one", "two") as (one, two):
        one.start()
        await until(lambda: one.leadership.term == 1)
        two.start()
        await until(lambda: two.leadership.leader.term == 1)
        one.kill()
        began = asyncio.get_running_loop().time()
        await until(lambda: two.acting == 2)
        assert asyncio.get_running_loop().time() - began >= TIMINGS.leader_ttl * 0.6, "nobody waited for the TTL"


async def test_a_leader_that_goes_hands_over_without_the_ttl_being_waited_for() -> None:
    async with coordinators("one", "two", timings=replace(TIMINGS, leader_ttl=3.0)) as (one, two):
        one.start()
        await until(lambda: one.leadership.term == 1)
        two.start()
        await until(lambda: two.leadership.leader.term == 1)
        await one.stop()
        await until(lambda: two.acting == 2, seconds=2.5)


async def test_a_leader_that_cannot_reach_the_catalog_stops_acting_before_anyone_may_follow() -> None:
    async with coordinators("one", "two") as (one, two):
        one.start()
        await until(lambda: one.acting == 1)
        two.start()
        await until(lambda: two.leadership.leader.term == 1)

        async def fail() -> None:
            raise HeadgateError(CATALOG_UNAVAILABLE, "cut off")

        one.store.before_commit = fail
        while two.acting == 0:
            await asyncio.sleep(0.002)
            assert not (one.acting and two.acting), "two coordinators acted at the same time"
        assert one.acting == 0 and one.leadership.term is None


async def test_a_leader_that_hangs_in_the_catalog_stops_acting_by_its_own_clock() -> None:
    async with coordinators("one") as (one,):
        one.start()
        await until(lambda: one.acting == 1)
        gate = asyncio.Event()
        one.store.before_commit = gate.wait  # type: ignore[assignment]
        await until(lambda: one.acting == 0)
        assert one.leadership.term is None
        gate.set()
        await until(lambda: one.acting >= 2)


@pytest.mark.slow
async def test_the_wall_clock_decides_nothing() -> None:
    async with coordinators("one", "two") as (one, two):
        one.start()
        await until(lambda: one.leadership.term == 1)
        two.start()
        await until(lambda: two.leadership.leader.term == 1)
        for days in (-400, 400, 0):
            for coordinator in (one, two):
                coordinator.clock.offset = timedelta(days=days)
            await asyncio.sleep(0.6)
            assert one.leadership.term == 1 and two.leadership.term is None
        one.clock.offset = two.clock.offset = timedelta(days=-4000)
        one.kill()
        await until(lambda: two.acting == 2)


async def test_alone_on_its_store_a_restarted_coordinator_leads_at_once() -> None:
    async with coordinators("one", timings=replace(TIMINGS, leader_ttl=60.0)) as (one,):
        one.start()
        await until(lambda: one.leadership.term == 1)
        one.kill()
        again = Coordinator(one.store.database, "one", replace(TIMINGS, leader_ttl=60.0), sole=True)
        again.start()
        await until(lambda: again.leadership.term == 2, seconds=2)
        await again.stop()


async def test_with_others_around_a_restarted_coordinator_waits_like_anyone() -> None:
    async with coordinators("one") as (one,):
        one.start()
        await until(lambda: one.leadership.term == 1)
        one.kill()
        again = Coordinator(one.store.database, "one")
        began = asyncio.get_running_loop().time()
        again.start()
        await until(lambda: again.leadership.term == 2)
        assert asyncio.get_running_loop().time() - began >= TIMINGS.leader_ttl
        await again.stop()


async def test_a_write_of_a_term_that_is_over_changes_nothing() -> None:
    async with coordinators("one", "two") as (one, two):
        one.start()
        await until(lambda: one.leadership.term == 1)
        one.kill()
        two.start()
        await until(lambda: two.leadership.term == 2)
        store = InlineStore(one.store.database, clock=SystemClock(), ids=RandomIds())
        with pytest.raises(HeadgateError) as caught:
            await store.write(lambda tx: sessions.open_session(tx, "late", "late:1", 1.0), 1)
        assert caught.value.reason is NOT_LEADER
        assert "late" not in [s.holder for s in await store.read(sessions.list_sessions)]


async def test_a_defect_in_the_controllers_ends_the_term_and_leads_to_the_next() -> None:
    async with coordinators("one") as (one,):
        fine = one.leadership._lead

        async def broken(term: int) -> None:
            if term == 1:
                raise RuntimeError("a defect")
            await fine(term)

        one.leadership._lead = broken
        one.start()
        await until(lambda: one.acting >= 2)
        grant = await one.store.read(lambda tx: sessions.get_grant(tx, LEADER_KIND, LEADER_KEY))
        assert grant is not None and grant.epoch == one.acting


async def test_a_leader_whose_catalog_was_put_back_leads_above_the_term_that_agents_obey() -> None:
    async with coordinators("one") as (one,):
        one.start()
        await until(lambda: one.leadership.term == 1)
        one.leadership.surpassed(41)
        await until(lambda: one.leadership.term == 42)
        one.leadership.surpassed(7)
        one.leadership.surpassed(2**62)
        await asyncio.sleep(0.3)
        assert one.leadership.term == 42, "neither an old term nor an absurd one ends a term"


async def test_a_leader_that_lost_the_lead_does_not_name_itself() -> None:
    async with coordinators("one") as (one,):
        one.start()
        await until(lambda: one.leadership.term == 1)
        # Its own former session stays in the catalog, as if it could not be closed.
        one.store.crash()
        await until(lambda: one.leadership.term is None)
        with pytest.raises(HeadgateError, match="no coordinator leads now"):
            one.leadership.require_term()
        await until(lambda: one.leadership.leader.address == "")
