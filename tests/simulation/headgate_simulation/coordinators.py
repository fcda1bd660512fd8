"""Coordinators of a run: the production `Coordinator`, with what the simulation replaces around it."""

from __future__ import annotations

import asyncio
import functools
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from headgate_common.dispatch import Dispatcher
from headgate_common.errors import HeadgateError
from headgate_coordinator.api import planning
from headgate_coordinator.catalog.store import StoreSettings
from headgate_coordinator.coordinator import Coordinator
from headgate_coordinator.sql.parse import parse_statements
from headgate_simulation.processes import Environment, Program, Running
from headgate_simulation.store import SimulatedStore
from headgate_simulation.violation import Violation

if TYPE_CHECKING:
    from headgate_simulation.world import World

T = TypeVar("T")

# A text is parsed once for all runs of a process: parsing is pure, and nothing changes what it gives.
vars(planning)["parse_statements"] = functools.lru_cache(maxsize=4096)(parse_statements)


class CoordinatorProcess:
    """A started coordinator."""

    def __init__(self, world: World, name: str, coordinator: Coordinator, store: SimulatedStore) -> None:
        self.coordinator = coordinator
        self._world = world
        self._name = name
        self.store = store
        self._running = asyncio.create_task(coordinator.run())
        self._running.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """In production the process would end. Nothing that can happen to a coordinator is a reason for that."""
        if not task.cancelled() and (error := task.exception()) is not None:
            told = "".join(traceback.format_exception(error))
            self._world.broken(Violation("no defects", f"coordinator {self._name} ended by itself: {told}"))

    async def stop(self) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self.store.close()


async def run_inline(work: Callable[[], T], /) -> T:
    """Plans on the event loop itself; others get a turn before and after, as they would beside a thread."""
    await asyncio.sleep(0)
    result = work()
    await asyncio.sleep(0)
    return result


def coordinator_program(world: World) -> Program:
    async def start(environment: Environment) -> Running:
        world.forget_dead_stores()
        store = SimulatedStore(
            world.database,
            environment,
            world.store_faults[environment.name],
            weather=world.plan.weather,
            settings=StoreSettings(),
            committed=world.committed,
            settled=world.settled,
            die=world.processes[environment.name].crash,
        )
        try:
            await store.start()
        except HeadgateError as error:
            # In production the process ends.
            world.trace.note(environment.name, "ends", detail=str(error))
            world.restart_soon(environment.name)
            await asyncio.get_running_loop().create_future()
        coordinator = Coordinator(
            world.config,
            store=store,
            transport=environment.transport,
            clock=environment.clock,
            ids=environment.ids,
            source=environment.random,
            address=environment.address,
            run_planner=run_inline,
            sole=world.plan.coordinators == 1,
        )
        environment.serve(Dispatcher(coordinator.services, environment.ids))
        return CoordinatorProcess(world, environment.name, coordinator, store)

    return start
