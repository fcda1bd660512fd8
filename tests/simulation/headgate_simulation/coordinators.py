"""Coordinators of a run: the real API, store, leadership, membership, presence and reconciler, wired as in production."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headgate_common.dispatch import Dispatcher
from headgate_coordinator.api.agents import AgentService
from headgate_coordinator.api.membership import MembershipService
from headgate_coordinator.api.mutations import Mutations
from headgate_coordinator.api.planning import Planning
from headgate_coordinator.api.queries import QueryService
from headgate_coordinator.api.sinks import SinkService
from headgate_coordinator.api.sources import SourceService
from headgate_coordinator.api.statements import StatementService
from headgate_coordinator.api.watch import WatchService
from headgate_coordinator.catalog.operations import Rules
from headgate_coordinator.catalog.snapshot import read_kinds
from headgate_coordinator.catalog.store import StoreSettings
from headgate_coordinator.catalog.watch import WatchHub
from headgate_coordinator.cluster.control import Control
from headgate_coordinator.cluster.leadership import Leadership
from headgate_coordinator.config import Limits
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.planner import PlannerSettings, choose_agent
from headgate_coordinator.sql.types.schema import SchemaLimits
from headgate_simulation.processes import Environment, Program, Running
from headgate_simulation.store import SimulatedStore

if TYPE_CHECKING:
    from headgate_simulation.world import World

T = TypeVar("T")


class CoordinatorProcess:
    """A started coordinator."""

    def __init__(
        self, store: SimulatedStore, leadership: Leadership, control: Control, leading: asyncio.Task[None]
    ) -> None:
        self.leadership = leadership
        self.control = control
        self._store = store
        self._leading = leading

    async def stop(self) -> None:
        self._leading.cancel()
        await asyncio.gather(self._leading, return_exceptions=True)
        await self._store.close()


async def run_inline(work: Callable[[], T], /) -> T:
    """Plans on the event loop itself; others get a turn before and after, as they would beside a thread."""
    await asyncio.sleep(0)
    result = work()
    await asyncio.sleep(0)
    return result


def coordinator_program(world: World) -> Program:
    """As `headgate_coordinator.server` wires it, with what the simulation replaces."""
    timings, limits = world.timings, Limits()
    rules = Rules(
        schema=SchemaLimits(),
        deployment_deadline_us=round(timings.deployment_deadline * 1_000_000),
        drain_deadline_us=round(timings.drain_deadline * 1_000_000),
        refuse_cycles=False,
    )

    async def start(environment: Environment) -> Running:
        process = world.processes[environment.name]
        store = SimulatedStore(
            world.database,
            environment,
            world.store_faults[environment.name],
            delay=world.weather.store_delay,
            settings=StoreSettings(),
            committed=world.committed,
            die=process.crash,
        )
        holder = environment.ids.uid("process")
        leadership: Leadership

        async def lead(term: int) -> None:
            await control.run(term)

        control = Control(
            store,
            transport=environment.transport,
            clock=environment.clock,
            source=environment.random,
            timings=timings,
            limits=limits,
            choose_agent=choose_agent,
            may_act=lambda term: leadership.term == term,
        )
        leadership = Leadership(
            store,
            clock=environment.clock,
            source=environment.random,
            timings=timings,
            holder=holder,
            address=environment.address,
            lead=lead,
        )
        mutations = Mutations(store, leadership, rules, limits.plan_attempts)
        planning = Planning(store, run=run_inline, limits=StatementLimits(), settings=PlannerSettings())
        hub = WatchHub(store, read_kinds, clock=environment.clock)
        services = [
            AgentService(store, mutations, control.membership),
            SourceService(store, mutations),
            SinkService(store, mutations),
            QueryService(store, mutations, planning),
            StatementService(store, mutations, planning),
            WatchService(store, hub, planning),
            MembershipService(store, leadership, control.presence, rules, timings.session_ttl),
        ]
        environment.serve(Dispatcher(services, environment.ids))
        leading = asyncio.create_task(leadership.run())
        return CoordinatorProcess(store, leadership, control, leading)

    return start
