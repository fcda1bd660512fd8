"""Edges whose stages are in the object store and whose commits are in the catalog: nothing of them is on a disk.

What holds, whoever leads and whatever crashes:

- A stage is an object when `stage` returns. No segment refers to it, so no reader sees it.
- A commit is one transaction of the catalog. It checks the epoch of every leader, where every partition ends, and that
  the run is the last that opened its writer and the batch the writer's next; it makes segments of the named stages, in
  all partitions, and moves the writer on. Nothing is uploaded again: a stage has the form of a segment, and its batches
  get their offsets when they are read.
- The catalog is where a writer's epoch, last batch and position are. What is remembered here was read there under the
  present leadership, and a commit is checked there once more, so a former leader can do nothing with what it remembers.
- A stage may be named by the next commit of the run that made it, by no other (see `stages`); so one that was not is
  nobody's, and goes at once or with the orphans.
- When a leader does not know whether its commit happened, it gives up its partitions and asks for them again. It learns
  the answer with them, before it serves anybody.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from headgate_agent.log import stages
from headgate_agent.log.contract import NotAccepted, NotLeader, PartitionKey, SegmentInfo
from headgate_agent.log.edge_runs import EdgeCatalog, Run
from headgate_agent.log.objects import ObjectExists, Objects, ObjectStoreFailed, StoredObject
from headgate_agent.log.partition import Partition
from headgate_agent.log.segment import CorruptSegment, Index, read_index
from headgate_agent.log.stages import Stage, StageTime
from headgate_agent.log.uploading import DEFAULT_BACKOFF
from headgate_agent.log.writers import StaleWriter, UnknownStage, Writer, end_marker, require, same_records
from headgate_agent.work import Work
from headgate_common.backoff import Backoff
from headgate_common.ids import Ids

log = logging.getLogger(__name__)

T = TypeVar("T")

# Footer and index of most stages.
_TAIL_GUESS = 4096
# Stages of one commit: each is a segment in the one transaction.
DEFAULT_STAGES = 10_000


@dataclass(slots=True)
class _Opened:
    """A writer, the partitions that it has opened, and the stages it made since its last batch."""

    writer: Writer
    keys: set[PartitionKey] = field(default_factory=set)
    stages: dict[str, Stage] = field(default_factory=dict)


class ObjectEdges:
    """`find` answers the partition that this agent leads, or raises `NotLeader`; `removed` is told of objects that are
    nobody's any more."""

    def __init__(
        self,
        find: Callable[[PartitionKey], Partition],
        catalog: EdgeCatalog,
        objects: Objects,
        *,
        work: Work,
        ids: Ids,
        source: random.Random,
        backoff: Backoff = DEFAULT_BACKOFF,
        removed: Callable[[Sequence[str]], None] = lambda names: None,
        keep_bytes: int = 32 << 20,
        most_stages: int = DEFAULT_STAGES,
    ) -> None:
        """`keep_bytes` of stages stay in memory until they are committed, so that readers who keep up are served from
        there."""
        self._find = find
        self._catalog = catalog
        self._objects = objects
        self._work = work
        self._ids = ids
        self._random = source
        self._backoff = backoff
        self._removed = removed
        self._keep_bytes = keep_bytes
        self._most_stages = most_stages
        self._opened: dict[str, _Opened] = {}
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: set[asyncio.Task[Any]] = set()

    def learn(self, key: PartitionKey, runs: Iterable[Run]) -> None:
        """A partition is led here from now on, and this is what the catalog says of its writers."""
        for run in runs:
            if not run.reads:
                self._follow(run, [key])

    def writes(self, fragment: str) -> bool:
        """Whether it is known here as a writer."""
        return fragment in self._opened

    def require(self, fragment: str, epoch: int) -> Writer:
        """The writer, if that run has it open and all its partitions are led here."""
        opened = self._opened.get(fragment)
        for key in opened.keys if opened is not None else ():
            self._find(key)
        return require(opened.writer if opened is not None else None, fragment, epoch)

    def ended(self, topic_uid: str) -> bool:
        return any(one.writer.ended and topic_uid in one.writer.topics for one in self._opened.values())

    def forget(self, exists: Callable[[str], bool]) -> None:
        """Drops everything about topics that are gone."""
        for fragment, opened in list(self._opened.items()):
            opened.keys = {key for key in opened.keys if exists(key.topic_uid)}
            opened.writer.topics = tuple(sorted({key.topic_uid for key in opened.keys}))
            if not opened.keys:
                del self._opened[fragment]
                self._turns.pop(fragment, None)

    async def open_writer(self, fragment: str, epoch: int, keys: Sequence[PartitionKey]) -> Writer:
        """As `Edges.open_writer`."""
        async with self._turns[fragment]:
            leaders = self._leaders(keys)
            known = self._opened.get(fragment)
            if known is not None and known.writer.epoch == epoch and known.keys >= set(keys):
                return known.writer
            partitions = [self._find(key) for key in keys]
            run = await self._catalog.open(leaders, Run(fragment, epoch), lambda: all_led(partitions))
            # A leadership that has passed meanwhile knows nothing of what came after it.
            self._check_same(leaders)
            abandoned: list[str] = []
            if known is not None and known.writer.epoch < run.epoch and known.writer.batch_id == run.batch_id:
                abandoned = self._unnamed(known, ())
            opened = self._follow(run, keys)
            self._removed(abandoned)
            return opened.writer

    async def stage(self, fragment: str, epoch: int, stage_id: str, key: PartitionKey, data: bytes) -> None:
        """As `Edges.stage`."""
        writer = self.require(fragment, epoch)
        partition = self._find(key)
        partition.accept(data)
        opened = self._opened[fragment]
        if key not in opened.keys:
            raise NotAccepted(f"fragment {fragment} has not opened {partition.name}")
        time = StageTime(fragment, epoch, writer.batch_id)
        known = opened.stages.get(stage_id)
        if known is not None and (known.key != key or not await self._is(known, data)):
            raise NotAccepted(f"stage {stage_id} is there already, with other batches")
        if known is None:
            made = await self._put(key, time, stage_id, data, partition)
            if self.require(fragment, epoch).batch_id == time.after:
                self._opened[fragment].stages[stage_id] = made

    async def commit(
        self, fragment: str, epoch: int, batch_id: int, stage_ids: Sequence[str], *, ends: Sequence[PartitionKey] = ()
    ) -> bool:
        """As `Edges.commit`."""
        return await self._to_the_end(self._commit(fragment, epoch, batch_id, stage_ids, ends))

    async def append(
        self,
        fragment: str,
        epoch: int,
        parts: Sequence[tuple[PartitionKey, bytes | memoryview]],
        position: bytes,
        *,
        ends: Sequence[PartitionKey] = (),
    ) -> None:
        """As `Edges.append`."""
        await self._to_the_end(self._append(fragment, epoch, parts, position, ends))

    async def _commit(
        self, fragment: str, epoch: int, batch_id: int, stage_ids: Sequence[str], ends: Sequence[PartitionKey]
    ) -> bool:
        async with self._turns[fragment]:
            writer = self.require(fragment, epoch)
            if batch_id <= writer.batch_id:
                return False
            if len(stage_ids) > self._most_stages:
                raise NotAccepted(f"{len(stage_ids)} stages in one commit; {self._most_stages} are allowed: make fewer")
            chosen = [*await self._named(fragment, stage_ids), *await self._endings(fragment, ends)]
            ended = writer.ended or bool(ends)
            return await self._show(chosen, Run(fragment, epoch, False, batch_id, writer.position, ended))

    async def _append(
        self,
        fragment: str,
        epoch: int,
        parts: Sequence[tuple[PartitionKey, bytes | memoryview]],
        position: bytes,
        ends: Sequence[PartitionKey],
    ) -> None:
        async with self._turns[fragment]:
            writer = self.require(fragment, epoch)
            # One object for each partition, whatever number of batches.
            by_key: dict[PartitionKey, list[bytes | memoryview]] = {}
            for key, data in parts:
                by_key.setdefault(key, []).append(data)
            joined = [(key, b"".join(batches)) for key, batches in by_key.items()]
            made = await self._staged(fragment, [(key, data) for key, data in joined if data])
            chosen = [*made, *await self._endings(fragment, ends)]
            ended = writer.ended or bool(ends)
            await self._show(chosen, Run(fragment, epoch, False, writer.batch_id + 1, position, ended))

    async def _show(self, chosen: Sequence[Stage], after: Run) -> bool:
        """Makes stages visible in one transaction; whether it did."""
        opened = self._opened[after.fragment]
        leaders = self._leaders(opened.keys)
        touched = sorted({stage.key for stage in chosen}, key=lambda key: (key.topic_uid, key.index))
        async with AsyncExitStack() as stack:
            # Always in the same order, so that two commits never wait for each other.
            ends = {key: await stack.enter_async_context(self._find(key).held()) for key in touched}
            self._check_same(leaders)
            partitions = {key: self._find(key) for key in leaders}
            segments = self._placed(chosen, ends, leaders)
            try:
                applied, run = await self._catalog.commit(
                    leaders, after, segments, lambda: all_led(partitions.values())
                )
            except StaleWriter:
                raise
            except BaseException as error:
                # It may have happened: what is here is true again when it was asked for again.
                for partition in partitions.values():
                    partition.lose(f"a commit was not answered: {error}", _kind(error))
                raise
            if applied:
                with_data = [(key, info, stage.data) for (key, info), stage in zip(segments, chosen, strict=True)]
                for key in touched:
                    partitions[key].shown([(info, data) for where, info, data in with_data if where == key])
        unnamed = self._unnamed(opened, chosen) if applied else []
        self._follow(run, ())
        self._removed(unnamed)
        return applied

    def _placed(
        self, chosen: Sequence[Stage], ends: Mapping[PartitionKey, int], leaders: Mapping[PartitionKey, int]
    ) -> list[tuple[PartitionKey, SegmentInfo]]:
        """The stages as segments, each behind the one before."""
        at = dict(ends)
        found: list[tuple[PartitionKey, SegmentInfo]] = []
        for stage in chosen:
            segment = stage.as_segment(self._ids.uid("segment"), at[stage.key], leaders[stage.key])
            at[stage.key] = segment.next_offset
            found.append((stage.key, segment))
        return found

    def _kept(self) -> int:
        """Bytes of stages that are in memory."""
        return sum(len(stage.data or b"") for opened in self._opened.values() for stage in opened.stages.values())

    def _unnamed(self, opened: _Opened, chosen: Iterable[Stage]) -> list[str]:
        """Objects of stages that could have been committed now, and never can again."""
        named = {stage.name for stage in chosen}
        return [stage.name for stage in opened.stages.values() if stage.name not in named]

    def _follow(self, run: Run, keys: Iterable[PartitionKey]) -> _Opened:
        """Takes over what the catalog says of a writer, and that it has opened these partitions."""
        opened = self._opened.setdefault(run.fragment, _Opened(Writer(run.epoch)))
        opened.keys |= set(keys)
        now = opened.writer
        if (run.epoch, run.batch_id) > (now.epoch, now.batch_id):
            opened.stages = {}
        if (run.epoch, run.batch_id) >= (now.epoch, now.batch_id):
            now = Writer(run.epoch, run.batch_id, run.position, (), run.ended)
        now.topics = tuple(sorted({key.topic_uid for key in opened.keys}))
        opened.writer = now
        return opened

    async def _named(self, fragment: str, stage_ids: Sequence[str]) -> list[Stage]:
        """The stages of a commit, in its order; those made under another leader are looked for."""
        opened = self._opened[fragment]
        if any(stage_id not in opened.stages for stage_id in stage_ids):
            await self._look_for(fragment, opened, stage_ids)
        missing = [stage_id for stage_id in stage_ids if stage_id not in opened.stages]
        if missing:
            raise UnknownStage(f"there is no stage {missing[0]}; stage its batches again")
        return [opened.stages[stage_id] for stage_id in dict.fromkeys(stage_ids)]

    async def _look_for(self, fragment: str, opened: _Opened, stage_ids: Sequence[str]) -> None:
        time = StageTime(fragment, opened.writer.epoch, opened.writer.batch_id)
        for key in sorted(opened.keys, key=lambda key: (key.topic_uid, key.index)):
            wanted = {stages.name_of(key, time, one): one for one in stage_ids if one not in opened.stages}
            listed = [found async for found in self._objects.find(stages.prefix_of(key, time)) if found.key in wanted]
            for found, stage in zip(
                listed, await asyncio.gather(*(self._stored(key, time, one) for one in listed)), strict=True
            ):
                opened.stages[wanted[found.key]] = stage

    async def _stored(self, key: PartitionKey, time: StageTime, found: StoredObject) -> Stage:
        """A stage that another leader has made, by its footer."""
        wanted = min(_TAIL_GUESS, found.size)
        for _ in range(2):
            tail = await self._objects.read(found.key, found.size - wanted, wanted)
            index = read_index(tail, found.size)
            if isinstance(index, Index):
                return stages.from_index(key, time, found.key, index, found.size)
            wanted = index
        raise CorruptSegment(f"{found.key}: the footer does not say how long the index is")

    async def _endings(self, fragment: str, keys: Sequence[PartitionKey]) -> list[Stage]:
        return await self._staged(fragment, [(key, end_marker()) for key in keys])

    async def _staged(self, fragment: str, parts: Sequence[tuple[PartitionKey, bytes]]) -> list[Stage]:
        """Batches that come with a commit are staged first, under ids of their own."""
        writer = self._opened[fragment].writer
        time = StageTime(fragment, writer.epoch, writer.batch_id)
        for key, data in parts:
            self._find(key).accept(data)
        puts = (self._put(key, time, self._ids.uid("stage"), data, self._find(key)) for key, data in parts)
        return list(await asyncio.gather(*puts))

    async def _put(self, key: PartitionKey, time: StageTime, stage_id: str, data: bytes, partition: Partition) -> Stage:
        """Returns when the object is there, however often the store fails, while the partition is led here."""
        writer, buffers = await self._work.run(partial(stages.written_out, data))
        name = stages.name_of(key, time, stage_id)
        made = Stage(
            key,
            time,
            name,
            writer.next_offset,
            sum(len(buffer) for buffer in buffers),
            writer.min_timestamp or 0,
            writer.max_timestamp,
            data if self._kept() + len(data) <= self._keep_bytes else None,
        )
        attempt = 0
        while True:
            partition.accept(data)
            try:
                await self._objects.create(name, buffers)
                return made
            except ObjectExists:
                return await self._there(made, stage_id, data)
            except ObjectStoreFailed as error:
                if attempt == 0:
                    log.warning("a stage is tried again", extra={"object": name, "error": str(error)})
                await asyncio.sleep(self._backoff.delay(attempt, self._random))
                attempt += 1

    async def _there(self, wanted: Stage, stage_id: str, data: bytes) -> Stage:
        """A stage that an earlier try, or an earlier leader, has put there."""
        async for found in self._objects.find(stages.prefix_of(wanted.key, wanted.time)):
            if found.key == wanted.name:
                stored = await self._objects.read(found.key, 0, found.size)
                index = _index(stored)
                if not same_records(stages.batches_of(index, stored), data):
                    break
                return stages.from_index(wanted.key, wanted.time, wanted.name, index, found.size)
        raise NotAccepted(f"stage {stage_id} is there already, with other batches")

    async def _is(self, stage: Stage, data: bytes) -> bool:
        stored = await self._objects.read(stage.name, 0, stage.size)
        return same_records(stages.batches_of(_index(stored), stored), data)

    def _leaders(self, keys: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
        """The epoch under which each is led here; `NotLeader` if one is not."""
        return {key: self._find(key).epoch for key in keys}

    def _check_same(self, leaders: Mapping[PartitionKey, int]) -> None:
        for key, epoch in leaders.items():
            if self._find(key).epoch != epoch:
                raise NotLeader(f"{self._find(key).name}: leadership has changed meanwhile")

    async def _to_the_end(self, work: Coroutine[Any, Any, T]) -> T:
        """A caller that gives up leaves a commit to be finished: what is here must follow what the catalog did."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise NotLeader("the agent stops; whether the commit happened its next leader knows") from None
            raise

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.info("a commit to an edge failed", extra={"error": str(task.exception())})

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def all_led(partitions: Iterable[Partition]) -> bool:
    """Whether nobody has to stop waiting because leadership has ended."""
    return all(partition.lost is None for partition in partitions)


def _index(data: bytes) -> Index:
    index = read_index(data, len(data))
    assert isinstance(index, Index), "the whole object was given"
    return index


def _kind(error: BaseException) -> type[NotLeader]:
    return type(error) if isinstance(error, NotLeader) else NotLeader
