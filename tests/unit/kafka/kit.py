"""A whole cluster in one process: the real coordinator on a catalog in memory, and agents with the real log and Kafka
port, on an event loop in a thread of its own, so that blocking clients can talk to it over sockets."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message
from prometheus_client import CollectorRegistry

from headgate_agent.fragments.journal import FileJournal
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_agent.fragments.runner import SimulatedRunner
from headgate_agent.fragments.service import FragmentService
from headgate_agent.groups.forwarding import ForwardedOffsets
from headgate_agent.groups.groups import Groups
from headgate_agent.kafka.config import GroupLimits, KafkaConfig, KafkaLimits
from headgate_agent.kafka.port import KafkaPort, make_groups, make_offsets, tls_context
from headgate_agent.kafka.service import KafkaService
from headgate_agent.load import Load
from headgate_agent.log.block_cache import BlockCache
from headgate_agent.log.broker import Broker, BrokerSettings, World
from headgate_agent.log.local_objects import LocalObjects
from headgate_agent.log.metadata import LogCatalog
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.segment_reader import SegmentReader
from headgate_agent.log.service import LogService
from headgate_agent.log.tail import Memory
from headgate_agent.log.view import CatalogView
from headgate_agent.log.wal import Wal
from headgate_agent.log.wal_files import DiskFiles
from headgate_agent.member import Identity, Member
from headgate_agent.work import Inline
from headgate_common import descriptors
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call, Dispatcher, Method
from headgate_common.errors import UNREACHABLE, HeadgateError
from headgate_common.ids import RandomIds
from headgate_common.settings import TlsConfig
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.config import CoordinatorConfig, Timings
from headgate_coordinator.config import Limits as CoordinatorLimits
from headgate_coordinator.coordinator import Coordinator

T = TypeVar("T")

COORDINATOR = "coordinator:7400"
_BACKOFF = Backoff(initial=0.01, cap=0.2)


class InProcess:
    """Calls services of the same process by their address; one that is cut off cannot be reached."""

    def __init__(self) -> None:
        self.dispatchers: dict[str, Dispatcher] = {}
        self.cut: set[str] = set()

    def _find(self, address: str) -> Dispatcher:
        found = self.dispatchers.get(address)
        if found is None or address in self.cut:
            raise HeadgateError(UNREACHABLE, f"nothing answers at {address}")
        return found

    async def call(self, address: str, method: Method, request: Message, *, timeout: float) -> Message:
        copy = method.request.FromString(request.SerializeToString())
        async with asyncio.timeout(timeout):
            return await self._find(address).unary(method.path, copy, Call())

    async def stream(
        self, address: str, method: Method, request: Message, *, timeout: float | None
    ) -> AsyncIterator[Message]:
        async for answer in self._find(address).stream(method.path, request, Call()):
            self._find(address)
            yield answer


async def _inline(work: Callable[[], T]) -> T:
    return work()


@dataclass
class Agent:
    name: str
    member: Member
    broker: Broker
    groups: Groups
    offsets: ForwardedOffsets
    port: KafkaPort
    stack: AsyncExitStack

    @property
    def address(self) -> str:
        return self.port.advertised


@dataclass
class Cluster:
    """Agents by name. Everything but `run` and `bootstrap` belongs to the loop's thread."""

    folder: Path
    config: KafkaConfig
    loop: asyncio.AbstractEventLoop
    transport: InProcess = field(default_factory=InProcess)
    agents: dict[str, Agent] = field(default_factory=dict)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    clock: SystemClock = field(default_factory=SystemClock)
    # What stays in memory of records that segments hold.
    kept_bytes: int = 64 << 20
    session_ttl: float = 10.0
    most_groups: int = 10_000
    store: Any = None

    @property
    def bootstrap(self) -> str:
        return ",".join(agent.address for agent in self.agents.values())

    @property
    def service(self) -> KafkaService:
        """Of its only agent."""
        (agent,) = self.agents.values()
        found = agent.port._service
        assert found is not None
        return found

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 30) -> T:
        """Runs something in the loop's thread, and waits for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout)

    async def start(self, agents: int) -> None:
        ids = RandomIds(random.Random(1))
        store = self.store = InlineStore(InlineDatabase(), clock=self.clock, ids=ids)
        coordinator = Coordinator(
            CoordinatorConfig(
                timings=Timings(session_ttl=self.session_ttl), limits=CoordinatorLimits(groups=self.most_groups)
            ),
            store=store,
            transport=self.transport,
            clock=self.clock,
            ids=ids,
            source=random.Random(2),
            address=COORDINATOR,
            run_planner=_inline,
            sole=True,
        )
        self.transport.dispatchers[COORDINATOR] = Dispatcher(coordinator.services, ids)
        self._supervise(self.stack, coordinator.run())
        for number in range(agents):
            await self.add(f"agent-{number}")

    async def add(
        self, name: str, config: KafkaConfig | None = None, tls: TlsConfig | None = None, group: str = "default"
    ) -> Agent:
        stack = AsyncExitStack()
        ids, source = RandomIds(random.Random(name)), random.Random(name)
        port = KafkaPort(config or self.config, self.clock)
        await port.bind(tls_context(tls or TlsConfig()))
        stack.push_async_callback(port.close)
        self._supervise(stack, port.run())
        folder = self.folder / name
        folder.mkdir()
        journal = FileJournal(folder / "journal")
        # After the registry: what it was told last is on its way to the disk, whoever still waits for that.
        stack.push_async_callback(journal.close)
        registry = FragmentRegistry(
            incarnation=ids.uid("p"), runner=SimulatedRunner(), journal=journal, clock=self.clock
        )
        await registry.open()
        stack.push_async_callback(registry.close)
        identity = Identity(
            name=name,
            address=f"{name}:7410",
            incarnation=registry.incarnation,
            slots=8,
            group=group,
            roles=("log",),
            volume_id=ids.uid("volume"),
            kafka_address=port.advertised,
        )
        member = Member(
            identity,
            registry,
            transport=self.transport,
            coordinators=[COORDINATOR],
            clock=self.clock,
            source=source,
            timeout=3.0,
            backoff=_BACKOFF,
        )
        view = CatalogView(member.coordinators, clock=self.clock, source=source, backoff=_BACKOFF)
        catalog = LogCatalog(member.coordinators, source=source, backoff=_BACKOFF)
        (folder / "wal").mkdir()
        objects = LocalObjects(self.folder / "objects")
        world = World(
            wal=Wal(DiskFiles(folder / "wal")),
            objects=objects,
            reader=SegmentReader(objects, BlockCache(32 << 20)),
            clock=self.clock,
            ids=ids,
            source=source,
            memory=Memory(kept=self.kept_bytes),
            work=Inline(),
            metrics=LogMetrics(CollectorRegistry()),
        )
        broker = Broker(
            name,
            identity.volume_id,
            member=member,
            view=view,
            catalog=catalog,
            world=world,
            settings=BrokerSettings(retry=0.1),
        )
        await broker.open()
        groups = make_groups(
            name,
            view,
            member.coordinators,
            broker.certainty,
            self.config,
            clock=self.clock,
            source=source,
        )
        stack.push_async_callback(groups.close)
        fragments = FragmentService(registry, name, Load(self.clock, lambda: 0))
        offsets = make_offsets(name, groups, self.transport, self.config)
        records = LogService(
            broker, transport=self.transport, clock=self.clock, source=source, name=name, groups=offsets
        )
        self.transport.dispatchers[identity.address] = Dispatcher([fragments, records], ids)
        for part in (member.run(), view.run(), broker.run(), groups.run()):
            self._supervise(stack, part)
        port.start(name, broker, groups, member.coordinators, ids=ids, source=source)
        agent = Agent(name, member, broker, groups, offsets, port, stack)
        self.agents[name] = agent
        await self.until(lambda: bool((peer := view.peer(name)) and peer.present))
        return agent

    async def crash(self, name: str) -> None:
        """The agent is gone without a word; its session ends in its time."""
        agent = self.agents.pop(name)
        self.transport.dispatchers.pop(f"{name}:7410", None)
        await agent.port.close()
        await agent.stack.aclose()

    async def leave(self, name: str) -> None:
        """A graceful stop."""
        agent = self.agents.pop(name)
        await agent.broker.leave()
        await agent.groups.leave()
        await agent.member.leave()
        await agent.stack.aclose()
        del self.transport.dispatchers[f"{name}:7410"]

    async def until(self, holds: Callable[[], bool], timeout: float = 60) -> None:
        async with asyncio.timeout(timeout):
            while not holds():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        for agent in self.agents.values():
            await agent.stack.aclose()
            await agent.broker.close()
        await self.stack.aclose()

    def _supervise(self, stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)

        async def end() -> None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        stack.push_async_callback(end)


LIMITS = KafkaLimits(drain=1.0)
GROUPS = GroupLimits(session_timeout_min=0.1)
CONFIG = KafkaConfig(listen="127.0.0.1:0", limits=LIMITS, groups=GROUPS)


@contextmanager
def running_cluster(
    folder: Path,
    *,
    agents: int = 1,
    kept_bytes: int = 64 << 20,
    session_ttl: float = 10.0,
    most_groups: int = 10_000,
    **settings: Any,
) -> Iterator[Cluster]:
    """`settings` are those of KafkaConfig. Sessions are long unless a test waits for the end of one."""
    descriptors.raise_limit()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    cluster = Cluster(
        folder,
        replace(CONFIG, **settings),
        loop,
        kept_bytes=kept_bytes,
        session_ttl=session_ttl,
        most_groups=most_groups,
    )
    try:
        cluster.run(cluster.start(agents))
        yield cluster
    finally:
        cluster.run(cluster.close())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
