"""Log agents and a real coordinator in one process: calls without a network, objects in memory, disks that survive."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from google.protobuf.message import Message
from prometheus_client import CollectorRegistry

from headgate.log import v1 as api
from headgate_agent.errors import REASONS as AGENT_REASONS
from headgate_agent.fragments.journal import MemoryJournal
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_agent.fragments.runner import SimulatedRunner
from headgate_agent.log.block_cache import BlockCache
from headgate_agent.log.broker import Broker, BrokerSettings, World
from headgate_agent.log.contract import PartitionKey, PartitionSettings
from headgate_agent.log.edge_service import EdgeService
from headgate_agent.log.metadata import LogCatalog
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.objects import Objects
from headgate_agent.log.segment_reader import SegmentReader
from headgate_agent.log.service import LogService
from headgate_agent.log.tail import Memory
from headgate_agent.log.upkeep import Upkeep, UpkeepSettings
from headgate_agent.log.view import CatalogView
from headgate_agent.log.wal import Wal
from headgate_agent.member import Identity, Member
from headgate_agent.work import Inline
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call, Dispatcher, Method
from headgate_common.errors import DEADLINE_EXCEEDED, UNREACHABLE, HeadgateError, from_status, to_status
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog.inline import InlineDatabase
from headgate_coordinator.config import CoordinatorConfig
from tests.unit.api.kit import QUIET, Client
from tests.unit.log.test_partition import Files
from tests.unit.log.test_partition import Objects as MemoryObjects

TTL = 1.0
COORDINATOR = "coordinator:1"
BACKOFF = Backoff(initial=0.01, cap=0.05)


class Wires:
    """Calls between processes of one event loop, as on the wire. `cut` addresses refuse."""

    def __init__(self) -> None:
        self.servers: dict[str, Dispatcher] = {}
        self.cut: set[str] = set()
        self.lose_answers: dict[str, int] = {}
        # Calls by the name of their method.
        self.calls: Counter[str] = Counter()
        self._streams: set[asyncio.Task[Any]] = set()

    async def call(self, address: str, method: Method, request: Message, *, timeout: float) -> Message:
        server = self._server(address)
        self.calls[method.name] += 1
        try:
            async with asyncio.timeout(timeout):
                copy = method.request.FromString(request.SerializeToString())
                answer = await server.unary(method.path, copy, Call(timeout=timeout))
                if self.lose_answers.get(method.name, 0) > 0:
                    self.lose_answers[method.name] -= 1
                    raise HeadgateError(UNREACHABLE, "the answer was lost")
                return method.response.FromString(answer.SerializeToString())
        except TimeoutError:
            raise HeadgateError(DEADLINE_EXCEEDED, f"{address} does not answer") from None
        except HeadgateError as error:
            raise from_status(to_status(error), AGENT_REASONS) from None

    async def stream(
        self, address: str, method: Method, request: Message, *, timeout: float | None
    ) -> AsyncIterator[Message]:
        server = self._server(address)
        answers = server.stream(method.path, request, Call(timeout=timeout))
        try:
            while True:
                getting = asyncio.ensure_future(anext(answers))
                while not getting.done():
                    await asyncio.wait((getting,), timeout=0.02)
                    if address in self.cut or self.servers.get(address) is not server:
                        getting.cancel()
                        await asyncio.gather(getting, return_exceptions=True)
                        raise HeadgateError(UNREACHABLE, f"{address} is gone")
                try:
                    yield method.response.FromString(getting.result().SerializeToString())
                except StopAsyncIteration:
                    return
        except HeadgateError as error:
            raise from_status(to_status(error), AGENT_REASONS) from None
        finally:
            await answers.aclose()

    def _server(self, address: str) -> Dispatcher:
        server = self.servers.get(address)
        if address in self.cut or server is None:
            raise HeadgateError(UNREACHABLE, f"{address} refuses")
        return server


@dataclass
class LogAgent:
    """One agent that can stop, crash and come back with its disk."""

    name: str
    wires: Wires
    objects: Objects
    zone: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    files: Files = field(default_factory=Files)
    limits: PartitionSettings = field(default_factory=lambda: PartitionSettings(linger=0.002, segment_age=0.5))
    upkeep_settings: UpkeepSettings = field(default_factory=lambda: UpkeepSettings(delete_grace=0.0, orphan_grace=0.0))
    read_timeout: float = 20.0
    seed: int = 1
    starts: int = 0

    @property
    def address(self) -> str:
        return f"{self.name}:1"

    async def start(self) -> None:
        self.starts += 1
        clock, ids, source = SystemClock(), RandomIds(), random.Random(self.seed)
        self.wires.cut.discard(self.address)
        self.registry = FragmentRegistry(
            incarnation=ids.uid("process"), runner=SimulatedRunner(), journal=MemoryJournal(), clock=clock
        )
        await self.registry.open()
        # One seam of its own for each agent, so that a test can cut it off alone.
        self.line = Line(self.wires)
        self.member = Member(
            Identity(
                self.name,
                self.address,
                self.registry.incarnation,
                slots=1,
                zone=self.zone,
                labels=self.labels,
                roles=("log",),
                volume_id=f"volume-{self.name}",
            ),
            self.registry,
            transport=self.line,
            coordinators=[COORDINATOR],
            clock=clock,
            source=source,
            timeout=0.5,
            backoff=BACKOFF,
        )
        self.view = CatalogView(self.member.coordinators, clock=clock, source=source, backoff=BACKOFF)
        catalog = LogCatalog(self.member.coordinators, source=source, backoff=BACKOFF)
        self.reader = SegmentReader(self.objects, BlockCache(1 << 20))
        world = World(
            wal=Wal(self.files, file_bytes=1 << 16),
            objects=self.objects,
            reader=self.reader,
            clock=clock,
            ids=ids,
            source=source,
            memory=Memory(),
            work=Inline(),
            metrics=LogMetrics(CollectorRegistry()),
        )
        self.broker = Broker(
            self.name,
            f"volume-{self.name}",
            member=self.member,
            view=self.view,
            catalog=catalog,
            world=world,
            settings=BrokerSettings(
                limits=self.limits,
                relook=1.0,
                retry=0.05,
                guard=0.02,
                transfer_timeout=3.0,
                read_timeout=self.read_timeout,
            ),
        )
        self.upkeep = Upkeep(self.broker, self.upkeep_settings)
        await self.broker.open()
        self.service = LogService(self.broker, transport=self.line, clock=clock, source=source)
        self.wires.servers[self.address] = Dispatcher([self.service, EdgeService(self.broker, clock)])
        self.tasks = [
            asyncio.create_task(self.member.run()),
            asyncio.create_task(self.view.run()),
            asyncio.create_task(self.broker.run()),
        ]

    async def stop(self) -> None:
        await self.broker.leave()
        self.tasks[0].cancel()
        await self.member.leave()
        await self.crash()

    async def crash(self) -> None:
        """Nothing more is sent; the disk stays as it is."""
        self.line.broken = True
        self.wires.servers.pop(self.address, None)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks = []
        frozen = {number: bytearray(data) for number, data in self.files.files.items()}
        await self.broker.close()
        self.files = Files()
        self.files.files = frozen
        await self.registry.close()

    def leads(self) -> set[tuple[str, int]]:
        return {(led.topic.name, key.index) for key, led in self.broker.led.items()}


@dataclass
class Line:
    """One process's way out."""

    wires: Wires
    broken: bool = False
    # Addresses that this process alone cannot reach.
    cut: set[str] = field(default_factory=set)

    async def call(self, address: str, method: Method, request: Message, *, timeout: float) -> Message:
        self._check(address)
        answer = await self.wires.call(address, method, request, timeout=timeout)
        self._check(address)
        return answer

    async def stream(
        self, address: str, method: Method, request: Message, *, timeout: float | None
    ) -> AsyncIterator[Message]:
        self._check(address)
        async for answer in self.wires.stream(address, method, request, timeout=timeout):
            self._check(address)
            yield answer

    def _check(self, address: str) -> None:
        if self.broken or address in self.cut:
            raise HeadgateError(UNREACHABLE, f"{address} cannot be reached")


@dataclass
class LogCluster:
    database: InlineDatabase
    wires: Wires = field(default_factory=Wires)
    objects: Any = field(default_factory=MemoryObjects)
    agents: dict[str, LogAgent] = field(default_factory=dict)
    client: Client | None = None

    async def start_coordinator(self) -> None:
        timings = replace(QUIET, session_ttl=TTL, leader_ttl=0.5, leader_renew=0.1, leader_margin=0.1)
        self.client = await Client(self.database, CoordinatorConfig(timings=timings)).lead()
        self.wires.servers[COORDINATOR] = self.client.dispatcher

    async def stop_coordinator(self) -> None:
        assert self.client is not None
        self.wires.servers.pop(COORDINATOR, None)
        await self.client.close()
        self.client = None

    async def add(self, name: str, **options: Any) -> LogAgent:
        agent = self.agents[name] = LogAgent(name, self.wires, self.objects, seed=len(self.agents), **options)
        await agent.start()
        return agent

    async def ask(self, request: Any) -> Any:
        assert self.client is not None
        return await self.client(request)

    async def create(self, name: str, partitions: int = 1, *, wal: bool = False, **settings: Any) -> api.Topic:
        durability = api.DURABILITY_WAL if wal else api.DURABILITY_OBJECT
        request = api.CreateTopicRequest(
            name=name, partitions=partitions, settings=api.TopicSettings(durability=durability, **settings)
        )
        topic: api.Topic = (await self.ask(request)).topic
        await self.until(lambda: len(self.leaders(name)) == partitions, f"{name} to be led ({self.leaders(name)})")
        return topic

    def leaders(self, topic: str) -> dict[int, str]:
        """Who serves each partition, as the agents themselves know."""
        found: dict[int, str] = {}
        for agent in self.agents.values():
            if agent.tasks:
                for name, index in agent.leads():
                    if name == topic:
                        assert index not in found or found[index] == agent.name
                        found[index] = agent.name
        return found

    def leader(self, key: PartitionKey) -> LogAgent:
        return next(a for a in self.agents.values() if a.tasks and key in a.broker.led)

    async def until(self, condition: Callable[[], Any], what: str = "", seconds: float = 60.0) -> None:
        deadline = asyncio.get_running_loop().time() + seconds
        while not condition():
            assert asyncio.get_running_loop().time() < deadline, f"waited {seconds} s in vain for {what or condition}"
            await asyncio.sleep(0.005)


@asynccontextmanager
async def log_cluster(*names: str, **options: Any) -> AsyncIterator[LogCluster]:
    database = InlineDatabase()
    made = LogCluster(database)
    try:
        await made.start_coordinator()
        for name in names:
            await made.add(name, **options)
        for name in names:
            await made.until(partial(_present, made.agents[name], len(names)), f"{name} to be present")
        yield made
    finally:
        for agent in made.agents.values():
            if agent.tasks:
                await agent.crash()
        if made.client is not None:
            await made.client.close()
        database.close()


def _present(agent: LogAgent, count: int) -> bool:
    return agent.member.session is not None and sum(peer.present for peer in agent.view.peers()) >= count
