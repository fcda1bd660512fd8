"""The catalog in a run: the real store on SQLite in memory, with commits that fail, hang or are the last thing a
coordinator does.

What is simulated around `InlineStore`: a transaction takes time, so that others get in between; a commit may fail
before or after it took effect, and its caller cannot tell which; the database may be out of reach; the process may die
right before or right after a commit. Whoever watches the run is told of every commit at the moment it is durable.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.changes import Revision
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.store import Operation, Outcome, StoreSettings, unavailable, uncertain
from headgate_simulation.loop import Killed
from headgate_simulation.processes import Environment
from headgate_simulation.transport import CAUSE

T = TypeVar("T")


@dataclass(slots=True)
class StoreFaults:
    """What is wrong with one coordinator's access to the catalog just now. Changed by `faults.py`."""

    # Whether the database cannot be reached.
    unreachable: int = 0
    # Shares of commits that fail before, or after, they took effect.
    fails_before: float = 0.0
    fails_after: float = 0.0
    # How much longer each commit takes.
    delay: float = 0.0
    # Whether the process dies at its next commit: "before" it, "after" it, or not at all.
    dies: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """One transaction that has become durable."""

    coordinator: str
    term: int | None
    # The operation on whose behalf it was made; empty for the controllers' own.
    cause: str
    revision: Revision | None


class SimulatedStore(InlineStore):
    """See the module."""

    def __init__(
        self,
        database: InlineDatabase,
        environment: Environment,
        faults: StoreFaults,
        *,
        delay: float,
        settings: StoreSettings,
        committed: Callable[[Commit], None],
        die: Callable[[], None],
    ) -> None:
        super().__init__(
            database,
            clock=environment.clock,
            ids=environment.ids,
            settings=settings,
            before_commit=self._before,
            after_commit=self._after,
        )
        self._environment = environment
        self._faults = faults
        self._delay = delay
        self._source: random.Random = environment.random
        self._committed = committed
        self._die = die

    @property
    def alive(self) -> bool:
        return self._environment.domain.alive

    async def read(self, operation: Operation[T]) -> T:
        await self._pause()
        self._environment.domain.check()
        self._require_reachable()
        return await super().read(operation)

    async def _pause(self) -> None:
        delay = self._delay * self._source.random() + self._faults.delay * self._source.random()
        await asyncio.sleep(delay)

    def _require_reachable(self) -> None:
        if self._faults.unreachable:
            raise unavailable("the database is out of reach")

    async def _before(self) -> None:
        await self._pause()
        self._environment.domain.check()
        self._require_reachable()
        if self._faults.fails_before and self._source.random() < self._faults.fails_before:
            raise uncertain("the connection broke before the commit")

    async def _after(self) -> None:
        await asyncio.sleep(self._delay * self._source.random())
        if self._faults.unreachable or (self._faults.fails_after and self._source.random() < self._faults.fails_after):
            raise uncertain("the connection broke after the commit")

    def _commit(self, operation: Operation[Any], term: int | None, refusal: HeadgateError | None) -> Outcome:
        domain = self._environment.domain
        domain.check()
        if self._faults.dies == "before":
            self._dies()
        outcome = super()._commit(operation, term, refusal)
        if outcome.error is None:
            self._committed(Commit(self._environment.name, term, CAUSE.get(), outcome.revision))
            if self._faults.dies == "after":
                self._dies()
        return outcome

    def _dies(self) -> None:
        self._faults.dies = ""
        self._die()
        raise Killed(self._environment.name)

    def _look_soon(self) -> None:
        """As the real one, but in the life of the process that looks, not of the one whose commit there is to see."""
        if self._look_again is None and not self._closed:
            loop = asyncio.get_running_loop()
            self._look_again = loop.call_later(
                self._settings.poll_interval, self.catch_up, context=self._environment.domain.context.copy()
            )
