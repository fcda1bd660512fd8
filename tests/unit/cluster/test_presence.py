"""Sessions of agents: renewed in memory, ended in the catalog."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog import agents, registration, sessions
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.store import LEADER_KEY, LEADER_KIND
from headgate_coordinator.cluster.presence import Presence
from headgate_coordinator.errors import NOT_LEADER, SESSION_EXPIRED


@pytest.fixture
async def store() -> AsyncIterator[InlineStore]:
    database = InlineDatabase()
    store = InlineStore(database, clock=SystemClock(), ids=RandomIds())

    def lead(tx: object) -> None:
        leader = sessions.open_session(tx, "coordinator", "c:1", 60.0)  # type: ignore[arg-type]
        sessions.acquire(tx, LEADER_KIND, LEADER_KEY, leader.uid)  # type: ignore[arg-type]

    await store.write(lead)
    yield store
    await store.close()
    database.close()


class Hands:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return datetime.now(UTC)


_numbers = itertools.count(1)


async def opened(store: InlineStore, ttl: float = 0.3) -> str:
    """The session of another agent."""
    number = next(_numbers)
    request = cluster.RegisterAgentRequest(
        name=f"a{number}", address=f"a{number}:1", incarnation=f"p{number}", slots=1, protocol_version=1
    )
    return (await store.write(lambda tx: registration.register_agent(tx, request, ttl))).session.uid


async def alive(store: InlineStore) -> list[str]:
    return [one.uid for one in await store.read(sessions.list_sessions) if one.holder.startswith("agent/")]


async def test_a_session_that_is_renewed_lives_and_one_that_is_not_ends_with_its_grants(store: InlineStore) -> None:
    clock = Hands()
    presence = Presence(store, clock=clock, interval=0.001)
    running = asyncio.create_task(presence.run(1))
    await asyncio.sleep(0)
    kept, lost = await opened(store), await opened(store)
    await store.write(lambda tx: sessions.acquire(tx, "partition", "p/0", lost))
    for _ in range(16):
        assert (await presence.renew(kept)).ttl == 0.3
        clock.now += 0.05
        await asyncio.sleep(0.002)
    for _ in range(10_000):
        if lost not in await alive(store):
            break
        await asyncio.sleep(0.002)
    assert await alive(store) == [kept]
    grant = await store.read(lambda tx: sessions.get_grant(tx, "partition", "p/0"))
    assert grant is not None and (grant.session, grant.epoch) == ("", 1)
    with pytest.raises(HeadgateError) as caught:
        await presence.renew(lost)
    assert caught.value.reason is SESSION_EXPIRED
    running.cancel()


async def test_a_new_leader_gives_every_session_its_full_ttl(store: InlineStore) -> None:
    session = await opened(store, ttl=0.5)
    await asyncio.sleep(0.6)
    presence = Presence(store, clock=SystemClock(), interval=0.05)
    running = asyncio.create_task(presence.run(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0.2)
    assert await alive(store) == [session]
    assert (await presence.renew(session)).ttl == 0.5
    running.cancel()


async def test_who_does_not_lead_renews_nothing(store: InlineStore) -> None:
    presence = Presence(store, clock=SystemClock(), interval=0.05)
    with pytest.raises(HeadgateError) as caught:
        await presence.renew(await opened(store))
    assert caught.value.reason is NOT_LEADER


async def test_a_renewal_that_comes_while_the_session_is_being_ended_is_too_late(store: InlineStore) -> None:
    presence = Presence(store, clock=SystemClock(), interval=0.02)
    session = await opened(store, ttl=0.1)
    running = asyncio.create_task(presence.run(1))
    await asyncio.sleep(0)
    ending, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        ending.set()
        await go_on.wait()

    store.before_commit = hold
    await asyncio.wait_for(ending.wait(), 60)
    with pytest.raises(HeadgateError) as caught:
        await presence.renew(session)
    assert caught.value.reason is SESSION_EXPIRED
    go_on.set()
    store.before_commit = None
    await asyncio.sleep(0.1)
    assert await alive(store) == []
    running.cancel()


async def test_the_session_of_a_dropped_agent_cannot_be_renewed_and_runs_out_with_its_grants(
    store: InlineStore,
) -> None:
    presence = Presence(store, clock=SystemClock(), interval=0.02)
    session = await opened(store, ttl=0.2)
    await store.write(lambda tx: sessions.acquire(tx, "group", "g", session))
    running = asyncio.create_task(presence.run(1))
    await asyncio.sleep(0.05)
    await presence.renew(session)
    (agent,) = (await store.read(lambda tx: agents.list_agents(tx, catalog.ListAgentsRequest()))).agents
    await store.write(lambda tx: agents.drop_agent(tx, catalog.DropAgentRequest(name=agent.name)))
    assert await alive(store) == [session], "its process may act under it"
    await asyncio.sleep(0.05)
    with pytest.raises(HeadgateError) as caught:
        await presence.renew(session)
    assert caught.value.reason is SESSION_EXPIRED
    await asyncio.sleep(0.5)
    assert await alive(store) == []
    grant = await store.read(lambda tx: sessions.get_grant(tx, "group", "g"))
    assert grant is not None and grant.session == ""
    running.cancel()


async def test_the_leaders_own_session_is_left_alone(store: InlineStore) -> None:
    presence = Presence(store, clock=SystemClock(), interval=0.02)
    await store.write(lambda tx: tx.connection.exec_driver_sql("UPDATE sessions SET ttl_us = 1000"))
    running = asyncio.create_task(presence.run(1))
    await asyncio.sleep(0)
    await asyncio.sleep(0.2)
    assert len(await store.read(sessions.list_sessions)) == 1
    running.cancel()


async def test_agents_renew_in_groups_that_are_spread_evenly_and_never_later_than_they_should(
    store: InlineStore,
) -> None:
    clock = Hands()
    presence = Presence(store, clock=clock, interval=60.0)
    running = asyncio.create_task(presence.run(1))
    await asyncio.sleep(0)
    due = {await opened(store, ttl=6.0): 1000.0 + 0.01 * number for number in range(100)}
    moments: dict[str, list[float]] = {uid: [] for uid in due}
    while clock.now < 1020.0:
        uid = min(due, key=lambda one: due[one])
        # Answers and timers are a little late, and clocks of agents go a little fast or slow.
        clock.now = max(clock.now, due[uid] + 0.003)
        renewed = await presence.renew(uid)
        assert 0 < renewed.renew_after <= 2.1, "a third of the TTL, and what a group may be early"
        due[uid] = clock.now + renewed.renew_after * (0.99 if uid < "n" else 1.0)
        moments[uid].append(clock.now)
    last = [seen[-2:] for seen in moments.values()]
    assert all(1.9 <= later - earlier <= 2.1 for earlier, later in last)
    groups = Counter(round(later % 2.0 / 0.5) % 4 for _, later in last)
    assert len(groups) == 4 and min(groups.values()) >= 10, groups
    running.cancel()


@pytest.mark.slow
async def test_many_agents_make_more_groups_not_larger_ones(store: InlineStore) -> None:
    clock = Hands()
    presence = Presence(store, clock=clock, interval=60.0)
    running = asyncio.create_task(presence.run(1))
    await asyncio.sleep(0)
    uids = [await opened(store, ttl=6.0) for _ in range(600)]
    groups = Counter([round((await presence.renew(uid)).renew_after, 6) for uid in uids])
    assert len(groups) == 12 and max(groups.values()) <= 100, groups
    running.cancel()
