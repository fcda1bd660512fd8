"""Everything that the leading coordinator runs, and nobody else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from headgate_common.clock import Clock
from headgate_common.dispatch import Transport
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.cluster.agent_client import AgentClient
from headgate_coordinator.cluster.membership import Membership
from headgate_coordinator.cluster.presence import Presence
from headgate_coordinator.cluster.progress import Progress
from headgate_coordinator.config import Limits, Timings
from headgate_coordinator.query.advance import ChooseAgent
from headgate_coordinator.query.reconciler import Reconciler


class Control:
    """The controllers of one process. `run` is what `Leadership` calls with each term."""

    def __init__(
        self,
        store: Store,
        *,
        transport: Transport,
        clock: Clock,
        source: random.Random,
        timings: Timings,
        limits: Limits,
        choose_agent: ChooseAgent,
        may_act: Callable[[int], bool] = lambda term: True,
        surpassed: Callable[[int], None] = lambda term: None,
        others: Sequence[Callable[[int], Awaitable[None]]] = (),
    ) -> None:
        """`may_act` says whether a term may still be acted on, by this process's own clock; `surpassed` is told when an
        agent obeys a higher one.

        `others` run beside, for a term, under the same contract: until cancelled, or NOT_LEADER.
        """
        self._transport = transport
        self._timings = timings
        self._limits = limits
        self._others = others
        self._may_act = may_act
        self._surpassed = surpassed
        self.progress = Progress(store, limit=limits.progress)
        self.membership = Membership(
            store, clock=clock, source=source, timings=timings, limits=limits, reported=self.progress.report
        )
        self.presence = Presence(
            store,
            clock=clock,
            interval=timings.session_ttl / 3,
            renewed=self.membership.renewed,
            reported=self.progress.report,
        )
        self.reconciler = Reconciler(
            store,
            clock=clock,
            source=source,
            timings=timings,
            limits=limits,
            choose_agent=choose_agent,
            poll_soon=self.membership.poll_soon,
        )

    async def run(self, term: int) -> None:
        """Until it is cancelled or one of them ends; then none of them runs any more."""
        client = AgentClient(
            self._transport,
            term,
            command_timeout=self._timings.command_timeout,
            commands_per_agent=self._limits.commands_per_agent,
            may_act=lambda: self._may_act(term),
            surpassed=self._surpassed,
        )
        tasks = [
            asyncio.ensure_future(awaitable)
            for awaitable in (
                self.membership.run(term, client),
                self.presence.run(term),
                self.progress.run(term),
                self.reconciler.run(term, client),
                *(other(term) for other in self._others),
            )
        ]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
