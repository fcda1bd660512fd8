"""A whole coordinator in memory, called through its dispatcher as a client would."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest
from google.protobuf.message import Message
from sqlalchemy import select

from headgate.catalog import v1 as catalog
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call, Dispatcher, Method
from headgate_common.errors import HeadgateError, Reason
from headgate_common.ids import RandomIds
from headgate_coordinator.api.planning import RunPlanner
from headgate_coordinator.catalog import agent_rows, schema
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.config import CoordinatorConfig, Limits, Timings
from headgate_coordinator.coordinator import Coordinator

T = TypeVar("T")

# Nothing happens behind a test's back: agents are made ACTIVE by hand, are never heard of, and are never given up.
QUIET = Timings(poll_timeout_min=3600.0, poll_timeout_max=3600.0, command_timeout=3600.0, leader_ttl=3600.0)


class Silence:
    """A transport whose other end never answers."""

    async def call(self, address: str, method: Method, request: Message, *, timeout: float) -> Message:
        async with asyncio.timeout(timeout):
            await asyncio.Event().wait()
        raise AssertionError

    async def stream(
        self, address: str, method: Method, request: Message, *, timeout: float | None
    ) -> AsyncIterator[Message]:
        async with asyncio.timeout(timeout):
            await asyncio.Event().wait()
        yield request


async def run_inline(work: Callable[[], T]) -> T:
    return work()


class Client:
    """Calls methods of one coordinator by name."""

    def __init__(
        self,
        database: InlineDatabase | Store,
        config: CoordinatorConfig | None = None,
        seed: int = 7,
        run_planner: RunPlanner = run_inline,
    ) -> None:
        self.clock = SystemClock()
        self.ids = RandomIds(random.Random(seed))
        self.config = config or CoordinatorConfig(timings=QUIET)
        self.store: Store = (
            InlineStore(database, clock=self.clock, ids=self.ids) if isinstance(database, InlineDatabase) else database
        )
        self.coordinator = Coordinator(
            self.config,
            store=self.store,
            transport=Silence(),
            clock=self.clock,
            ids=self.ids,
            source=random.Random(seed),
            address=f"coordinator-{seed}:7400",
            run_planner=run_planner,
            sole=False,
        )
        self.dispatcher = Dispatcher(self.coordinator.services, self.ids)
        self._paths = {method.name: method.path for method in self.dispatcher.methods()}
        self._running: asyncio.Task[None] | None = None
        self.last_call = Call()

    async def lead(self) -> Client:
        """Runs the coordinator until it leads."""
        self._running = asyncio.create_task(self.coordinator.run())
        async with asyncio.timeout(30):
            while self.coordinator.leadership.term is None:
                await self.coordinator.leadership.changed()
        return self

    async def stand_by(self) -> Client:
        """Runs the coordinator beside another until it knows who leads."""
        self._running = asyncio.create_task(self.coordinator.run())
        async with asyncio.timeout(30):
            while not self.coordinator.leadership.leader.address:
                await self.coordinator.leadership.changed()
        return self

    async def __call__(self, request: Any) -> Any:
        self.last_call = Call()
        return await self.dispatch(request, self.last_call)

    async def dispatch(self, request: Any, call: Call | None = None) -> Any:
        name = type(request).__name__.removesuffix("Request")
        return await self.dispatcher.unary(self._paths[name], request, call or Call())

    def watch(self, request: catalog.WatchRequest) -> AsyncIterator[Any]:
        return self.dispatcher.stream(self._paths["Watch"], request, Call())

    async def refused(self, request: Any, reason: Reason) -> HeadgateError:
        """The call fails with that reason, and nothing is stored."""
        before = await self.contents()
        with pytest.raises(HeadgateError) as caught:
            await self(request)
        assert caught.value.reason.name == reason.name, str(caught.value)
        assert await self.contents() == before
        return caught.value

    async def contents(self) -> dict[str, list[Any]]:
        """Everything that a caller could notice."""
        tables = [table for name, table in schema.metadata.tables.items() if name not in ("sessions", "grants")]
        return await self.store.read(
            lambda tx: {table.name: list(tx.connection.execute(select(table))) for table in tables}
        )

    async def activate(self, name: str) -> None:
        """Makes an agent ACTIVE, as its first answer would."""

        def operation(tx: Any) -> None:
            uid = tx.connection.execute(select(schema.agents.c.uid).where(schema.agents.c.name == name)).scalar_one()
            agent_rows.update_agent(tx, uid, state="ACTIVE", state_reason="")

        await self.store.write(operation)

    async def cluster(self, *, slots: int = 10) -> None:
        """An active agent, a source, a sink."""
        await self(catalog.CreateAgentRequest(name="a", address="127.0.0.1:7410", slots=slots))
        await self.activate("a")
        await self(
            catalog.ExecuteStatementRequest(
                statement="""
                CREATE LOGICAL SOURCE lrb (highway INT32, speed FLOAT64);
                CREATE PHYSICAL SOURCE p FOR lrb TYPE FILE SET ('/data/in.csv' AS "SOURCE".FILE_PATH);
                CREATE SINK out (highway INT32, speed FLOAT64) TYPE FILE SET ('/data/out.csv' AS "SINK".FILE_PATH);
                """
            )
        )

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self.store.close()


QUERY = "SELECT highway, speed FROM lrb WHERE speed > 50 INTO out"


def with_limits(**limits: Any) -> CoordinatorConfig:
    return CoordinatorConfig(timings=QUIET, limits=replace(Limits(), **limits))
