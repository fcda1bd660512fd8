"""Two-step writes to edges: stages that are durable and invisible, and commits that make them visible at once.

A writer is a fragment. Its runs have epochs, of which only the highest counts: opening one shuts the others out for
good. A batch id grows over all runs of a fragment, and one that was committed is never applied again; so a run that
does not know whether its last commit happened repeats it. A commit shows its stages in all their partitions and topics,
or in none. Stages that a commit of the same writer does not name were made by tasks that failed or lost a race, and
disappear with it; so do those of a run that was shut out.

While it is in doubt whether a partition is led here, calls wait: what they did by then is harmless to do again.

Where all of this is kept is the durability of the topics, which is one for everything that a writer opens: the
write-ahead log of their leader (`wal_edges`), or the object store and the catalog (`object_edges`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from headgate_agent.log.contract import Durability, InDoubt, NotAccepted, NotLeader, PartitionKey
from headgate_agent.log.edge_runs import EdgeCatalog, Run
from headgate_agent.log.object_edges import ObjectEdges, all_led
from headgate_agent.log.partition import Partition
from headgate_agent.log.wal_edges import Replayed, WalEdges, replay
from headgate_agent.log.writers import END_KEY, StaleWriter, UnknownStage, Writer

__all__ = ["END_KEY", "Edges", "Replayed", "StaleWriter", "UnknownStage", "Writer", "replay"]

T = TypeVar("T")


class Edges:
    """`find` answers the partition that this agent leads, or raises `NotLeader`; `confirm` returns when it is certain
    that it does, or raises `NotLeader`."""

    def __init__(
        self,
        find: Callable[[PartitionKey], Partition],
        wal: WalEdges,
        objects: ObjectEdges,
        catalog: EdgeCatalog,
        confirm: Callable[[PartitionKey], Awaitable[None]],
    ) -> None:
        self._find = find
        self._confirm = confirm
        self._wal = wal
        self._objects = objects
        self._catalog = catalog
        # The highest epoch of a fragment that reads a topic, as the catalog has it.
        self._readers: dict[tuple[str, str], int] = {}

    def restore(self, replayed: Replayed) -> None:
        """After a restart, before anything else."""
        self._wal.restore(replayed)

    def learn(self, key: PartitionKey, runs: Sequence[Run]) -> None:
        """A partition is led here from now on, and this is what the catalog says of its writers and readers."""
        self._objects.learn(key, runs)
        for run in runs:
            if run.reads:
                reader = (key.topic_uid, run.fragment)
                self._readers[reader] = max(run.epoch, self._readers.get(reader, 0))

    async def open_writer(self, fragment: str, epoch: int, keys: Sequence[PartitionKey]) -> Writer:
        """Makes a run the writer of partitions, and answers what was committed last."""
        return await self._certainly(lambda: self._open_writer(fragment, epoch, keys))

    async def _open_writer(self, fragment: str, epoch: int, keys: Sequence[PartitionKey]) -> Writer:
        durabilities = {self._find(key).settings.durability for key in keys}
        if len(durabilities) > 1:
            names = ", ".join(f"{self._find(key).name} ({self._find(key).settings.durability.value})" for key in keys)
            raise NotAccepted(f"a commit is in one place, so everything it writes has one durability: {names}")
        edges = self._wal if durabilities == {Durability.WAL} else self._objects
        return await edges.open_writer(fragment, epoch, keys)

    async def stage(self, fragment: str, epoch: int, stage_id: str, key: PartitionKey, data: bytes) -> None:
        """Keeps record batches for a commit to come. Returns when they are durable; repeating it is harmless."""
        await self._certainly(lambda: self._stage(fragment, epoch, stage_id, key, data))

    async def _stage(self, fragment: str, epoch: int, stage_id: str, key: PartitionKey, data: bytes) -> None:
        self._find(key)
        await self._of(fragment).stage(fragment, epoch, stage_id, key, data)

    async def commit(
        self, fragment: str, epoch: int, batch_id: int, stage_ids: Sequence[str], *, ends: Sequence[PartitionKey] = ()
    ) -> bool:
        """Makes stages visible, all or none; False if the batch was committed before.

        `ends` are the partitions that end with it.
        """
        return await self._certainly(lambda: self._of(fragment).commit(fragment, epoch, batch_id, stage_ids, ends=ends))

    async def append(
        self,
        fragment: str,
        epoch: int,
        parts: Sequence[tuple[PartitionKey, bytes | memoryview]],
        position: bytes,
        *,
        ends: Sequence[PartitionKey] = (),
    ) -> None:
        """Puts batches of a source into partitions with the position that they reach, in one commit. They were made by
        this process; a memoryview that can be written to is given away with it."""
        await self._certainly(lambda: self._of(fragment).append(fragment, epoch, parts, position, ends=ends))

    async def require(self, fragment: str, epoch: int) -> Writer:
        """The writer, if that run has it open."""

        async def find() -> Writer:
            return self._of(fragment).require(fragment, epoch)

        return await self._certainly(find)

    def ended(self, topic_uid: str) -> bool:
        """Whether nothing follows in the topic's partitions."""
        return self._wal.ended(topic_uid) or self._objects.ended(topic_uid)

    async def open_reader(self, fragment: str, epoch: int, keys: Sequence[PartitionKey]) -> None:
        """Makes a run the reader of a topic; `StaleWriter` if a later one is. The catalog is asked once for a run."""
        await self._certainly(lambda: self._open_reader(fragment, epoch, keys))

    async def _open_reader(self, fragment: str, epoch: int, keys: Sequence[PartitionKey]) -> None:
        reader = (keys[0].topic_uid, fragment)
        known = self._readers.get(reader, 0)
        if epoch > known:
            partitions = [self._find(key) for key in keys]
            leaders = {partition.key: partition.epoch for partition in partitions}
            asked = Run(fragment, epoch, reads=True)
            run = await self._catalog.open(leaders, asked, lambda: all_led(partitions))
            self._readers[reader] = known = max(run.epoch, self._readers.get(reader, 0))
        if epoch < known:
            raise StaleWriter(f"epoch {known} of fragment {fragment} reads this edge now, not {epoch}")

    def forget(self, exists: Callable[[str], bool]) -> None:
        """Drops everything about topics that are gone."""
        self._wal.forget(exists)
        self._objects.forget(exists)
        for reader in [one for one in self._readers if not exists(one[0])]:
            del self._readers[reader]

    @property
    def oldest_wal_file(self) -> int | None:
        """The first write-ahead file that still holds a stage."""
        return self._wal.oldest_wal_file

    async def carry_over(self, before: int) -> None:
        """Tells again what only files before `before` tell of writers and stages, so that these may be removed."""
        await self._wal.carry_over(before)

    async def close(self) -> None:
        """Ends commits that are under way; whether they happened is not known here."""
        await self._objects.close()

    async def _certainly(self, work: Callable[[], Awaitable[T]]) -> T:
        """Does it when it is certain that what it needs is led here, without waiting if it is now."""
        while True:
            try:
                return await work()
            except InDoubt as doubt:
                await self._confirm(doubt.key)

    def _of(self, fragment: str) -> WalEdges | ObjectEdges:
        if fragment in self._wal.writers:
            return self._wal
        if self._objects.writes(fragment):
            return self._objects
        # Either it was never opened, or its edge is led by another agent, or by this one again in a moment.
        raise NotLeader(f"fragment {fragment} has no edge open here")
