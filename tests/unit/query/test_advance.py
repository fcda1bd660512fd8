"""One look inside a transaction: what agents are told, and what follows when the leader of an edge moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

import pytest
from sqlalchemy import select

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.log import v1 as log
from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog import agent_rows, fragments, query_states
from headgate_coordinator.catalog.agent_status import mark_unreachable
from headgate_coordinator.catalog.fragments import Changes, OpenFragment
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.log import edge_topics
from headgate_coordinator.catalog.log.schema import topics
from headgate_coordinator.catalog.starts import keep_starts
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.query.advance import Look, advance, look
from headgate_coordinator.query.case import Memory
from headgate_coordinator.query.views import Register
from tests.integration.cluster.kit import choose_agent, create_query, plan_of

T = TypeVar("T")


class Data:
    """Agents a to d that answer, and a query whose sink can be on any of them."""

    def __init__(self, store: InlineStore) -> None:
        self.store = store
        self.agents: dict[str, str] = {}
        self.uid = ""

    async def write(self, operation: Callable[[Tx], T]) -> T:
        return await self.store.write(operation)

    async def add_agent(self, name: str) -> None:
        def add(tx: Tx) -> str:
            uid = agent_rows.insert_agent(
                tx,
                name=name,
                address=f"{name}:1",
                slots=10,
                zone="",
                group="",
                labels={},
                roles=("FRAGMENTS", "LOG"),
                has_engine=True,
                incarnation=f"process-{name}",
            )
            agent_rows.update_agent(tx, uid, state="ACTIVE")
            return uid

        self.agents[name] = await self.write(add)

    async def create(self, *where: str, **options: Any) -> None:
        self.uid = await self.write(lambda tx: create_query(tx, plan_of(*where, **options), "q"))

    async def advance(self, lost: str = "", **memory: Any) -> Look:
        remembered = Memory(lost=frozenset(self.agents[name] for name in lost), **memory)
        return await self.write(lambda tx: advance(tx, self.uid, remembered, (), choose_agent))

    async def set(self, ordinal: int, **values: Any) -> None:
        def change(tx: Tx) -> None:
            changes = Changes(tx)
            changes.set(fragments.fragments_of(tx, self.uid)[ordinal - 1], "test", **values)
            changes.flush()

        await self.write(change)

    async def run(self) -> None:
        """As if everything had been deployed."""
        await self.advance()
        for state in ("REGISTERED", "STARTED", "RUNNING"):
            for ordinal in (1, 2, 3):
                await self.set(ordinal, state=state)
        await self.advance()

    async def lose(self, *names: str) -> None:
        for name in names:
            await self.write(lambda tx, name=name: mark_unreachable(tx, self.agents[name], "no answer"))  # type: ignore[misc]

    async def fragments(self) -> list[OpenFragment]:
        return await self.store.read(lambda tx: fragments.fragments_of(tx, self.uid))

    async def pinned(self) -> dict[str, str]:
        """Agents by the end of the topic's name."""
        found = await self.store.read(lambda tx: list(tx.connection.execute(select(topics))))
        return {row.name.removeprefix("__headgate.").replace(f"{self.uid}.", ""): row.pinned_agent for row in found}


@pytest.fixture
async def data() -> AsyncIterator[Data]:
    database = InlineDatabase()
    store = InlineStore(database, clock=SystemClock(), ids=RandomIds())
    made = Data(store)
    for name in "abcd":
        await made.add_agent(name)
    yield made
    await store.close()
    database.close()


def registrations(found: Look) -> dict[int, cluster.RegisterFragmentRequest]:
    return {
        command.ordinal: command.registration
        for command in found.commands
        if isinstance(command.call, Register) and command.registration is not None
    }


def leaders(request: cluster.RegisterFragmentRequest) -> dict[str, tuple[str, str]]:
    """Of each topic that a registration tells of: its leader, and where that is."""
    told = {f"edge {topic.edge}": (topic.agent, topic.address) for topic in request.topics}
    return told | ({"errors": (request.errors.agent, request.errors.address)} if request.HasField("errors") else {})


async def test_a_registration_tells_where_topics_begin_once_that_is_kept(data: Data) -> None:
    await data.create("a", "b", "c")
    told = registrations(await data.advance())
    assert [list(request.plan.compute.starts) for request in told.values()] == [[], [], []]
    start = catalog.TopicStart(physical_source="orders", offsets=[5])
    request = cluster.KeepStartsRequest(uid=told[2].fragment.uid, epoch=1, starts=[start])
    await data.write(lambda tx: keep_starts(tx, request))
    again = registrations(await data.advance())
    assert [list(request.plan.compute.starts) for request in again.values()] == [[], [start], []]
    assert [request.plan.WhichOneof("body") for request in again.values()] == ["source", "compute", "sink"]


async def test_a_registration_tells_which_topics_its_edges_are_and_where_their_leaders_are(data: Data) -> None:
    await data.create("a", "b", "c")
    told = registrations(await data.advance())
    assert {ordinal: leaders(request) for ordinal, request in told.items()} == {
        1: {"edge 1": ("a", "a:1"), "errors": ("a", "a:1")},
        2: {"edge 1": ("a", "a:1"), "edge 2": ("c", "c:1"), "errors": ("c", "c:1")},
        3: {"edge 2": ("c", "c:1")},
    }
    rows = await data.store.read(lambda tx: {row.name: row for row in tx.connection.execute(select(topics))})
    for ordinal, request in told.items():
        assert [topic.edge for topic in request.topics] == [edge.ordinal for edge in request.edges]
        names = [edge_topics.edge_topic(data.uid, topic.edge) for topic in request.topics]
        given = list(request.topics)
        if request.HasField("errors"):
            assert request.errors.edge == 0
            names.append(edge_topics.error_topic(data.uid, ordinal))
            given.append(request.errors)
        assert [(topic.topic, topic.topic_uid, topic.partitions) for topic in given] == [
            (name, rows[name].uid, 1) for name in names
        ]
        assert request.mode == catalog.QUERY_MODE_EXACTLY_ONCE


async def test_a_registration_tells_where_the_topic_of_an_edge_on_kafka_is(data: Data) -> None:
    options = {"bootstrap_servers": "k:9092", "sasl_password": "p"}
    await data.create("a", "b", "c", kafka=options)
    told = registrations(await data.advance())
    for ordinal, request in told.items():
        assert [topic.edge for topic in request.topics] == [edge.ordinal for edge in request.edges]
        for topic in request.topics:
            assert (topic.topic, topic.topic_uid) == (edge_topics.edge_topic(data.uid, topic.edge), "")
            assert (dict(topic.kafka), topic.partitions, topic.address) == (options, 1, "")
        assert request.HasField("errors") is (ordinal < 3), "error rows are in the log, as ever"


async def test_a_look_that_changes_nothing_tells_the_same(data: Data) -> None:
    await data.create("a", "b", "c")
    told = registrations(await data.advance())
    seen = await data.store.read(lambda tx: look(tx, data.uid, Memory()))
    assert registrations(seen) == told


async def test_when_the_leader_of_an_edge_moves_its_topics_follow_and_whoever_knew_it_is_told_anew(data: Data) -> None:
    await data.create("a", "b", "c", sink_moves=True)
    await data.run()
    assert await data.pinned() == {"edge.1": "a", "errors.1": "a", "edge.2": "c", "errors.2": "c"}
    await data.lose("c")
    with data.store.changes.subscribe() as changes:
        found = await data.advance(lost="c")
        revision = changes.get_nowait()
        assert changes.get_nowait() is None, "all of it is one transaction"
    source, compute, sink = await data.fragments()
    new = sink.agent_name
    assert new != "c"
    assert [(one.epoch, one.state) for one in (source, compute, sink)] == [
        (1, "RUNNING"),
        (2, "PENDING"),
        (2, "PENDING"),
    ]
    assert compute.agent_name == "b", "it stays where it is"
    assert await data.pinned() == {"edge.1": "a", "errors.1": "a", "edge.2": new, "errors.2": new}
    assert revision is not None
    pinned = [change.after.pinned_agent for change in revision.changes if isinstance(change.after, log.Topic)]
    assert pinned == [new, new], "agents that watch are told"
    told = registrations(found)
    assert leaders(told[2]) == {"edge 1": ("a", "a:1"), "edge 2": (new, f"{new}:1"), "errors": (new, f"{new}:1")}
    assert leaders(told[3]) == {"edge 2": (new, f"{new}:1")}


@pytest.mark.parametrize(
    ("state", "epoch"),
    [("REGISTERED", 2), ("STARTED", 2), ("RUNNING", 2), ("FAILED", 1), ("TERMINATED", 1)],
)
async def test_only_a_run_that_was_told_of_the_former_leader_is_replaced(data: Data, state: str, epoch: int) -> None:
    await data.create("a", "b", "c", sink_moves=True)
    await data.run()
    if state in ("FAILED", "TERMINATED"):
        await data.set(2, state=state)
    else:
        await data.set(2, state="PENDING", epoch=2)
        for step in ("REGISTERED", "STARTED", "RUNNING"):
            await data.set(2, state=step)
            if step == state:
                break
        epoch += 1
    await data.lose("c")
    await data.advance(lost="c")
    found = await data.fragments()
    assert found[2].epoch == 2
    assert found[1].epoch == epoch


@pytest.mark.parametrize(("sent", "epoch"), [("", 1), ("process-b", 2)])
async def test_a_registration_on_its_way_is_taken_for_one_that_arrives(data: Data, sent: str, epoch: int) -> None:
    await data.create("a", "b", "c", sink_moves=True)
    await data.write(lambda tx: opened(tx, data.uid).set_state("DEPLOYING", "test"))
    if sent:
        await data.set(2, incarnation=sent)
    # Its own agent is silent for a moment, so it is not sent now.
    await data.lose("b", "c")
    await data.advance(lost="c")
    assert [one.epoch for one in await data.fragments()] == [1, epoch, 2]


def opened(tx: Tx, uid: str) -> query_states.OpenQuery:
    query = query_states.open_query(tx, uid)
    assert query is not None
    return query


async def test_fragments_that_leave_one_agent_together_get_one_new_epoch_each(data: Data) -> None:
    await data.create("a", "c", "c", sink_moves=True)
    await data.run()
    await data.lose("c")
    told = registrations(await data.advance(lost="c"))
    source, compute, sink = await data.fragments()
    assert [one.epoch for one in (source, compute, sink)] == [1, 2, 2]
    assert leaders(told[2])["edge 2"] == (sink.agent_name, f"{sink.agent_name}:1")


async def test_a_leader_that_finds_no_room_leaves_everything_as_it_is(data: Data) -> None:
    await data.create("a", "b", "c", sink_moves=True)
    await data.run()
    before = await data.pinned()
    await data.lose("c")
    remembered = Memory(lost=frozenset([data.agents["c"]]))
    found = await data.write(lambda tx: advance(tx, data.uid, remembered, (), lambda *_: None))
    assert found.no_room
    assert await data.pinned() == before
    assert [one.epoch for one in await data.fragments()] == [1, 1, 1]


async def test_a_compute_fragment_that_moves_moves_no_edge_and_replaces_no_other(data: Data) -> None:
    await data.create("a", "b", "c", sink_moves=True)
    await data.run()
    before = await data.pinned()
    await data.lose("b")
    await data.advance(lost="b")
    assert await data.pinned() == before
    assert [one.epoch for one in await data.fragments()] == [1, 2, 1]


async def test_what_a_fragment_waits_for_is_told_of_its_query_without_a_revision_for_what_is_known(data: Data) -> None:
    await data.create("a", "b", "c")
    await data.advance()
    for ordinal in (1, 2, 3):
        await data.set(ordinal, state="REGISTERED")
        await data.set(ordinal, state="STARTED")
    assert await waiting(data) == "its fragments are being started"
    await data.set(2, waiting="the engine is warming up")
    assert await waiting(data) == "fragment 2 of 3: the engine is warming up"
    revision = data.store.changes.position
    for _ in range(3):
        await waiting(data)
    assert data.store.changes.position == revision
    await data.set(2, state="RUNNING")
    assert (await data.fragments())[1].waiting == ""
    assert await waiting(data) == "its fragments are being started"


async def waiting(data: Data) -> str:
    """What the query says after a look."""
    await data.advance()
    query = await data.store.read(lambda tx: opened(tx, data.uid).message)
    assert query.waiting.reason == catalog.WAITING_REASON_FRAGMENTS_STARTING
    return query.waiting.message
