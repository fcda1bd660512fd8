"""The log in a world: its object store, its disks, who leads by their own belief, and what was promised to whom."""

from __future__ import annotations

import asyncio
from contextvars import Context
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headgate_common.dispatch import Method
from headgate_common.errors import HeadgateError
from headgate_simulation.group_invariants import GroupChecker
from headgate_simulation.journal_disk import JournalDisk
from headgate_simulation.log_agent import QUICK_ORPHAN_GRACE, UPKEEP, AgentLog
from headgate_simulation.log_clients import LogClients
from headgate_simulation.log_disk import WalDisk, WalFaults
from headgate_simulation.log_invariants import LogChecker
from headgate_simulation.log_promises import Promises
from headgate_simulation.log_store import ObjectStore, StoreTrouble
from headgate_simulation.loop import Domain
from headgate_simulation.plan import Fault, LogPlan, Operation
from headgate_simulation.streams import stream

if TYPE_CHECKING:
    from headgate_simulation.world import World


@dataclass(frozen=True, slots=True)
class Opened:
    """The log of one process, for as long as the process lives."""

    domain: Domain
    log: AgentLog


class LogWorld:
    def __init__(self, world: World, plan: LogPlan) -> None:
        self.world = world
        self.plan = plan
        self.upkeep = replace(UPKEEP, merge_least=plan.merge_least)
        self.store = ObjectStore(world.loop, plan.object_delay)
        self.outside: Context = Domain("object store").context
        names = [spec.name for spec in world.plan.agents]
        self.troubles = {name: StoreTrouble() for name in names}
        self.wal_faults = {name: WalFaults() for name in names}
        # What strikes the first agent that writes ahead, which stands still in the middle of it, and the first that has
        # stored records, which dies before it says so.
        self.next_write: Fault | None = None
        self.next_answer: Fault | None = None
        self.agents: dict[str, Opened] = {}
        self.promises = Promises()
        self.checker = LogChecker(self)
        self.groups = GroupChecker(self)
        self.clients = LogClients(self)
        # Volumes that are gone for good.
        self.lost_volumes: set[str] = set()
        self._powers: dict[str, int] = {}

    def disk(self, name: str) -> WalDisk:
        disk: WalDisk = self.world.processes[name].durable.wal
        return disk

    def opened(self, name: str, domain: Domain, log: AgentLog) -> None:
        self.agents[name] = Opened(domain, log)

    def alive(self) -> list[tuple[str, AgentLog]]:
        return [(name, opened.log) for name, opened in self.agents.items() if opened.domain.alive]

    def lose_power(self, name: str) -> None:
        """The machine of an agent that has crashed: what was not synced may be gone."""
        number = self._powers[name] = self._powers.get(name, 0) + 1
        self.disk(name).lose_power(stream(self.world.plan.seed, f"power/{name}/{number}"))
        self.world.journal_loses_power(name)

    def lose_disk(self, name: str) -> None:
        """All that an agent that has crashed had kept."""
        durable = self.world.processes[name].durable
        self.lost_volumes.add(durable.volume_id)
        self.world.checker.disk_lost(name)
        durable.volume_id = ""
        durable.journal = JournalDisk()
        durable.wal = WalDisk()
        self.world.trace.note(name, "disk lost")

    def writes_ahead(self, name: str) -> None:
        """An agent is in the middle of a write to its write-ahead log."""
        process, faults = self.world.processes[name], self.wal_faults[name]
        if faults.pauses:
            faults.pauses = False
            process.pause()
            return
        struck, self.next_write = self.next_write, None
        if struck is not None:
            process.pause()
            self.world.later(_away(struck), process.resume)

    def committed(self) -> None:
        self.checker.committed()
        self.groups.committed()

    def handles(self, operation: Operation) -> bool:
        return operation.kind in self.clients.kinds

    async def perform(self, operation: Operation) -> None:
        await self.clients.perform(operation)

    def following(self) -> list[asyncio.Task[None]]:
        """What goes on until the run is over."""
        return [consumer.task for consumer in self.clients.consumers if consumer.task is not None]

    def calm(self) -> None:
        for trouble in self.troubles.values():
            trouble.dies, trouble.pauses = "", False
        for faults in self.wal_faults.values():
            faults.dies, faults.pauses = "", False
        self.next_write = self.next_answer = None

    def hurry(self) -> None:
        """Nothing is on its way any more that was sent while something was wrong."""
        if self.upkeep.orphan_grace != QUICK_ORPHAN_GRACE:
            self.upkeep = replace(self.upkeep, orphan_grace=QUICK_ORPHAN_GRACE)
            for _, agent in self.alive():
                agent.hurry(self.upkeep)

    def answered(self, server: str, caller: str, method: Method, request: Any, told: Any) -> None:
        """A server has answered a call."""
        if isinstance(told, HeadgateError):
            return
        struck = self.next_answer
        if struck is not None and method.name == "Produce" and (caller in self.agents or not struck.get("passed_on")):
            self.next_answer = None
            self.world.processes[server].crash()
            self.world.later(_away(struck), lambda: self.world.start_wanted(server))
            return
        if method.name in ("Produce", "StreamProduce"):
            self.checker.produced(server, request, told)
        elif method.name == "ProduceRecords":
            self.checker.produced_records(server, request, told)
        elif method.name == "Fetch":
            self.checker.fetched(server, request, told)


def _away(fault: Fault) -> float:
    """For how long, in seconds."""
    away = fault.get("away")
    assert isinstance(away, float)
    return away
