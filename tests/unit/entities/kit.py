"""A catalog in memory, and short ways to make what tests need."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import select, update

from headgate.catalog import v1 as catalog
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog import agent_rows, operations, queries, schema
from headgate_coordinator.catalog.changes import Revision
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.operations import OPERATIONS, Rules
from headgate_coordinator.catalog.queries import PlannedQuery
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.sql.types.schema import SchemaLimits

T = TypeVar("T")

RULES = Rules(
    schema=SchemaLimits(),
    deployment_deadline_us=120_000_000,
    drain_deadline_us=60_000_000,
    refuse_cycles=False,
)


class StillClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)


class Catalog:
    """The inline store, with each mutation as one transaction that is settled."""

    def __init__(self, rules: Rules = RULES) -> None:
        self.clock = StillClock()
        self.rules = rules
        self.store = InlineStore(InlineDatabase(), clock=self.clock, ids=RandomIds(random.Random(7)))

    async def write(self, operation: Callable[[Tx], T]) -> T:
        return await self.store.write(operation)

    async def read(self, operation: Callable[[Tx], T]) -> T:
        return await self.store.read(operation)

    async def apply(self, request: Any) -> Any:
        """Runs the operation of a request; its resource is the answer."""

        def operation(tx: Tx) -> Any:
            resource = OPERATIONS[type(request)].apply(tx, request, self.rules)
            operations.settle(tx, self.rules)
            return resource

        return await self.store.write(operation)

    async def history(self) -> list[Revision]:
        from headgate_coordinator.catalog.changes import history

        return await self.store.read(lambda tx: history(tx, 0, 10_000))

    async def rows(self, table: Any) -> list[Any]:
        return await self.store.read(lambda tx: list(tx.connection.execute(select(table))))

    async def agent(self, name: str, *, slots: int = 4, active: bool = True, **fields: Any) -> catalog.Agent:
        """Declares an agent; `active` as if it had answered."""
        port = 7000 + len(await self.rows(schema.agents))
        request = catalog.CreateAgentRequest(name=name, address=f"127.0.0.1:{port}", slots=slots, **fields)
        agent: catalog.Agent = await self.apply(request)
        if active:
            return await self.write(lambda tx: agent_rows.update_agent(tx, agent.uid, state="ACTIVE", state_reason=""))
        return agent

    async def logical(self, name: str = "lrb", **columns: str) -> catalog.LogicalSource:
        request = catalog.CreateLogicalSourceRequest(name=name, schema=schema_of(**columns))
        source: catalog.LogicalSource = await self.apply(request)
        return source

    async def physical(self, logical: str = "lrb", agent: str = "", name: str = "", **options: str) -> Any:
        """A FILE source."""
        request = catalog.CreatePhysicalSourceRequest(
            name=name,
            logical_source=logical,
            agent=agent,
            type=catalog.SOURCE_TYPE_FILE,
            options={"file_path": "/data/in.csv"} | options,
        )
        return await self.apply(request)

    async def sink(self, name: str = "out", agent: str = "", type_: Any = catalog.SINK_TYPE_FILE) -> catalog.Sink:
        options = {"file_path": "/data/out.csv"} if type_ == catalog.SINK_TYPE_FILE else {}
        request = catalog.CreateSinkRequest(name=name, schema=schema_of(), agent=agent, type=type_, options=options)
        sink: catalog.Sink = await self.apply(request)
        return sink

    async def query(
        self,
        name: str,
        agents: Iterable[str],
        *,
        sources: Iterable[str] = (),
        sinks: Iterable[str] = (),
        edges: Iterable[catalog.EdgePlan] = (),
    ) -> Any:
        """Accepts a query with one fragment of one slot on each of the agents."""
        planned = await self.read(lambda tx: planned_query(tx, list(agents), list(sources), list(sinks)))
        planned.plan.edges.extend(edges)
        request = catalog.CreateQueryRequest(name=name, statement="SELECT * FROM lrb INTO out")
        return await self.write(
            lambda tx: queries.create_query(tx, request, planned, RULES.deployment_deadline_us, RULES.topics)
        )

    async def end_query(self, name: str, state: str = "STOPPED") -> None:
        """Brings a query to an ended state, its fragments gone, as the reconciler would."""

        def end(tx: Tx) -> None:
            from headgate_coordinator.catalog import fragments, query_states

            row = tx.connection.execute(select(schema.queries.c.uid).where(schema.queries.c.name == name)).one()
            query = query_states.open_query(tx, row.uid)
            assert query is not None
            failure = query_states.Failure("FRAGMENT_FAILED", "it broke") if state == "FAILED" else None
            query.set_state("STOPPING", "test", failure)
            changes = fragments.Changes(tx)
            for fragment in fragments.fragments_of(tx, row.uid):
                changes.gone(fragment, "test")
            changes.flush()
            query.set_state(state, "test")

        await self.write(end)

    async def close(self) -> None:
        await self.store.close()
        self.store.database.close()


def schema_of(**columns: str) -> catalog.Schema:
    given: Mapping[str, str] = columns or {"highway": "INT32", "speed": "FLOAT64"}
    return catalog.Schema(fields=[catalog.Field(name=name, type=type_) for name, type_ in given.items()])


def planned_query(tx: Tx, agents: list[str], sources: list[str], sinks: list[str]) -> PlannedQuery:
    links = tx.connection.execute(select(schema.network_links.c.uid)).first() is not None
    plan = catalog.QueryPlan(format_version=1, mode=catalog.QUERY_MODE_EXACTLY_ONCE)
    for ordinal, agent in enumerate(agents, start=1):
        plan.fragments.add(ordinal=ordinal, kind=catalog.FRAGMENT_KIND_COMPUTE, agent=agent, slots=1)
    for kind, table, names in (
        ("agent", schema.agents, agents),
        ("physical_source", schema.physical_sources, sources),
        ("sink", schema.sinks, sinks),
    ):
        for row in tx.connection.execute(select(table).where(table.c.name.in_(names))):
            plan.uses.add(kind=kind, uid=row.uid, name=row.name)
            if kind == "physical_source":
                plan.uses.add(kind="logical_source", uid=row.logical_uid, name="lrb")
    return PlannedQuery(name="", plan=plan, deadline_us=None, links_declared=links)


async def set_state(made: Catalog, name: str, state: str) -> None:
    await made.write(
        lambda tx: tx.connection.execute(
            update(schema.queries).where(schema.queries.c.name == name).values(state=state)
        )
    )
