"""What an agent does for its partitions in the background: retention, merging, deleting objects, freeing the disk.

Each task runs by itself at its own pace, reports what it did, and when it fails is tried again at its next turn: none
of them is needed for what was promised to a producer or a consumer. What fails for one partition, or one object, is
named in the agent's log and keeps no other from its turn. Objects are deleted only after a grace time in
which a reader that began before can finish; an agent that dies meanwhile leaves them to the collection of orphans. What
the catalog does not know is another's once the store is: so it is looked first whose the store is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial

from grpc import StatusCode

from headgate.log import v1 as api
from headgate_agent.errors import CATALOG_MISMATCH
from headgate_agent.log.broker import Broker
from headgate_agent.log.contract import NotLeader, SegmentInfo
from headgate_agent.log.led import Led
from headgate_agent.log.metadata import key_of, leader_ref, segment_of
from headgate_agent.log.metadata import ref as partition_ref
from headgate_agent.log.objects import ObjectExists
from headgate_agent.log.record_batch import headers
from headgate_agent.log.segment import SegmentWriter
from headgate_agent.log.segments import ref_of
from headgate_agent.log.stages import may_be_committed, read_name
from headgate_agent.log.store_identity import still_of
from headgate_agent.log.uploading import object_key
from headgate_common.errors import HeadgateError
from headgate_common.signals import Signal

log = logging.getLogger(__name__)

# Internal: keys that the catalog is asked for in one call.
_ORPHANS_AT_ONCE = 1000
_AWAY = (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)
_ORPHANS_TASK = "headgate:orphans"


@dataclass(frozen=True, slots=True)
class UpkeepSettings:
    """Times in seconds."""

    retention_interval: float = 60.0
    # The catalog is told of trimmed edges so often: what was trimmed since takes room for as long.
    trim_interval: float = 10.0
    merge_interval: float = 10.0
    # Segments below this size are merged, when so many of them follow each other.
    merge_below: int = 2 << 20
    merge_least: int = 16
    # What one merge may take at once, in bytes.
    merge_most: int = 32 << 20
    delete_grace: float = 60.0
    # Objects whose grace time is over are looked for so often, and no less often than that time.
    delete_interval: float = 5.0
    # So many deletions fail before the store is left alone until the next turn: each may take its whole time.
    delete_failures: int = 10
    orphan_interval: float = 3600.0
    # An object that the catalog does not know may belong to a commit that is still on its way: it must have been
    # unknown for so long, by this agent's own monotonic clock.
    orphan_grace: float = 3600.0
    wal_interval: float = 5.0
    # Write-ahead files behind the one being written; what keeps an older one is uploaded without waiting for more.
    wal_files: int = 3


class _Each:
    """One turn of a task at many things: what fails for one of them is named, and told once the others had theirs. What
    is not led here any more is another's to look after."""

    def __init__(self, task: str) -> None:
        self._task = task
        self.problems: list[Exception] = []

    @contextmanager
    def one(self, **what: object) -> Iterator[None]:
        try:
            yield
        except NotLeader:
            return
        except Exception as error:
            log.warning("upkeep of one failed", extra={"upkeep": self._task, **what, "error": repr(error)})
            self.problems.append(error)

    def tell(self) -> None:
        if self.problems:
            raise self.problems[0]


class Upkeep:
    def __init__(self, broker: Broker, settings: UpkeepSettings | None = None) -> None:
        self._broker = broker
        self._world = broker.world
        self._settings = settings or UpkeepSettings()
        # Keys and when they may be deleted, soonest first.
        self._doomed: deque[tuple[float, str]] = deque()
        # Objects that the catalog does not know, and when that was first seen.
        self._unknown: dict[str, float] = {}
        # Segments whose records have no time of their own, and when each was first seen here.
        self._timeless: dict[str, float] = {}
        # The catalog that the object store is of; empty if nobody knows.
        self._catalog_uid = ""
        broker.removed = self._doom

    async def run(self, catalog_uid: str = "") -> None:
        """Goes on until it is cancelled, or until the object store is no longer that of `catalog_uid`: then this agent
        leads nothing any more, does nothing more here, and CATALOG_MISMATCH is raised. That is looked at as often as
        the retention of topics."""
        self._catalog_uid = catalog_uid
        one = self._settings
        tasks = [
            asyncio.ensure_future(task)
            for task in (
                self._every(one.retention_interval, "retention", self._while_ours(self.expire)),
                self._every(one.trim_interval, "trimming", self.tell_trims),
                self._every(one.merge_interval, "merging", self.merge),
                self._every(min(one.delete_interval, max(one.delete_grace, 0.05)), "deletion", self.delete_doomed),
                self._every(one.orphan_interval, "orphans", self._while_ours(self.collect_orphans)),
                self._every(one.wal_interval, "wal", self.free_wal, sooner=self._world.wal.rolled),
            )
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def _while_ours(self, work: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[object]]:
        async def look_first() -> None:
            if self._catalog_uid:
                await still_of(self._world.objects, self._catalog_uid)
            await work()

        return look_first

    async def _every(
        self, interval: float, task: str, work: Callable[[], Awaitable[object]], sooner: Signal | None = None
    ) -> None:
        """Does the work once in each interval, and when there is a reason to do it `sooner`."""
        while True:
            # Not all agents at once.
            pause = interval * self._world.source.uniform(0.9, 1.1)
            if sooner is None:
                await asyncio.sleep(pause)
            else:
                await sooner.wait(pause)
                sooner.clear()
            try:
                await work()
            except Exception as error:
                if isinstance(error, HeadgateError) and error.reason is CATALOG_MISMATCH:
                    self._broker.forsake(str(error))
                    raise
                self._world.metrics.upkeep_failures.labels(task).inc()
                log.warning("upkeep failed and is tried again", extra={"upkeep": task, "error": str(error)})

    async def expire(self) -> int:
        """Trims partitions to the retention of their topics; answers how many segments went."""
        removed = 0
        timeless: dict[str, float] = {}
        each = _Each("retention")
        for led in tuple(self._broker.led.values()):
            with each.one(partition=led.partition.name):
                removed += await self._expire(led, timeless)
            await asyncio.sleep(0)
        # What could not be looked at is as old as it was.
        self._timeless = self._timeless | timeless if each.problems else timeless
        each.tell()
        return removed

    async def _expire(self, led: Led, timeless: dict[str, float]) -> int:
        """Records without a time of their own are as old as the first look at their segment, which is noted in
        `timeless`: a new leader counts anew, so they stay longer than they should, and never shorter. So are those of a
        time to come, by this agent's clock: they would keep everything behind them until then."""
        settings = led.topic.settings
        age = settings.retention.ToNanoseconds() // 1_000_000 if settings.HasField("retention") else 0
        if not age and not settings.retention_bytes:
            return 0
        infos = await led.segments.all()
        # Records carry the time of people's clocks, so their age can only be told by one.
        wall = int(self._world.clock.wall().timestamp() * 1000)
        oldest = wall - age
        now = self._world.clock.monotonic()
        seen = {info.uid: self._timeless.get(info.uid, now) for info in infos if not 0 <= info.max_timestamp <= wall}
        timeless |= seen
        total = sum(info.size for info in infos)
        keep_from = led.partition.log_start
        for info in infos:
            expired = (now - seen[info.uid]) * 1000 > age if info.uid in seen else info.max_timestamp < oldest
            too_old = age > 0 and expired
            too_many = settings.retention_bytes > 0 and total - info.size >= settings.retention_bytes
            if not too_old and not too_many:
                break
            total -= info.size
            keep_from = info.next_offset
        if keep_from <= led.partition.log_start:
            return 0
        gone = await self._broker.trim(led, keep_from)
        self._world.metrics.trimmed.inc(gone)
        log.info(
            "segments expired",
            extra={"partition": led.partition.name, "segments": gone, "log_start": keep_from},
        )
        return gone

    async def tell_trims(self) -> int:
        """Tells the catalog where edges begin by now; answers how many it told of. They go in one call."""
        untold = [led.partition for led in self._broker.led.values() if led.partition.trim_untold]
        told = await asyncio.gather(*(one.tell_trim() for one in untold), return_exceptions=True)
        each = _Each("trimming")
        for partition, outcome in zip(untold, told, strict=True):
            with each.one(partition=partition.name):
                if outcome is not None:
                    raise outcome
        each.tell()
        return sum(outcome is None for outcome in told)

    async def merge(self) -> int:
        """Puts one segment in the place of many small ones; answers how many went."""
        merged = 0
        each = _Each("merging")
        for led in tuple(self._broker.led.values()):
            # Whoever was given no segment since the last look has nothing to merge, and need not be listed.
            added = led.segments.added
            if added == led.looked_at:
                continue
            with each.one(partition=led.partition.name):
                run = small_run(await led.segments.all(), self._settings)
                if run:
                    await self._merge(led, run)
                    merged += len(run)
                else:
                    led.looked_at = added
            await asyncio.sleep(0)
        each.tell()
        return merged

    async def _merge(self, led: Led, run: Sequence[SegmentInfo]) -> None:
        part, world = led.partition, self._world
        writer, buffers = await self._gather(run)
        uid = world.ids.uid("segment")
        base = run[0].base_offset
        key = object_key(part.key, part.epoch, base, uid)
        info = SegmentInfo(
            uid,
            key,
            base,
            run[-1].next_offset,
            sum(len(buffer) for buffer in buffers),
            writer.min_timestamp or 0,
            writer.max_timestamp,
            run[0].epoch,
        )
        with suppress(ObjectExists):
            await world.objects.create(key, buffers)
        request = api.ReplaceSegmentsRequest(
            session_id=led.session,
            leader=leader_ref(part.key, part.epoch),
            segment_uids=[one.uid for one in run],
            segment=segment_of(info),
        )
        await self._broker.ask_as_leader(led, "ReplaceSegments", request)
        led.segments.replace(run, info)
        self._doom([one.key for one in run])
        world.metrics.merged.inc(len(run))
        log.info("segments merged", extra={"partition": part.name, "segments": len(run), "bytes": info.size})

    async def _gather(self, run: Sequence[SegmentInfo]) -> tuple[SegmentWriter, list[bytes]]:
        """The batches of small segments in one."""
        writer = SegmentWriter()
        for info in run:
            parts = await self._world.reader.read(ref_of(info), info.base_offset, info.size * 1000)
            data = b"".join(parts)
            await self._world.work.run(partial(_add_all, writer, data))
        buffers = await self._world.work.run(writer.finish)
        return writer, buffers

    async def delete_doomed(self) -> int:
        """Deletes objects whose grace time is over. One that cannot be deleted goes to the end of the line."""
        count = 0
        each = _Each("deletion")
        for _ in range(len(self._doomed)):
            due, key = self._doomed[0]
            if due > self._world.clock.monotonic() or len(each.problems) == self._settings.delete_failures:
                break
            self._doomed.popleft()
            if await self._delete(key, "retention", each):
                count += 1
            else:
                self._doom([key])
        each.tell()
        return count

    async def _delete(self, key: str, why: str, each: _Each) -> bool:
        """Whether the object is gone."""
        before = len(each.problems)
        with each.one(object=key):
            await self._world.objects.delete(key)
            self._world.metrics.deleted.labels(why).inc()
        return len(each.problems) == before

    async def collect_orphans(self) -> int:
        """Deletes objects that the catalog has not known for long enough. One agent does it for all.

        No wall clock decides, neither ours nor the store's: one that is ahead would take what is about to be committed.
        An agent that begins to look knows of no orphan yet, so a restart only delays their end.
        """
        broker = self._broker
        if broker.assignment.keeper(broker.view.peers(), _ORPHANS_TASK, broker.name) != broker.name:
            self._unknown = {}
            return 0
        unknown: dict[str, float] = {}
        each = _Each("orphans")
        keys: list[str] = []
        deleted = 0
        async for stored in self._world.objects.find("topic-"):
            keys.append(stored.key)
            if len(keys) >= _ORPHANS_AT_ONCE:
                deleted += await self._look_at(keys, unknown, each)
                keys = []
        deleted += await self._look_at(keys, unknown, each)
        self._unknown = unknown
        if deleted:
            log.info("orphans deleted", extra={"objects": deleted})
        each.tell()
        return deleted

    async def _look_at(self, keys: Sequence[str], unknown: dict[str, float], each: _Each) -> int:
        """Deletes those that are due, and notes the others that the catalog does not know, those that the store did not
        delete, and those that it could not be asked for; answers how many went."""
        most = self._settings.delete_failures
        orphans, certain = [key for key in keys if key in self._unknown], False
        if len(each.problems) < most:
            with each.one(objects=len(keys)):
                orphans, certain = await self._orphans(keys), True
        now = self._world.clock.monotonic()
        count = 0
        for key in orphans:
            since = self._unknown.get(key, now)
            if now - since < self._settings.orphan_grace:
                unknown[key] = since
            elif certain and len(each.problems) < most and await self._delete(key, "orphan", each):
                count += 1
            else:
                unknown[key] = since
        return count

    async def _orphans(self, keys: Sequence[str]) -> list[str]:
        # First what may become a segment, then what is one: a stage that could not be committed any more when the
        # first was asked, and is no segment when the second is, never will be.
        keys = await self._without_stages_in_use(keys)
        if not keys:
            return []
        answer: api.FindObjectsResponse = await self._broker.catalog.once(
            "FindObjects", api.FindObjectsRequest(keys=keys)
        )
        return sorted(set(keys) - set(answer.known))

    async def _without_stages_in_use(self, keys: Sequence[str]) -> list[str]:
        """Leaves out stages that a commit to come may name, however old they are."""
        staged = {name: stage for name in keys if (stage := read_name(name)) is not None}
        if not staged:
            return list(keys)
        fragments = sorted({time.fragment for _, time in staged.values()})
        answer: api.FindWritersResponse = await self._broker.catalog.once(
            "FindWriters", api.FindWritersRequest(fragment_uids=fragments)
        )
        open_to = {
            (key_of(partition), writer.run.fragment_uid): writer.run
            for writer in answer.writers
            for partition in writer.partitions
        }
        in_use = {
            name
            for name, (key, time) in staged.items()
            if (run := open_to.get((key, time.fragment))) is not None
            and may_be_committed(time, run.epoch, run.batch_id)
        }
        return [name for name in keys if name not in in_use]

    async def free_wal(self) -> None:
        """Removes write-ahead files that hold nothing which no segment has, and sees to it that there are not many."""
        each = _Each("wal")
        await self._let_go_of_held(each)
        broker, wal = self._broker, self._world.wal
        too_old = wal.current_file - self._settings.wal_files
        needed = [wal.current_file]
        needed += [one.file for held in broker.held.values() for one in held]
        for led in tuple(broker.led.values()):
            oldest = led.partition.oldest_wal_file
            if oldest is not None:
                needed.append(oldest)
                if oldest < too_old:
                    led.partition.hurry()
        staged, others = broker.edges.oldest_wal_file, min(needed)
        keep = others if staged is None else min(others, staged)
        if not broker.retiring:
            await broker.edges.carry_over(keep)
            await wal.remove_before(keep)
            # Nobody knows when stages will be committed. Those that alone keep a file that is too old are told again,
            # so it goes at the next turn; last, because a disk may be too full to tell anything.
            await broker.edges.carry_over(min(others, too_old))
        each.tell()

    async def _let_go_of_held(self, each: _Each) -> None:
        """What another leader has published meanwhile, or an operator gave up, is not needed any more."""
        broker = self._broker
        for key, held in tuple(broker.held.items()):
            with each.one(topic=key.topic_uid, partition=key.index):
                end = max((header.next_offset for one in held for header in headers(one.data)), default=0)
                request = api.ListSegmentsRequest(partition=partition_ref(key), from_offset=end, limit=1)
                answer: api.ListSegmentsResponse = await broker.catalog.once("ListSegments", request)
                if answer.committed_offset >= end and broker.held.get(key) is held:
                    del broker.held[key]
            if any(isinstance(one, HeadgateError) and one.reason.code in _AWAY for one in each.problems):
                # Nobody answers: the others would wait as long for the same.
                return

    def _doom(self, keys: Sequence[str]) -> None:
        due = self._world.clock.monotonic() + self._settings.delete_grace
        self._doomed.extend((due, key) for key in keys)


def small_run(infos: Sequence[SegmentInfo], settings: UpkeepSettings) -> Sequence[SegmentInfo]:
    """The first run of small segments that is worth merging. All of one epoch: where it began must stay known."""
    start = size = 0
    for at, info in enumerate(infos):
        fits = info.size < settings.merge_below and size + info.size <= settings.merge_most
        follows = at == start or (info.epoch == infos[start].epoch and info.base_offset == infos[at - 1].next_offset)
        if fits and follows:
            size += info.size
            continue
        if at - start >= settings.merge_least:
            return infos[start:at]
        start, size = (at, info.size) if info.size < settings.merge_below else (at + 1, 0)
    return infos[start:] if len(infos) - start >= settings.merge_least else ()


def _add_all(writer: SegmentWriter, data: bytes) -> None:
    for header in headers(data):
        writer.add(memoryview(data)[header.position : header.position + header.size], header)
