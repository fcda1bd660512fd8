"""What an agent's answers change in the catalog: once, in order, and only if they are about what is current."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from sqlalchemy import insert, select

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog import agent_rows, fragments, query_states, story
from headgate_coordinator.catalog.agent_status import Applied, Asked, Run, apply_status, mark_unreachable
from headgate_coordinator.catalog.fragments import Changes, OpenFragment
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.schema import agents, fenced_incarnations, queries
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import INSUFFICIENT_CAPACITY
from tests.integration.cluster.kit import create_query, plan_of

T = TypeVar("T")

REGISTERED = catalog.FRAGMENT_STATE_REGISTERED
STARTED = catalog.FRAGMENT_STATE_STARTED
RUNNING = catalog.FRAGMENT_STATE_RUNNING
FAILED = catalog.FRAGMENT_STATE_FAILED
TERMINATED = catalog.FRAGMENT_STATE_TERMINATED


class Catalog:
    """One agent, `a`, whose process is `p1`, and helpers to look and to change."""

    def __init__(self, store: InlineStore) -> None:
        self.store = store
        self.uids: dict[str, str] = {}

    async def write(self, operation: Callable[[Tx], T]) -> T:
        return await self.store.write(operation)

    async def add_agent(self, name: str, slots: int = 10, incarnation: str = "p1") -> str:
        def add(tx: Tx) -> str:
            uid = agent_rows.insert_agent(
                tx,
                name=name,
                address=f"{name}:1",
                slots=slots,
                zone="",
                group="",
                labels={},
                roles=("FRAGMENTS", "LOG"),
                has_engine=True,
                incarnation=incarnation,
            )
            agent_rows.update_agent(tx, uid, state="ACTIVE")
            return uid

        self.uids[name] = await self.write(add)
        return self.uids[name]

    async def create(self, name: str, *where: str, **options: Any) -> str:
        return await self.write(lambda tx: create_query(tx, plan_of(*where, **options), name))

    async def status(
        self,
        *reported: tuple[str, int, int],
        agent: str = "a",
        asked: str = "p1",
        process: str = "p1",
        full: bool = False,
        revision: int | None = None,
        error: cluster.FragmentError | None = None,
        forgotten: tuple[str, ...] = (),
        waiting: str = "",
    ) -> Applied:
        answer = cluster.GetStatusResponse(
            incarnation=process,
            version=1,
            full=full,
            forgotten=forgotten,
            fragments=[
                cluster.FragmentStatus(
                    fragment=cluster.FragmentRef(uid=uid, epoch=epoch),
                    state=state,
                    error=error,  # type: ignore[arg-type]
                    waiting=waiting,
                )
                for uid, epoch, state in reported
            ],
        )
        known = self.store.changes.position if revision is None else revision
        return await self.write(lambda tx: apply_status(tx, self.uids[agent], Asked(asked, known), answer))

    async def fragments(self, query_uid: str) -> list[OpenFragment]:
        return await self.store.read(lambda tx: fragments.fragments_of(tx, query_uid))

    async def state(self, query_uid: str) -> str:
        return await self.store.read(
            lambda tx: tx.connection.execute(select(queries.c.state).where(queries.c.uid == query_uid)).scalar_one()
        )

    async def slots(self) -> dict[str, int]:
        return await self.store.read(
            lambda tx: {r.name: r.slots_used for r in tx.connection.execute(select(agents.c.name, agents.c.slots_used))}
        )

    async def run(self, query_uid: str) -> None:
        """As if everything had been deployed."""

        def up(tx: Tx) -> None:
            changes = Changes(tx)
            for fragment in fragments.fragments_of(tx, query_uid):
                changes.set(fragment, state="REGISTERED", incarnation="p1")
                changes.set(fragment, state="RUNNING")
            changes.flush()
            query = query_states.open_query(tx, query_uid)
            assert query is not None
            query.set_state("DEPLOYING", "test")
            query.set_state("RUNNING", "test")

        await self.write(up)


@pytest.fixture
def data() -> Iterator[Catalog]:
    database = InlineDatabase()
    yield Catalog(InlineStore(database, clock=SystemClock(), ids=RandomIds()))
    database.close()


async def test_slots_are_reserved_with_the_query_and_the_agent_without_room_is_named(data: Catalog) -> None:
    await data.add_agent("a", slots=5)
    await data.add_agent("b", slots=1)
    await data.create("one", "a", "b", "a")
    assert await data.slots() == {"a": 2, "b": 1}
    with pytest.raises(HeadgateError) as caught:
        await data.create("two", "a", "b", "a")
    assert caught.value.reason is INSUFFICIENT_CAPACITY and caught.value.metadata["agent"] == "b"
    assert await data.slots() == {"a": 2, "b": 1}, "what was refused reserved nothing"


async def test_slots_go_back_once_however_often_a_fragment_is_said_to_be_gone(data: Catalog) -> None:
    await data.add_agent("a")
    uid = await data.create("q", "a")

    def gone(tx: Tx) -> None:
        changes = Changes(tx)
        for _ in range(3):
            for fragment in fragments.fragments_of(tx, uid):
                changes.gone(fragment, "test")
            changes.flush()

    await data.write(gone)
    await data.write(gone)
    assert await data.slots() == {"a": 0}
    assert [(one.state, one.slots_held) for one in await data.fragments(uid)] == [("STOPPED", False)] * 3


async def test_a_move_takes_the_slots_along(data: Catalog) -> None:
    await data.add_agent("a")
    await data.add_agent("b")
    uid = await data.create("q", "a")

    def move(tx: Tx) -> None:
        changes = Changes(tx)
        target = tx.connection.execute(select(agents).where(agents.c.name == "b")).one()
        changes.new_epoch(fragments.fragments_of(tx, uid)[1], "test", to=target)
        changes.flush()

    await data.write(move)
    assert await data.slots() == {"a": 2, "b": 1}
    moved = (await data.fragments(uid))[1]
    assert (moved.agent_name, moved.epoch, moved.state, moved.slots_held) == ("b", 2, "PENDING", True)


async def test_the_same_answer_twice_changes_nothing_the_second_time(data: Catalog) -> None:
    await data.add_agent("a")
    uid = await data.create("q", "a")
    reported = [(one.uid, 1, RUNNING) for one in await data.fragments(uid)]
    await data.status(*reported)
    assert {one.state for one in await data.fragments(uid)} == {"RUNNING"}
    revision = data.store.changes.position
    assert await data.status(*reported) == Applied(True)
    assert data.store.changes.position == revision


async def test_an_older_state_never_replaces_a_newer_one(data: Catalog) -> None:
    await data.add_agent("a")
    uid = await data.create("q", "a")
    one = (await data.fragments(uid))[0].uid
    await data.status((one, 1, RUNNING))
    for older in (REGISTERED, STARTED):
        await data.status((one, 1, older))
        assert (await data.fragments(uid))[0].state == "RUNNING"
    await data.status((one, 1, TERMINATED))
    await data.status((one, 1, RUNNING))
    assert (await data.fragments(uid))[0].state == "TERMINATED"


async def test_answers_about_another_epoch_or_from_another_agent_are_zombies(data: Catalog) -> None:
    await data.add_agent("a")
    await data.add_agent("b")
    uid = await data.create("q", "a")
    first = (await data.fragments(uid))[0]
    assert (await data.status((first.uid, 2, RUNNING))).zombies == (Run(first.uid, 2),)
    assert (await data.status((first.uid, 1, RUNNING), agent="b")).zombies == (Run(first.uid, 1),)
    assert (await data.status(("fragment-unknown", 4, RUNNING))).zombies == (Run("fragment-unknown", 4),)
    assert (await data.fragments(uid))[0].state == "PENDING"


async def test_an_answer_is_dropped_if_the_agent_is_another_process_by_now(data: Catalog) -> None:
    await data.add_agent("a", incarnation="p2")
    uid = await data.create("q", "a")
    one = (await data.fragments(uid))[0].uid
    applied = await data.status((one, 1, RUNNING), asked="p1", process="p1")
    assert not applied.accepted
    assert (await data.fragments(uid))[0].state == "PENDING"


async def test_a_shut_out_process_stays_out_and_all_it_has_is_to_be_stopped(data: Catalog) -> None:
    await data.add_agent("a", incarnation="")
    await data.write(
        lambda tx: tx.connection.execute(insert(fenced_incarnations).values(incarnation="p1", agent_name="a", time=0))
    )
    applied = await data.status(("fragment-x", 3, RUNNING), asked="")
    assert not applied.accepted and applied.zombies == (Run("fragment-x", 3),)


async def test_what_a_full_answer_lacks_gets_a_new_epoch_and_its_query_goes_back(data: Catalog) -> None:
    await data.add_agent("a")
    uid = await data.create("q", "a")
    await data.run(uid)
    kept = (await data.fragments(uid))[0]
    await data.status((kept.uid, 1, RUNNING), full=True)
    assert [(one.state, one.epoch) for one in await data.fragments(uid)] == [
        ("RUNNING", 1),
        ("PENDING", 2),
        ("PENDING", 2),
    ]
    assert await data.state(uid) == "DEPLOYING"
    assert await data.slots() == {"a": 3}


async def test_what_was_confirmed_after_the_question_is_not_judged_missing(data: Catalog) -> None:
    await data.add_agent("a")
    uid = await data.create("q", "a")
    before = data.store.changes.position
    await data.run(uid)
    applied = await data.status(full=True, revision=before)
    assert not applied.settled, "everything must be asked for again"
    assert {one.state for one in await data.fragments(uid)} == {"RUNNING"}
    assert await data.state(uid) == "RUNNING"


async def test_what_an_agent_forgot_unasked_gets_a_new_epoch(data: Catalog) -> None:
    await data.add_agent("a")
    uid = await data.create("q", "a")
    await data.run(uid)
    one = (await data.fragments(uid))[1].uid
    await data.status(forgotten=(one, "fragment-unknown"))
    assert [(one.state, one.epoch) for one in await data.fragments(uid)][1] == ("PENDING", 2)
    assert await data.state(uid) == "DEPLOYING"


async def test_what_is_reported_is_not_missing_though_an_earlier_run_of_it_was_forgotten(data: Catalog) -> None:
    await data.add_agent("a")
    uid = await data.create("q", "a")
    await data.run(uid)
    one = (await data.fragments(uid))[1].uid
    await data.status((one, 1, RUNNING), forgotten=(one,))
    assert (await data.fragments(uid))[1].epoch == 1


@pytest.mark.parametrize(("reported", "state"), [(RUNNING, "RUNNING"), (STARTED, "STARTED")])
async def test_a_restarted_process_that_has_the_fragment_keeps_its_epoch(
    data: Catalog, reported: int, state: str
) -> None:
    await data.add_agent("a")
    uid = await data.create("q", "a")
    await data.run(uid)
    await data.status(
        *((one.uid, 1, reported) for one in await data.fragments(uid)), asked="p1", process="p2", full=True
    )
    assert {(one.state, one.epoch, one.incarnation) for one in await data.fragments(uid)} == {(state, 1, "p2")}
    assert await data.state(uid) == "DEPLOYING"


async def test_what_a_started_run_waits_for_is_noted_once_and_ends_with_its_state(data: Catalog) -> None:
    await data.add_agent("a")
    uid = await data.create("q", "a")
    one = (await data.fragments(uid))[1].uid
    await data.status((one, 1, STARTED), waiting="the engine is warming up")
    assert (await data.fragments(uid))[1].waiting == "the engine is warming up"
    revision = data.store.changes.position
    await data.status((one, 1, STARTED), waiting="the engine is warming up")
    assert data.store.changes.position == revision, "what is known is no revision"
    await data.status((one, 1, STARTED), waiting="the engine has no slot free")
    assert (await data.fragments(uid))[1].waiting == "the engine has no slot free"
    await data.status((one, 1, RUNNING))
    found = (await data.fragments(uid))[1]
    assert (found.state, found.waiting) == ("RUNNING", "")
    await data.status((one, 1, STARTED), waiting="late")
    assert (await data.fragments(uid))[1].waiting == "", "an answer that is late says nothing of what runs"


async def test_a_failure_that_may_pass_takes_the_query_back_and_one_for_good_takes_it_down(data: Catalog) -> None:
    await data.add_agent("a")
    for name, transient, state in (("passes", True, "DEPLOYING"), ("breaks", False, "STOPPING")):
        uid = await data.create(name, "a")
        await data.run(uid)
        error = cluster.FragmentError(reason="BROKEN", message="it broke", transient=transient)
        await data.status(((await data.fragments(uid))[1].uid, 1, FAILED), error=error)
        assert await data.state(uid) == state
        assert (await data.fragments(uid))[1].last_error == "BROKEN: it broke"


async def test_marking_an_agent_unreachable_touches_its_own_queries_only_and_is_one_revision(data: Catalog) -> None:
    await data.add_agent("a")
    await data.add_agent("b")
    concerned = [await data.create(f"q{number}", "a", "b", "b") for number in range(3)]
    other = await data.create("other", "b")
    for uid in (*concerned, other):
        await data.run(uid)
    revision = data.store.changes.position
    assert await data.write(lambda tx: mark_unreachable(tx, data.uids["a"], "no answer"))
    assert data.store.changes.position == revision + 1
    assert [await data.state(uid) for uid in (*concerned, other)] == ["DEPLOYING"] * 3 + ["RUNNING"]
    entry = (await data.store.read(lambda tx: story.entries_of(tx, concerned[0], (revision, -1), 10)))[0][1]
    assert entry.cause == "agent a is unreachable: no answer" and entry.revision == revision + 1
    assert not await data.write(lambda tx: mark_unreachable(tx, data.uids["a"], "no answer"))
    assert data.store.changes.position == revision + 1


async def test_every_change_of_a_fragment_is_in_the_history_with_what_was_before(data: Catalog) -> None:
    await data.add_agent("a")
    uid = await data.create("q", "a")
    one = (await data.fragments(uid))[0]
    with data.store.changes.subscribe() as changes:
        await data.status((one.uid, 1, RUNNING))
        revision = changes.get_nowait()
    assert revision is not None
    (change,) = [change for change in revision.changes if change.kind == "FRAGMENT"]
    assert isinstance(change.before, catalog.Fragment) and isinstance(change.after, catalog.Fragment)
    assert (change.before.state, change.after.state) == (catalog.FRAGMENT_STATE_PENDING, RUNNING)
    assert change.after.revision == revision.number and change.after.query_uid == uid


async def test_stories_of_deleted_queries_are_forgotten_in_time_and_others_are_not(data: Catalog) -> None:
    await data.add_agent("a")
    kept, gone = await data.create("kept", "a"), await data.create("gone", "a")

    def drop(tx: Tx) -> None:
        query = query_states.open_query(tx, gone)
        assert query is not None
        query.set_state("STOPPING", "test")
        changes = Changes(tx)
        for fragment in fragments.fragments_of(tx, gone):
            changes.gone(fragment, "test")
        changes.flush()
        query.set_state("STOPPED", "test")
        fragments.delete_query(tx, gone)

    await data.write(drop)
    assert await data.store.read(lambda tx: story.finished(tx, 3600.0, 10)) == []
    old = await data.store.read(lambda tx: story.finished(tx, -1.0, 10))
    assert old == [gone]
    await data.write(lambda tx: story.forget(tx, old))
    assert not await data.store.read(lambda tx: story.known(tx, gone))
    assert await data.store.read(lambda tx: story.known(tx, kept))
