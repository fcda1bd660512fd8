"""An edge under everything at once: it is written and read while its leaders crash, move, merge, collect and trim."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import pytest

from headgate.log import v1 as api
from headgate_agent.log.upkeep import UpkeepSettings
from headgate_common.errors import HeadgateError
from tests.integration.log.kit import LogCluster, log_cluster
from tests.integration.log.test_edges import OBJECT, WAL, Edge, made

T = TypeVar("T")

BATCHES = 120
# What passes by itself while an edge changes its leader.
PASSING = {"NOT_LEADER", "LEASE_CONFLICT", "UNKNOWN_PARTITION", "UNREACHABLE", "DEADLINE_EXCEEDED", "STALE_EPOCH"}
UPKEEP = UpkeepSettings(merge_least=3, delete_grace=0.05, orphan_grace=-1.0)


class Campaign:
    def __init__(self, cluster: LogCluster, edge: Edge, seed: int) -> None:
        self.cluster = cluster
        self.edge = edge
        self.random = random.Random(seed)
        self.epoch = 0
        self.stages = 0
        self.read: list[bytes] = []
        self.position = 0
        self.written = False

    async def patiently(self, action: Callable[[], Awaitable[T]], *, fatal: frozenset[str] = frozenset()) -> T:
        """Asks whoever leads until it is answered; a refusal that is `fatal` to the run is raised."""
        deadline = asyncio.get_running_loop().time() + 20.0
        while True:
            try:
                return await action()
            except HeadgateError as error:
                name = error.reason.name
                if name in fatal or name not in PASSING or asyncio.get_running_loop().time() > deadline:
                    raise
            await asyncio.sleep(0.01)
            leader = self.cluster.leaders(self.edge.edge.name).get(0)
            self.edge.agent = leader or self.random.choice(sorted(self.cluster.agents))

    async def write(self) -> None:
        """A fragment whose runs end now and then, each going on after the last batch that the edge has."""
        batch = -1
        while batch < BATCHES - 1:
            self.epoch += 1
            batch = await self.patiently(lambda: self.edge.open(self.epoch))
            for _ in range(self.random.randrange(1, 25)):
                if batch == BATCHES - 1:
                    break
                await self.write_batch(batch + 1)
                batch += 1
        self.written = True

    async def write_batch(self, batch: int) -> None:
        while True:
            ids = []
            for part in range(2):
                self.stages += 1
                ids.append(f"stage {self.stages}")
                await self.patiently(self.staging(ids[-1], b"%d.%d" % (batch, part)))
            if self.random.random() < 0.3:
                self.stages += 1
                await self.patiently(self.staging(f"stage {self.stages}", b"of a task that lost"))
            try:
                await self.patiently(lambda named=tuple(ids): self.edge.commit(self.epoch, batch, *named))  # type: ignore[misc]
            except HeadgateError as error:
                # Its batches were staged under a leadership that a commit has ended.
                if error.reason.name != "STAGE_NOT_FOUND":
                    raise
                continue
            return

    def staging(self, stage_id: str, value: bytes) -> Callable[[], Awaitable[None]]:
        return lambda: self.edge.stage(self.epoch, stage_id, value)

    async def follow(self) -> None:
        """A reader with a position of its own, which trims what it has read."""
        while len(self.read) < 2 * BATCHES:
            with suppress(HeadgateError):
                state = await self.edge.state()
                assert state.log_start <= self.position <= state.high_watermark, "what is needed is there"
                rows = await self.edge.rows()
                found = rows[self.position - state.log_start :]
                self.read += found
                self.position += len(found)
                if self.random.random() < 0.5:
                    await self.edge.trim(1, self.position)
            await asyncio.sleep(0.005)

    async def disturb(self, *, moves: bool) -> None:
        names = sorted(self.cluster.agents)
        while not self.written:
            await asyncio.sleep(self.random.uniform(0.01, 0.15))
            agent = self.cluster.agents[self.random.choice(names)]
            match self.random.randrange(8):
                case 0:
                    await agent.crash()
                    await asyncio.sleep(self.random.choice([0.0, 0.0, 1.3]))
                    await agent.start()
                case 1 if moves:
                    with suppress(AssertionError):
                        await self.edge.pin(self.random.choice(names))
                case 2:
                    self.cluster.objects.fail_before = self.random.randrange(3)
                case 3:
                    self.cluster.objects.fail_after = self.random.randrange(3)
                case 4:
                    lost = self.random.choice(["CommitStages", "OpenEdge", "TrimPartitions", "CommitSegments"])
                    self.cluster.wires.lose_answers[lost] = 1
                case 5:
                    await self.upkeep(agent.upkeep.merge)
                case 6:
                    await self.upkeep(agent.upkeep.collect_orphans)
                case _:
                    await self.upkeep(agent.upkeep.tell_trims)
                    await self.upkeep(agent.upkeep.delete_doomed)
                    await self.upkeep(agent.upkeep.free_wal)

    async def upkeep(self, work: Callable[[], Awaitable[object]]) -> None:
        with suppress(HeadgateError):
            async with asyncio.timeout(60):
                await work()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("durability", [OBJECT, WAL], ids=["OBJECT", "WAL"])
async def test_every_row_is_read_once_and_in_order(durability: api.Durability.ValueType, seed: int) -> None:
    async with log_cluster("a", "b", upkeep_settings=UPKEEP) as cluster:
        edge = await made(cluster, durability)
        campaign = Campaign(cluster, edge, seed)
        disturbing = asyncio.ensure_future(campaign.disturb(moves=durability == OBJECT))
        try:
            async with asyncio.timeout(120.0):
                await asyncio.gather(campaign.write(), campaign.follow())
        finally:
            campaign.written = True
            await asyncio.wait_for(disturbing, 30.0)
        assert campaign.read == [b"%d.%d" % (batch, part) for batch in range(BATCHES) for part in range(2)]
