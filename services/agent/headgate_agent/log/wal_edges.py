"""Edges whose stages and commits are in the leader's write-ahead log.

Opening a writer is an entry, and so for good. A commit is one entry, whatever number of partitions and topics its
stages are for: all of them become visible, or none. A stage holds record batches as they will be in their partition,
but for offsets and leader epoch, which the commit has.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from headgate_agent.log.contract import Held, NotAccepted, PartitionKey
from headgate_agent.log.entries import KIND_RECORDS, held_in
from headgate_agent.log.partition import Append, Partition
from headgate_agent.log.record_batch import headers, patch
from headgate_agent.log.wal import Entry, Frame, Wal
from headgate_agent.log.writers import StaleWriter, UnknownStage, Writer, end_marker, require, same_records

KIND_STAGE = 2
KIND_COMMIT = 3
KIND_WRITER = 4


@dataclass(frozen=True, slots=True)
class Stage:
    fragment: str
    epoch: int
    key: PartitionKey
    data: bytes
    wal_file: int


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
    data: bytes
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
                append = Append(part.partition, part.data, part.partition.accept(part.data))
                append.build()
                part.append = append
        except Exception:
            # A later partition refused: those before it get nothing either.
            self.undo()
            raise
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
        return Frame(KIND_WRITER, _writer_head(self.fragment, self.after))

    def written(self, file: int) -> None:
        if self.again:
            self.after.wal_file = file
        else:
            self.edges.wrote(self.fragment, self.after, file)

    def undo(self) -> None:
        return


@dataclass(slots=True)
class _Staged:
    edges: WalEdges
    stage_id: str
    stage: Stage

    def build(self) -> Frame | None:
        self.edges.require(self.stage.fragment, self.stage.epoch)
        key = self.stage.key
        head = [self.stage_id, self.stage.fragment, self.stage.epoch, key.topic_uid, key.index]
        return Frame(KIND_STAGE, json.dumps(head).encode(), [self.stage.data])

    def written(self, file: int) -> None:
        stage = self.stage
        self.edges.stages[self.stage_id] = Stage(stage.fragment, stage.epoch, stage.key, stage.data, file)

    def undo(self) -> None:
        return


class WalEdges:
    """`find` answers the partition that this agent leads, or raises `NotLeader`."""

    def __init__(self, wal: Wal, find: Callable[[PartitionKey], Partition]) -> None:
        self._wal = wal
        self._find = find
        self.writers: dict[str, Writer] = {}
        self.stages: dict[str, Stage] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def restore(self, replayed: Replayed) -> None:
        """After a restart, before anything else."""
        self.writers, self.stages = replayed.writers, replayed.stages

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
        self._find(key).accept(data)
        known = self.stages.get(stage_id)
        if known is not None:
            if known.fragment != fragment or known.key != key or not same_records(known.data, data):
                raise NotAccepted(f"stage {stage_id} is there already, with other batches")
            return
        await self._wal.append(_Staged(self, stage_id, Stage(fragment, epoch, key, data, 0)))

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
            for stage_id in stage_ids:
                stage = self.stages.get(stage_id)
                if stage is None or stage.fragment != fragment:
                    raise UnknownStage(f"there is no stage {stage_id}; stage its batches again")
                parts.append(_Part(self._find(stage.key), stage.data, stage_id, stage.wal_file))
            after = Writer(epoch, batch_id, writer.position, writer.topics, writer.ended or bool(ends))
            await self._write(fragment, after, [*parts, *self._endings(ends)])
            return True

    async def append(
        self,
        fragment: str,
        epoch: int,
        parts: Sequence[tuple[PartitionKey, bytes]],
        position: bytes,
        *,
        ends: Sequence[PartitionKey] = (),
    ) -> None:
        """Puts batches of a source into partitions with the position that they reach, in one append."""
        async with self._turns[fragment]:
            writer = self.require(fragment, epoch)
            after = Writer(epoch, writer.batch_id + 1, position, writer.topics, writer.ended or bool(ends))
            made = [_Part(self._find(key), data) for key, data in parts if data]
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
        self._drop_stages(fragment)

    def forget(self, exists: Callable[[str], bool]) -> None:
        """Drops everything about topics that are gone."""
        for fragment in [name for name, one in self.writers.items() if not any(map(exists, one.topics))]:
            del self.writers[fragment]
            self._turns.pop(fragment, None)
            self._drop_stages(fragment)

    @property
    def oldest_wal_file(self) -> int | None:
        """The first write-ahead file that still holds a stage."""
        return min((stage.wal_file for stage in self.stages.values()), default=None)

    async def carry_over(self, before: int) -> None:
        """Tells again what only files before `before` tell of writers, so that these may be removed."""
        for fragment, writer in list(self.writers.items()):
            if writer.wal_file < before:
                await self._wal.append(_Opened(self, fragment, writer, again=True))

    async def _write(self, fragment: str, after: Writer, parts: Sequence[_Part]) -> None:
        counts: defaultdict[PartitionKey, int] = defaultdict(int)
        for part in parts:
            counts[part.partition.key] += sum(header.last_offset_delta + 1 for header in headers(part.data))
        claims: list[tuple[Partition, int]] = []

        def give_back(_: object = None) -> None:
            for partition, count in claims:
                partition.give_room_back(count)

        try:
            for key, count in counts.items():
                partition = self._find(key)
                await partition.make_room(count)
                claims.append((partition, count))
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
        return [_Part(self._find(key), end_marker()) for key in keys]

    def _drop_stages(self, fragment: str) -> None:
        for stage_id in [name for name, stage in self.stages.items() if stage.fragment == fragment]:
            del self.stages[stage_id]


def replay(entries: Iterable[Entry]) -> Replayed:
    """Reads the entries of a write-ahead log in order."""
    found = Replayed()
    for entry in entries:
        if entry.kind == KIND_RECORDS:
            for key, held in held_in([entry]).items():
                found.held.setdefault(key, []).extend(held)
        elif entry.kind == KIND_STAGE:
            stage_id, fragment, epoch, topic_uid, index = json.loads(entry.head)
            found.stages[stage_id] = Stage(fragment, epoch, PartitionKey(topic_uid, index), entry.body, entry.file)
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
            data, file = bytearray(stage.data), stage.wal_file
        else:
            data, file = bytearray(entry.body[at : at + inline]), entry.file
            at += inline
        offset = base
        for header in headers(bytes(data)):
            patch(data, header.position, offset, leader_epoch)
            offset += header.last_offset_delta + 1
        found.held.setdefault(PartitionKey(topic_uid, index), []).append(Held(file, bytes(data)))


def _writer_head(fragment: str, writer: Writer) -> bytes:
    told = [fragment, writer.epoch, writer.batch_id, writer.position.hex(), list(writer.topics), writer.ended]
    return json.dumps(told, separators=(",", ":")).encode()


def _read_writer(entry: Entry) -> tuple[str, Writer]:
    fragment, epoch, batch_id, position, topics, ended = json.loads(entry.head)
    return fragment, Writer(epoch, batch_id, bytes.fromhex(position), tuple(topics), ended, entry.file)
