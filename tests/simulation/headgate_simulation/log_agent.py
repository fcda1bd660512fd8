"""The log of an agent in a run: the production broker, view, upkeep and service, on a simulated disk and object store.

As `headgate_agent.log.assembly` and `headgate_agent.server` wire it, with what the simulation replaces.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry

from headgate_agent.groups.groups import Groups
from headgate_agent.kafka.config import GroupLimits, KafkaConfig
from headgate_agent.kafka.port import make_groups, make_offsets
from headgate_agent.leaving import LeavingLog
from headgate_agent.log import ring
from headgate_agent.log.block_cache import BlockCache
from headgate_agent.log.broker import Broker, BrokerSettings, World
from headgate_agent.log.config import LogConfig
from headgate_agent.log.contract import PartitionSettings
from headgate_agent.log.edge_service import EdgeService
from headgate_agent.log.guarded_objects import GuardedObjects
from headgate_agent.log.metadata import LogCatalog
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.segment_reader import SegmentReader
from headgate_agent.log.service import LogService
from headgate_agent.log.tail import Memory
from headgate_agent.log.upkeep import Upkeep, UpkeepSettings
from headgate_agent.log.view import CatalogView
from headgate_agent.log.wal import Wal, WalStopped
from headgate_agent.member import Member
from headgate_agent.work import Inline
from headgate_common.backoff import Backoff
from headgate_common.dispatch import Service
from headgate_simulation.group_port import GroupPort
from headgate_simulation.log_disk import SimulatedWalFiles, WalDisk
from headgate_simulation.log_store import SimulatedObjects
from headgate_simulation.processes import Environment
from headgate_simulation.violation import Violation

if TYPE_CHECKING:
    from headgate_simulation.log_world import LogWorld

# As in production, but for what would take longer than a run: grace times are still longer than a session lives.
UPKEEP = UpkeepSettings(
    retention_interval=5.0,
    trim_interval=4.0,
    merge_interval=2.0,
    merge_below=1 << 20,
    delete_grace=6.0,
    orphan_interval=4.0,
    orphan_grace=10.0,
    wal_interval=1.0,
)
# For when all is healed and nothing that was sent before can still come: then an orphan is one for certain, as soon as
# it is seen twice.
QUICK_ORPHAN_GRACE = 1.0
BACKOFF = Backoff(initial=0.1, cap=1.0)
KAFKA = KafkaConfig(groups=GroupLimits(catalog_timeout=1.5, initial_rebalance_delay=0.0))
LEAVE_TIMEOUT = LogConfig().leave_timeout

# A place on the ring is computed once for all runs of a process: it is pure, and agents have the same names in all.
vars(ring)["place"] = functools.lru_cache(maxsize=8192)(ring.place)


@dataclass(frozen=True, slots=True)
class AgentLog:
    """The log of a process that runs."""

    broker: Broker
    groups: Groups
    member: Member
    upkeep: Upkeep
    services: list[Service]
    tasks: list[asyncio.Task[None]]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.groups.close()
        await self.broker.close()

    def hurry(self, settings: UpkeepSettings) -> None:
        """Grace times are these from now on."""
        self.upkeep._settings = settings

    @property
    def leaving(self) -> LeavingLog:
        return LeavingLog(self.broker, self.groups, LEAVE_TIMEOUT)


async def open_log(log: LogWorld, environment: Environment, disk: WalDisk, volume_id: str, member: Member) -> AgentLog:
    """Recovers the write-ahead log and runs everything. A full disk ends the process, and it is started again."""
    name, plan = environment.name, log.plan
    process = log.world.processes[name]
    metrics = LogMetrics(CollectorRegistry())
    objects = GuardedObjects(
        SimulatedObjects(log.store, environment, log.troubles[name], process.crash, process.pause, log.outside),
        metrics,
        uploads=4,
        reads=8,
        timeout=plan.object_timeout,
        source=environment.random,
    )
    work = Inline()
    broker = Broker(
        name,
        volume_id,
        member=member,
        view=CatalogView(member.coordinators, clock=environment.clock, source=environment.random, backoff=BACKOFF),
        catalog=LogCatalog(member.coordinators, source=environment.random, backoff=BACKOFF),
        world=World(
            wal=Wal(
                SimulatedWalFiles(
                    disk, environment, log.wal_faults[name], process.crash, lambda: log.writes_ahead(name)
                ),
                file_bytes=plan.wal_file_bytes,
            ),
            objects=objects,
            reader=SegmentReader(objects, BlockCache(1 << 16), work=work),
            clock=environment.clock,
            ids=environment.ids,
            source=environment.random,
            # So little for stages that some are read from the write-ahead log when they are committed.
            memory=Memory(plan.tail_bytes, 1 << 20, plan.tail_bytes // 16),
            work=work,
            metrics=metrics,
        ),
        settings=BrokerSettings(limits=PartitionSettings(reserve_ahead=plan.reserve_ahead), doubt=plan.doubt),
    )
    try:
        await broker.open()
    except WalStopped as error:
        # No simulated disk damages what is on it for certain.
        stuck = Violation("a write-ahead log can be recovered", f"{name}: {error}", (name,))
        log.world.broken(stuck)
        raise stuck from error
    except OSError as error:
        log.world.trace.note(name, "ends", detail=str(error))
        log.world.restart_soon(name)
        await asyncio.get_running_loop().create_future()
        raise AssertionError("a process that ended goes on") from error
    upkeep = Upkeep(broker, log.upkeep)
    groups = make_groups(
        name,
        broker.view,
        member.coordinators,
        broker.certainty,
        KAFKA,
        clock=environment.clock,
        source=environment.random,
    )
    service = LogService(
        broker,
        transport=environment.transport,
        clock=environment.clock,
        source=environment.random,
        name=name,
        groups=make_offsets(name, groups, environment.transport, KAFKA),
    )
    port = GroupPort(groups, broker.view, environment.ids, functools.partial(log.groups.told, name))
    opened = AgentLog(
        broker,
        groups,
        member,
        upkeep,
        [service, EdgeService(broker, environment.clock), port],
        [
            _supervised(log, name, _joined(member, broker.view.run)),
            _supervised(log, name, _joined(member, broker.run)),
            _supervised(log, name, _joined(member, upkeep.run)),
            _supervised(log, name, groups.run()),
        ],
    )
    log.opened(name, environment.domain, opened)
    return opened


async def _joined(member: Member, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """As in production: what lets go of data begins when it is certain which catalog knows it."""
    await member.joined()
    await run()


def _supervised(log: LogWorld, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    async def run() -> None:
        try:
            await work
        except WalStopped as error:
            # The process ends, and the next one recovers.
            log.world.trace.note(name, "ends", detail=str(error))
            log.world.restart_soon(name)

    return asyncio.create_task(run())
