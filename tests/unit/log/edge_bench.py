"""Leaders of an OBJECT edge that can end at any step, over a catalog and an object store that outlive them.

The catalog is the coordinator's own, in memory; what a leader asks of it goes through the agent's own client. A step is
anything that reaches the outside: an object that is created, a call of the catalog. `Steps` ends the process before the
n-th of them, or after it and before the answer is known.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from google.protobuf.message import Message
from prometheus_client import CollectorRegistry

from headgate.log import v1 as api
from headgate_agent.log.block_cache import BlockCache
from headgate_agent.log.contract import NotLeader, PartitionKey, SegmentInfo
from headgate_agent.log.edge_runs import CatalogRuns, run_of
from headgate_agent.log.edges import Edges
from headgate_agent.log.led import Led
from headgate_agent.log.metadata import LogCatalog, SessionMetadata, info_of, ref
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.object_edges import ObjectEdges
from headgate_agent.log.objects import StoredObject
from headgate_agent.log.partition import Partition
from headgate_agent.log.records import PlainRecord, pack, unpack_batches
from headgate_agent.log.segment_reader import SegmentReader
from headgate_agent.log.tail import Memory
from headgate_agent.log.taking import begin
from headgate_agent.log.wal import Wal
from headgate_agent.log.wal_edges import WalEdges
from headgate_agent.log.world import BrokerSettings, World
from headgate_agent.log.writers import END_KEY
from headgate_agent.work import Inline
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.log import edge_runs, leads, segments
from headgate_coordinator.catalog.store import Store
from tests.integration.catalog import log_kit
from tests.integration.catalog.log_kit import Member
from tests.unit.log.test_partition import Files
from tests.unit.log.test_partition import Objects as MemoryObjects

T = TypeVar("T")

_OPERATIONS: dict[str, Callable[..., Any]] = {
    "OpenEdge": edge_runs.open_edge,
    "CommitStages": edge_runs.commit_stages,
    "FindWriters": edge_runs.find_writers,
    "CommitSegments": segments.commit_segments,
    "TrimPartitions": segments.trim_partitions,
    "FindObjects": segments.find_objects,
    "ReserveOffsets": leads.reserve_offsets,
}


class Crash(BaseException):
    """The process is gone; whoever waits for it learns nothing more."""


@dataclass
class Steps:
    """`at` is the step that ends the process; with `after`, it has happened."""

    at: int | None = None
    after: bool = False
    # Each call is made twice, as by a client that got no answer to the first.
    twice: bool = False
    count: int = 0
    dead: bool = False

    async def step(self, effect: Callable[[], Awaitable[T]]) -> T:
        number, self.count = self.count, self.count + 1
        self._end(number == self.at and not self.after)
        answer = await effect()
        if self.twice:
            answer = await effect()
        self._end(number == self.at)
        return answer

    def _end(self, now: bool) -> None:
        self.dead = self.dead or now
        if self.dead:
            raise Crash


@dataclass
class SteppedObjects:
    """An object store as one process sees it."""

    inner: MemoryObjects
    steps: Steps
    reads: int = 0

    async def create(self, key: str, buffers: Sequence[bytes]) -> None:
        # Creating twice is the log's own affair: it would be told that the object exists.
        twice, self.steps.twice = self.steps.twice, False
        try:
            await self.steps.step(lambda: self.inner.create(key, buffers))
        finally:
            self.steps.twice = twice

    async def read(self, key: str, start: int, length: int) -> bytes:
        self.reads += 1
        return await self.inner.read(key, start, length)

    async def delete(self, key: str) -> None:
        await self.inner.delete(key)

    async def find(self, prefix: str) -> AsyncIterator[StoredObject]:
        async for found in self.inner.find(prefix):
            yield found


@dataclass
class SteppedCatalog:
    """LogMetadataService as one process sees it: `LogCatalog`, without a network."""

    store: Store
    steps: Steps

    async def ask(self, method: str, request: Message, *, wanted: Callable[[], bool] = lambda: True) -> Any:
        copy = type(request).FromString(request.SerializeToString())
        return await self.steps.step(lambda: self.store.write(lambda tx: _OPERATIONS[method](tx, copy)))

    async def once(self, method: str, request: Message) -> Any:
        return await self.ask(method, request)

    async def segments(
        self, key: PartitionKey, from_offset: int, until: int, *, wanted: Any = None
    ) -> list[SegmentInfo]:
        request = api.ListSegmentsRequest(partition=ref(key), from_offset=from_offset, limit=10_000)
        answer = await self.store.read(lambda tx: segments.list_segments(tx, request))
        return [info_of(segment) for segment in answer.segments if segment.base_offset < until]


@dataclass
class _Session:
    session: str | None
    valid_until: float = float("inf")

    @property
    def known(self) -> str:
        return self.session or ""


@dataclass
class Leader:
    """One process that leads everything; it has no disk that anybody could miss."""

    member: Member
    edges: Edges
    in_objects: ObjectEdges
    catalog: SteppedCatalog
    objects: SteppedObjects
    leds: dict[PartitionKey, Led]
    removed: list[str] = field(default_factory=list)

    async def rows(self, key: PartitionKey) -> list[str]:
        """What can be read, in order."""
        led = self.leds[key]
        found: list[str] = []
        at = led.bounds.log_start
        while at < led.bounds.high_watermark:
            for record in unpack_batches(b"".join(await led.read(at, 1 << 20))):
                assert record.offset == at, "offsets follow each other"
                found.append("END" if record.key == END_KEY else (record.value or b"").decode())
                at += 1
        return found


class EdgeBench:
    """An edge of two partitions and its topic of error rows."""

    def __init__(self) -> None:
        self.database = InlineDatabase()
        self.store = InlineStore(self.database, clock=SystemClock(), ids=RandomIds(random.Random(1)))
        self.objects = MemoryObjects()
        self.topics: list[api.Topic] = []
        self.keys: list[PartitionKey] = []
        self._members = 0
        self._edges = 0

    async def start(self) -> EdgeBench:
        """Begins with a new edge."""
        self._edges += 1
        self.topics = [
            await log_kit.topic(self.store, f"edge-{self._edges}", 2),
            await log_kit.topic(self.store, f"errors-{self._edges}", 1),
        ]
        self.keys = [PartitionKey(topic.uid, index) for topic in self.topics for index in range(topic.partitions)]
        return self

    async def lead(self, steps: Steps | None = None, **options: Any) -> Leader:
        """Another agent, with an empty disk, leads everything."""
        self._members += 1
        name = ("one", "other")[self._members % 2]
        member = await log_kit.joined(self.store, name, volume=f"disk-{self._members}", incarnation=str(self._members))
        return await self.take(member, steps, **options)

    async def lost(self, leader: Leader) -> None:
        """It is gone for good, with its disk."""
        await log_kit.gone(self.store, leader.member)

    async def take(self, member: Member, steps: Steps | None = None, **options: Any) -> Leader:
        steps = steps or Steps()
        objects, catalog = SteppedObjects(self.objects, steps), SteppedCatalog(self.store, steps)
        log_catalog = cast(LogCatalog, catalog)
        source, ids = random.Random(self._members), RandomIds(random.Random(self._members))
        session = _Session(member.session)
        removed: list[str] = []
        metadata = SessionMetadata(log_catalog, member.session, removed.extend)
        world = World(
            wal=Wal(Files()),
            objects=objects,
            reader=SegmentReader(objects, BlockCache(1 << 20)),
            clock=SystemClock(),
            ids=ids,
            source=source,
            memory=Memory(),
            work=Inline(),
            metrics=LogMetrics(CollectorRegistry()),
        )
        await world.wal.recover()
        leds: dict[PartitionKey, Led] = {}

        def find(key: PartitionKey) -> Partition:
            if key not in leds or not leds[key].partition.leads:
                raise NotLeader(f"{key} is not led here")
            return leds[key].partition

        async def confirm(key: PartitionKey) -> None:
            find(key)

        runs = CatalogRuns(log_catalog, lambda: session.session)
        in_objects = ObjectEdges(
            find,
            runs,
            objects,
            work=Inline(),
            ids=ids,
            source=source,
            backoff=Backoff(initial=0.001, cap=0.002),
            removed=removed.extend,
            **options,
        )
        edges = Edges(find, WalEdges(world.wal, find), in_objects, runs, confirm)
        for topic in self.topics:
            for acquired in await log_kit.acquire(self.store, member, topic, range(topic.partitions)):
                assert acquired.epoch, acquired.refusal
                key = PartitionKey(topic.uid, acquired.partition.index)
                edges.learn(key, [run_of(run) for run in acquired.runs])
                leds[key] = begin(
                    acquired,
                    topic,
                    (),
                    world=world,
                    settings=BrokerSettings(),
                    catalog=log_catalog,
                    metadata=metadata,
                    member=session,
                )
        return Leader(member, edges, in_objects, catalog, objects, leds, removed)

    def close(self) -> None:
        self.database.close()


def rows(*values: str, at: int = 1) -> bytes:
    """Each a batch of its own."""
    return b"".join(bytes(one) for value in values for one in pack([PlainRecord(None, value.encode(), at)], 1 << 20))
