"""A cluster in one process: real coordinator and agent logic, a catalog in memory, calls without a network."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from google.protobuf.message import Message
from sqlalchemy import insert, select, update

from headgate.catalog import v1 as catalog
from headgate_agent.errors import REASONS as AGENT_REASONS
from headgate_agent.fragments.journal import Journal, MemoryJournal
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_agent.fragments.runner import Assignment, Report, Run, Runner, SimulatedRunner
from headgate_agent.fragments.service import FragmentService
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call, Dispatcher, Method
from headgate_common.errors import DEADLINE_EXCEEDED, UNREACHABLE, HeadgateError, from_status, to_status
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog import agent_rows, fragments, story
from headgate_coordinator.catalog.agent_status import mark_unreachable
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.log import edge_topics
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.schema import agents, queries
from headgate_coordinator.catalog.schema import fragments as fragment_table
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.cluster.control import Control
from headgate_coordinator.cluster.leadership import Leadership
from headgate_coordinator.config import Limits, Timings

T = TypeVar("T")

FAST = Timings(
    leader_ttl=20.0,
    leader_renew=0.5,
    leader_margin=1.0,
    session_ttl=0.6,
    poll_interval=0.1,
    probe_interval=0.1,
    poll_timeout_min=0.2,
    poll_constant=0.2,
    lost_after=0.5,
    reconcile_interval=0.5,
    command_timeout=0.5,
    retry_min=0.01,
    retry_max=0.1,
)


class Wires:
    """Calls between processes of one event loop, as on the wire. `cut` addresses refuse, `mute` ones are silent."""

    def __init__(self) -> None:
        self.servers: dict[str, Dispatcher] = {}
        self.cut: set[str] = set()
        self.mute: set[str] = set()
        # The call happens, its answer is lost: the next so many to a method.
        self.lose_answers: dict[str, int] = {}
        self.calls: list[tuple[str, str]] = []

    async def call(self, address: str, method: Method, request: Message, *, timeout: float) -> Message:
        self.calls.append((address, method.name))
        server = self.servers.get(address)
        if address in self.cut or server is None:
            raise HeadgateError(UNREACHABLE, f"{address} refuses")
        try:
            async with asyncio.timeout(timeout):
                if address in self.mute:
                    await asyncio.sleep(timeout * 2)
                copy = method.request.FromString(request.SerializeToString())
                answer = await server.unary(method.path, copy, Call())
                if self.lose_answers.get(method.name, 0) > 0:
                    self.lose_answers[method.name] -= 1
                    raise HeadgateError(UNREACHABLE, "the answer was lost")
                return method.response.FromString(answer.SerializeToString())
        except TimeoutError:
            raise HeadgateError(DEADLINE_EXCEEDED, f"{address} does not answer") from None
        except HeadgateError as error:
            raise from_status(to_status(error), AGENT_REASONS) from None

    def stream(self, address: str, method: Method, request: Message, *, timeout: float | None) -> Any:
        raise NotImplementedError


@dataclass(slots=True)
class TestAgent:
    """An agent process that can crash and come back with its journal."""

    __test__ = False

    name: str
    wires: Wires
    clock: SystemClock = field(default_factory=SystemClock)
    runner: Runner = field(default_factory=SimulatedRunner)
    journal: Journal = field(default_factory=MemoryJournal)
    registry: FragmentRegistry | None = None
    ids: RandomIds = field(default_factory=RandomIds)

    @property
    def address(self) -> str:
        return f"{self.name}:1"

    async def start(self, journal: Journal | None = None) -> None:
        self.journal = journal or self.journal
        self.registry = FragmentRegistry(
            incarnation=self.ids.uid("process"), runner=self.runner, journal=self.journal, clock=self.clock
        )
        await self.registry.open()
        self.wires.servers[self.address] = Dispatcher(
            [FragmentService(self.registry, self.name, catalog.AgentResources)]
        )

    async def crash(self) -> None:
        self.wires.servers.pop(self.address, None)
        if self.registry is not None:
            await self.registry.close()
        self.registry = None

    def running(self) -> list[tuple[str, int]]:
        """(fragment, epoch) of what runs here."""
        assert self.registry is not None
        return sorted((held.uid, held.epoch) for held in self.registry._held.values() if held.run is not None)


def choose_agent(tx: Tx, plan: catalog.QueryPlan, ordinal: int, leave: str) -> str | None:
    """Any ACTIVE agent with room: placement itself is tested elsewhere."""
    needed = plan.fragments[ordinal - 1].slots
    rows = tx.connection.execute(
        select(agents.c.uid).where(
            agents.c.state == "ACTIVE", agents.c.uid != leave, agents.c.slots - agents.c.slots_used >= needed
        )
    )
    return rows.scalars().first()


@dataclass(slots=True)
class Cluster:
    store: Store
    wires: Wires
    timings: Timings
    agents: dict[str, TestAgent] = field(default_factory=dict)
    control: Control | None = None
    leadership: Leadership | None = None
    leading: asyncio.Task[None] | None = None
    source: random.Random = field(default_factory=lambda: random.Random(7))

    async def add_agent(self, name: str, slots: int = 100, **options: Any) -> TestAgent:
        agent = self.agents[name] = TestAgent(name, self.wires, **options)
        await agent.start()

        def declare(tx: Tx) -> None:
            uid = agent_rows.insert_agent(
                tx,
                name=name,
                address=agent.address,
                slots=slots,
                zone="",
                group="",
                labels={},
                roles=("FRAGMENTS", "LOG"),
                has_engine=True,
            )
            tx.record("AGENT", name, uid, None, agent_rows.agent_by_uid(tx, uid))

        await self.store.write(declare)
        return agent

    async def lead(self, **options: Any) -> None:
        """Starts a coordinator on the store."""
        self.control = Control(
            self.store,
            transport=self.wires,
            clock=SystemClock(),
            source=self.source,
            timings=self.timings,
            limits=Limits(),
            choose_agent=choose_agent,
        )
        self.leadership = Leadership(
            self.store,
            clock=SystemClock(),
            source=self.source,
            timings=self.timings,
            holder="coordinator",
            address="coordinator:1",
            lead=self.control.run,
            sole=True,
            **options,
        )
        self.leading = asyncio.create_task(self.leadership.run())

    async def stop(self) -> None:
        if self.leading is not None:
            self.leading.cancel()
            await asyncio.wait((self.leading,))
            self.leading = None

    async def create(self, name: str, *where: str, **options: Any) -> str:
        return await self.store.write(
            lambda tx: create_query(tx, plan_of(*where, **options), name, **options_of(options))
        )

    async def ask(self, name: str, desired: str, mode: str = "HARD", drain: float = 5.0) -> None:
        await self.store.write(lambda tx: ask(tx, name, desired, mode, drain))

    async def query(self, name: str) -> catalog.Query | None:
        from headgate_coordinator.catalog import query_rows

        def read(tx: Tx) -> catalog.Query | None:
            row = query_rows.query_row(tx, name)
            return None if row is None else query_rows.messages(tx, [row])[0]

        return await self.store.read(read)

    async def fragments(self, name: str) -> list[fragments.OpenFragment]:
        def read(tx: Tx) -> list[fragments.OpenFragment]:
            uid = tx.connection.execute(select(queries.c.uid).where(queries.c.name == name)).scalar()
            return [] if uid is None else fragments.fragments_of(tx, uid)

        return await self.store.read(read)

    async def state(self, name: str) -> str:
        query = await self.query(name)
        return "" if query is None else catalog.QueryState.Name(query.state).removeprefix("QUERY_STATE_")

    async def until(self, condition: Callable[[], Any], what: str = "", seconds: float = 60.0) -> Any:
        """Waits for a condition, which may be a coroutine function; fails with what was waited for."""
        deadline = asyncio.get_running_loop().time() + seconds
        while True:
            found = condition()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            if asyncio.get_running_loop().time() > deadline:
                raise AssertionError(f"waited {seconds} s in vain for {what or condition}")
            await asyncio.sleep(0.01)

    async def until_state(self, name: str, state: str, seconds: float = 60.0) -> None:
        try:
            await self.until(lambda: self._is(name, state), seconds=seconds)
        except AssertionError:
            found = await self.query(name)
            parts = [(one.ordinal, one.agent_name, one.state, one.epoch) for one in await self.fragments(name)]
            raise AssertionError(f"{name} is not {state or 'gone'} but {found} with {parts}") from None

    async def _is(self, name: str, state: str) -> bool:
        return await self.state(name) == state

    async def agent_state(self, name: str) -> str:
        return await self.store.read(
            lambda tx: tx.connection.execute(select(agents.c.state).where(agents.c.name == name)).scalar_one()
        )

    async def slots(self) -> dict[str, int]:
        return await self.store.read(
            lambda tx: {r.name: r.slots_used for r in tx.connection.execute(select(agents.c.name, agents.c.slots_used))}
        )

    async def story(self, uid: str) -> list[catalog.StoryEntry]:
        return await self.store.read(lambda tx: [e for _, e in story.entries_of(tx, uid, (0, -1), 1000)])


def options_of(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if key in ("deadline",)}


def plan_of(
    *where: str,
    rows: int | None = None,
    slots: int = 1,
    sink_moves: bool = False,
    kafka: Mapping[str, str] | None = None,
    **_: Any,
) -> catalog.QueryPlan:
    """Source, compute, sink on three agents (fewer names: the last is repeated)."""
    names = [*where, *(where[-1:] * 3)][:3]
    options = {"rate": "1000"} | ({"rows": str(rows)} if rows is not None else {})
    return catalog.QueryPlan(
        format_version=1,
        mode=catalog.QUERY_MODE_EXACTLY_ONCE,
        fragments=[
            catalog.FragmentPlan(
                ordinal=1,
                kind=catalog.FRAGMENT_KIND_SOURCE,
                agent=names[0],
                slots=slots,
                node_local=True,
                output_edges=[1],
                source=catalog.SourceFragment(type=catalog.SOURCE_TYPE_GENERATOR, options=options),
            ),
            catalog.FragmentPlan(
                ordinal=2,
                kind=catalog.FRAGMENT_KIND_COMPUTE,
                agent=names[1],
                slots=slots,
                input_edges=[1],
                output_edges=[2],
                compute=catalog.ComputeFragment(spark_sql="SELECT 1"),
            ),
            catalog.FragmentPlan(
                ordinal=3,
                kind=catalog.FRAGMENT_KIND_SINK,
                agent=names[2],
                slots=slots,
                node_local=not sink_moves,
                input_edges=[2],
                sink=catalog.SinkFragment(type=catalog.SINK_TYPE_TOPIC if sink_moves else catalog.SINK_TYPE_VOID),
            ),
        ],
        edges=[
            catalog.EdgePlan(
                ordinal=1, from_fragment=1, to_fragment=2, leader_fragment=1, durability="WAL", kafka=kafka
            ),
            catalog.EdgePlan(
                ordinal=2,
                from_fragment=2,
                to_fragment=3,
                leader_fragment=3,
                durability="OBJECT" if sink_moves else "WAL",
                kafka=kafka,
            ),
        ],
    )


def create_query(tx: Tx, plan: catalog.QueryPlan, name: str, deadline: float = 60.0) -> str:
    uid = tx.ids.uid("query")
    tx.connection.execute(
        insert(queries).values(
            uid=uid,
            name=name,
            statement="SELECT 1",
            mode="EXACTLY_ONCE",
            state="PENDING",
            desired_state="RUNNING",
            stop_mode="",
            waiting=None,
            failure=None,
            plan=plan.SerializeToString(),
            deployment_deadline_us=round(deadline * 1e6),
            drain_deadline_us=0,
            time=tx.now,
            state_time=tx.now,
            revision=tx.revision,
        )
    )
    story.append(tx, uid, name, to_state="PENDING", cause="created")
    fragments.insert_fragments(tx, uid, name, plan)
    edge_topics.create(tx, uid, plan, TopicRules())
    from headgate_coordinator.catalog import query_rows

    tx.record("QUERY", name, uid, None, query_rows.query_by_uid(tx, uid))
    return uid


def ask(tx: Tx, name: str, desired: str, mode: str, drain: float) -> None:
    from headgate_coordinator.catalog import query_rows

    row = query_rows.query_row(tx, name)
    assert row is not None
    before = query_rows.query_by_uid(tx, row.uid)
    tx.connection.execute(
        update(queries)
        .where(queries.c.uid == row.uid)
        .values(
            desired_state=desired,
            stop_mode=mode,
            revision=tx.revision,
            drain_deadline_us=round(drain * 1e6) if mode == "SOFT" else 0,
        )
    )
    tx.record("QUERY", name, row.uid, before, query_rows.query_by_uid(tx, row.uid))


@asynccontextmanager
async def cluster(timings: Timings = FAST, **changes: Any) -> AsyncIterator[Cluster]:
    database = InlineDatabase()
    store = InlineStore(database, clock=SystemClock(), ids=RandomIds())
    made = Cluster(store, Wires(), replace(timings, **changes))
    try:
        yield made
    finally:
        await made.stop()
        for agent in made.agents.values():
            await agent.crash()
        await store.close()
        database.close()


__all__ = [
    "FAST",
    "Assignment",
    "Cluster",
    "Report",
    "Run",
    "TestAgent",
    "Wires",
    "ask",
    "choose_agent",
    "cluster",
    "create_query",
    "fragment_table",
    "mark_unreachable",
    "plan_of",
]
