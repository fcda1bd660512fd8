"""Edges whose stages and commits are in the leader's write-ahead log.

Opening a writer is an entry, and so for good. A commit is one entry, whatever number of partitions and topics its
stages are for: all of them become visible, or none. A stage holds record batches as they will be in their partition,
but for offsets and leader epoch, which the commit has.

Stages stay in memory until their commit while there is room; the others are in their write-ahead file alone, and are
read from there when they are committed. So nobody waits for a commit of somebody else, and a batch may be larger than
all memory for stages. What is on its way into a file, or out of one, counts as what waits for upload does, and stages
are held back by that as producers are.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import cast

from headgate_agent.log.contract import Held, NotAccepted, PartitionKey
from headgate_agent.log.entries import KIND_RECORDS, held_in
from headgate_agent.log.partition import Append, Partition
from headgate_agent.log.record_batch import headers, patch
from headgate_agent.log.tail import Memory
from headgate_agent.log.wal import Entry, Frame, Place, Wal, WalRefused
from headgate_agent.log.writers import StaleWriter, UnknownStage, Writer, end_marker, require, same_records

KIND_STAGE = 2
KIND_COMMIT = 3
KIND_WRITER = 4


@dataclass(frozen=True, slots=True)
class Stage:
    fragment: str
    epoch: int
    key: PartitionKey
    # Its entry, and how much had been written ahead then.
    place: Place
    written: int
    # Offsets that it takes.
    count: int
    # Its batches, and who counts them, if they are in memory.
    data: bytes | None = field(default=None, repr=False)
    memory: Memory | None = field(default=None, repr=False)


@dataclass(slots=True)
class Replayed:
    """What the entries of a write-ahead log say, after a restart."""

    held: dict[PartitionKey, list[Held]] = field(default_factory=dict)
    writers: dict[str, Writer] = field(default_factory=dict)
    stages: dict[str, Stage] = field(default_factory=dict)


@dataclass(slots=True)
class _Part:
    """What a commit puts into one partition: a stage, or batches that come with the commit itself."""

    partition: Partition
    count: int
    # Those of a stage are fetched just before it is written.
    data: bytes = b""
    stage_id: str = ""
    wal_file: int = 0
    append: Append | None = None


@dataclass(slots=True)
class _Commit:
    """A commit on its way into the write-ahead log; see `wal.Appendable`."""

    edges: WalEdges
    fragment: str
    after: Writer
    parts: list[_Part]

    def build(self) -> Frame | None:
        self.edges.require(self.fragment, self.after.epoch)
        try:
            for part in self.parts:
                # Stages were checked when they came, and what a source appends was made by this process.
                found = part.partition.accept(part.data, checked=True)
                append = Append(part.partition, part.data, found, own=len(found) == 1)
                append.build()
                part.append = append
        except Exception:
            # A later partition refused: those before it get nothing either.
            self.undo()
            raise
        self.edges.closing.add(self.fragment)
        return Frame(KIND_COMMIT, _writer_head(self.fragment, self.after), self._body())

    def _body(self) -> list[bytes]:
        told, inline = [], []
        for part in self.parts:
            assert part.append is not None and part.append.appended is not None
            key = part.partition.key
            size = 0 if part.stage_id else len(part.data)
            base = part.append.appended.base_offset
            told.append([part.stage_id, key.topic_uid, key.index, part.partition.epoch, base, size])
            if not part.stage_id:
                inline.append(part.data)
        table = json.dumps(told, separators=(",", ":")).encode()
        return [len(table).to_bytes(4, "big"), table, *inline]

    def written(self, file: int) -> None:
        for part in self.parts:
            assert part.append is not None
            part.append.written(part.wal_file or file)
        self.edges.wrote(self.fragment, self.after, file)

    def undo(self) -> None:
        self.edges.closing.discard(self.fragment)
        for part in reversed(self.parts):
            if part.append is not None:
                part.append.undo()
                part.append = None


@dataclass(slots=True)
class _Opened:
    """A new run of a writer on its way into the write-ahead log; or the state of one, told again."""

    edges: WalEdges
    fragment: str
    after: Writer
    again: bool = False

    def build(self) -> Frame | None:
        if self.again and self.edges.writers.get(self.fragment) is not self.after:
            return None
        if not self.again:
            self.edges.closing.add(self.fragment)
        return Frame(KIND_WRITER, _writer_head(self.fragment, self.after))

    def written(self, file: int) -> None:
        if self.again:
            self.after.wal_file = file
        else:
            self.edges.wrote(self.fragment, self.after, file)

    def undo(self) -> None:
        if not self.again:
            self.edges.closing.discard(self.fragment)


@dataclass(slots=True)
class _Staged:
    """A stage on its way into the write-ahead log; or one that is there, told again."""

    edges: WalEdges
    stage_id: str
    fragment: str
    epoch: int
    key: PartitionKey
    data: bytes
    count: int
    # Where it may stay in memory.
    memory: Memory | None = None
    again: Stage | None = None
    place: Place | None = None

    def build(self) -> Frame | None:
        if self.again is None:
            self.edges.require(self.fragment, self.epoch)
        elif self.fragment in self.edges.closing or self.edges.stages.get(self.stage_id) is not self.again:
            # What comes before this in the log ends it: told behind that, it would be there again after a restart.
            return None
        head = [self.stage_id, self.fragment, self.epoch, self.key.topic_uid, self.key.index]
        return Frame(KIND_STAGE, json.dumps(head).encode(), [self.data], self._placed)

    def _placed(self, place: Place) -> None:
        self.place = place

    def written(self, file: int) -> None:
        if self.place is not None:
            self.edges.staged(self)

    def undo(self) -> None:
        return


class WalEdges:
    """`find` answers the partition that this agent leads, or raises `NotLeader`."""

    def __init__(self, wal: Wal, find: Callable[[PartitionKey], Partition]) -> None:
        self._wal = wal
        self._find = find
        self.writers: dict[str, Writer] = {}
        self.stages: dict[str, Stage] = {}
        # Writers of which something is being written that ends their stages.
        self.closing: set[str] = set()
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def restore(self, replayed: Replayed) -> None:
        """After a restart, before anything else."""
        self.writers = replayed.writers
        self.stages = {stage_id: replace(stage, data=None) for stage_id, stage in replayed.stages.items()}

    async def open_writer(self, fragment: str, epoch: int, topics: Sequence[PartitionKey]) -> Writer:
        """Makes a run the writer of partitions, and answers what was committed last."""
        async with self._turns[fragment]:
            known = self.writers.get(fragment)
            if known is not None and known.epoch > epoch:
                raise StaleWriter(f"epoch {known.epoch} of fragment {fragment} writes, not {epoch}")
            for key in topics:
                self._find(key)
            uids = tuple(dict.fromkeys(key.topic_uid for key in topics))
            if known is not None and known.epoch == epoch and set(uids) <= set(known.topics):
                return known
            after = Writer(epoch, topics=uids)
            if known is not None:
                after.batch_id, after.position, after.ended = known.batch_id, known.position, known.ended
            await self._wal.append(_Opened(self, fragment, after))
            return self.writers[fragment]

    async def stage(self, fragment: str, epoch: int, stage_id: str, key: PartitionKey, data: bytes) -> None:
        """Keeps record batches for a commit to come. Returns when they are durable; repeating it is harmless."""
        self.require(fragment, epoch)
        partition = self._find(key)
        count = sum(header.last_offset_delta + 1 for header in partition.accept(data))
        known = self.stages.get(stage_id)
        if known is not None and (known.fragment != fragment or known.key != key):
            raise NotAccepted(f"stage {stage_id} is there already, with other batches")
        if known is not None:
            with suppress(UnknownStage):
                _, there = await self._read(stage_id)
                if not same_records(there, data):
                    raise NotAccepted(f"stage {stage_id} is there already, with other batches")
                return
        memory = partition.memory
        await memory.room()
        written = self._wal.submit(_Staged(self, stage_id, fragment, epoch, key, data, count, memory))
        memory.waits(len(data))
        written.add_done_callback(lambda _: memory.waits(-len(data)))
        # A caller that gives up leaves it to be written.
        await asyncio.shield(written)

    async def commit(
        self, fragment: str, epoch: int, batch_id: int, stage_ids: Sequence[str], *, ends: Sequence[PartitionKey] = ()
    ) -> bool:
        """Makes stages visible, all or none; False if the batch was committed before.

        `ends` are the partitions that end with it.
        """
        async with self._turns[fragment]:
            writer = self.require(fragment, epoch)
            if batch_id <= writer.batch_id:
                return False
            parts = []
            for stage_id in dict.fromkeys(stage_ids):
                stage = self.stages.get(stage_id)
                if stage is None or stage.fragment != fragment:
                    raise UnknownStage(f"there is no stage {stage_id}; stage its batches again")
                parts.append(_Part(self._find(stage.key), stage.count, stage_id=stage_id))
            after = Writer(epoch, batch_id, writer.position, writer.topics, writer.ended or bool(ends))
            await self._write(fragment, after, [*parts, *self._endings(ends)])
            return True

    async def append(
        self,
        fragment: str,
        epoch: int,
        parts: Sequence[tuple[PartitionKey, bytes | memoryview]],
        position: bytes,
        *,
        ends: Sequence[PartitionKey] = (),
    ) -> None:
        """Puts batches of a source into partitions with the position that they reach, in one append."""
        async with self._turns[fragment]:
            writer = self.require(fragment, epoch)
            after = Writer(epoch, writer.batch_id + 1, position, writer.topics, writer.ended or bool(ends))
            made = [_Part(self._find(key), _count(data), cast(bytes, data)) for key, data in parts if data]
            await self._write(fragment, after, [*made, *self._endings(ends)])

    def require(self, fragment: str, epoch: int) -> Writer:
        return require(self.writers.get(fragment), fragment, epoch)

    def ended(self, topic_uid: str) -> bool:
        """Whether nothing follows in the topic's partitions."""
        return any(writer.ended and topic_uid in writer.topics for writer in self.writers.values())

    def wrote(self, fragment: str, after: Writer, file: int) -> None:
        """The write-ahead log has what a writer is now; stages that it has not named are nobody's any more."""
        after.wal_file = file
        self.writers[fragment] = after
        self.closing.discard(fragment)
        self._drop_stages(fragment)

    def staged(self, entry: _Staged) -> None:
        """The write-ahead log has a stage, or has it once more."""
        assert entry.place is not None
        known, written = self.stages.get(entry.stage_id), self._wal.bytes_written
        if entry.again is not None:
            if known is entry.again:
                self.stages[entry.stage_id] = replace(known, place=entry.place, written=written)
            return
        if known is not None:
            # A call that was repeated before the first one was through.
            _forget(known)
        memory = entry.memory if entry.memory is not None and entry.memory.keep_stage(len(entry.data)) else None
        self.stages[entry.stage_id] = Stage(
            entry.fragment,
            entry.epoch,
            entry.key,
            entry.place,
            written,
            entry.count,
            entry.data if memory is not None else None,
            memory,
        )

    def forget(self, exists: Callable[[str], bool]) -> None:
        """Drops everything about topics that are gone."""
        for fragment in [name for name, one in self.writers.items() if not any(map(exists, one.topics))]:
            del self.writers[fragment]
            self._turns.pop(fragment, None)
            self._drop_stages(fragment)

    @property
    def oldest_wal_file(self) -> int | None:
        """The first write-ahead file that still holds a stage."""
        return min((stage.place.file for stage in self.stages.values()), default=None)

    async def carry_over(self, before: int) -> None:
        """Tells again what only files before `before` tell of writers and of stages, so that these may be removed.

        A stage when twice as much as there is of all stages was written since: then files are at most that much more
        than they should be, and what is told again is never more than what was told for the first time.
        """
        staged = sum(stage.place.size for stage in self.stages.values())
        for stage_id, stage in list(self.stages.items()):
            if stage.place.file < before and self._wal.bytes_written - stage.written >= 2 * staged:
                await self._tell_again(stage_id, stage)
        for fragment, writer in list(self.writers.items()):
            if writer.wal_file < before:
                await self._wal.append(_Opened(self, fragment, writer, again=True))

    async def _tell_again(self, stage_id: str, stage: Stage) -> None:
        try:
            _, data = await self._read(stage_id)
        except UnknownStage:
            return
        await self._wal.append(
            _Staged(self, stage_id, stage.fragment, stage.epoch, stage.key, data, stage.count, again=stage)
        )

    async def _read(self, stage_id: str) -> tuple[Stage, bytes]:
        """A stage and its batches, which may have to be read; `UnknownStage` if it is gone meanwhile."""
        while True:
            stage = self.stages.get(stage_id)
            if stage is None:
                raise UnknownStage(f"there is no stage {stage_id}; stage its batches again")
            if stage.data is not None:
                return stage, stage.data
            try:
                return stage, (await self._wal.read(stage.place)).body
            except WalRefused:
                # Unless it was told again meanwhile, and the file of before is gone.
                if self.stages.get(stage_id) is stage:
                    raise

    async def _write(self, fragment: str, after: Writer, parts: Sequence[_Part]) -> None:
        counts: defaultdict[PartitionKey, int] = defaultdict(int)
        for part in parts:
            counts[part.partition.key] += part.count
        claims: list[tuple[Partition, int]] = []
        read: list[tuple[Memory, int]] = []

        def give_back(_: object = None) -> None:
            for partition, count in claims:
                partition.give_room_back(count)
            for memory, size in read:
                memory.waits(-size)

        try:
            for key, count in counts.items():
                partition = self._find(key)
                await partition.make_room(count)
                claims.append((partition, count))
            for part in parts:
                if part.stage_id:
                    stage, part.data = await self._read(part.stage_id)
                    part.wal_file = stage.place.file
                    if stage.data is None:
                        memory = part.partition.memory
                        memory.waits(len(part.data))
                        read.append((memory, len(part.data)))
            written = self._wal.submit(_Commit(self, fragment, after, list(parts)))
        except BaseException:
            give_back()
            raise
        written.add_done_callback(give_back)
        # A caller that gives up leaves it to be written.
        await asyncio.shield(written)
        for part in parts:
            assert part.append is not None and part.append.appended is not None
            await part.partition.acknowledged(part.append.appended)

    def _endings(self, keys: Sequence[PartitionKey]) -> list[_Part]:
        return [_Part(self._find(key), 1, end_marker()) for key in keys]

    def _drop_stages(self, fragment: str) -> None:
        for stage_id in [name for name, stage in self.stages.items() if stage.fragment == fragment]:
            _forget(self.stages.pop(stage_id))


def replay(entries: Iterable[Entry]) -> Replayed:
    """Reads the entries of a write-ahead log in order."""
    found = Replayed()
    for entry in entries:
        if entry.kind == KIND_RECORDS:
            for key, held in held_in([entry]).items():
                found.held.setdefault(key, []).extend(held)
        elif entry.kind == KIND_STAGE:
            stage_id, fragment, epoch, topic_uid, index = json.loads(entry.head)
            key = PartitionKey(topic_uid, index)
            found.stages[stage_id] = Stage(fragment, epoch, key, entry.place, 0, _count(entry.body), entry.body)
        elif entry.kind in (KIND_COMMIT, KIND_WRITER):
            fragment, writer = _read_writer(entry)
            if entry.kind == KIND_COMMIT:
                _replay_parts(found, entry)
            found.writers[fragment] = writer
            for stage_id, stage in list(found.stages.items()):
                # A writer that is only told again (`carry_over`) keeps what its run has staged.
                if stage.fragment == fragment and (entry.kind == KIND_COMMIT or stage.epoch < writer.epoch):
                    del found.stages[stage_id]
    return found


def _replay_parts(found: Replayed, entry: Entry) -> None:
    size = int.from_bytes(entry.body[:4], "big")
    at = 4 + size
    for stage_id, topic_uid, index, leader_epoch, base, inline in json.loads(entry.body[4:at]):
        if stage_id:
            stage = found.stages.get(stage_id)
            if stage is None:
                # Its file is gone, because segments hold what was in it.
                continue
            assert stage.data is not None
            data, file = bytearray(stage.data), stage.place.file
        else:
            data, file = bytearray(entry.body[at : at + inline]), entry.file
            at += inline
        offset = base
        for header in headers(bytes(data)):
            patch(data, header.position, offset, leader_epoch)
            offset += header.last_offset_delta + 1
        found.held.setdefault(PartitionKey(topic_uid, index), []).append(Held(file, bytes(data)))


def _count(data: bytes | memoryview) -> int:
    """Offsets that batches take."""
    return sum(header.last_offset_delta + 1 for header in headers(data))


def _forget(stage: Stage) -> None:
    if stage.memory is not None and stage.data is not None:
        stage.memory.forget_stage(len(stage.data))


def _writer_head(fragment: str, writer: Writer) -> bytes:
    told = [fragment, writer.epoch, writer.batch_id, writer.position.hex(), list(writer.topics), writer.ended]
    return json.dumps(told, separators=(",", ":")).encode()


def _read_writer(entry: Entry) -> tuple[str, Writer]:
    fragment, epoch, batch_id, position, topics, ended = json.loads(entry.head)
    return fragment, Writer(epoch, batch_id, bytes.fromhex(position), tuple(topics), ended, entry.file)
