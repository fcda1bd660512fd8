"""The log of this agent: which partitions it leads, from taking the lead to losing it, and what is asked of them.

A look compares what this agent should lead (`assignment`) with what it does: it asks the catalog for what is missing,
hands over what belongs to another, lets go of what the catalog says is another's. A look follows every change of the
view, and comes by itself every so often. Looking is all the coordination there is: the catalog decides who leads, by
epochs, and a partition stops serving by this agent's own clock when its session may have ended.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import Message

from headgate.log import v1 as api
from headgate_agent.log.access import (
    AnswerRoom,
    Bounds,
    FetchedPart,
    FetchPart,
    Leadership,
    OffsetOutOfRange,
    TimedOffset,
    UnknownPartition,
)
from headgate_agent.log.assignment import Assignment
from headgate_agent.log.certainty import Certainty
from headgate_agent.log.contract import Appended, Held, InDoubt, NotLeader, PartitionKey, StaleEpoch
from headgate_agent.log.edge_runs import CatalogRuns, run_of
from headgate_agent.log.edges import Edges, replay
from headgate_agent.log.fetching import Fetching, too_slow
from headgate_agent.log.led import Led
from headgate_agent.log.metadata import LogCatalog, SessionMetadata, key_of, leader_ref, ref
from headgate_agent.log.object_edges import ObjectEdges
from headgate_agent.log.partition import Partition
from headgate_agent.log.taking import begin
from headgate_agent.log.transfer import Transfers
from headgate_agent.log.view import CatalogView
from headgate_agent.log.wal import Barrier, WalRefused, WalStopped
from headgate_agent.log.wal_edges import WalEdges
from headgate_agent.log.world import BrokerSettings, Session, World
from headgate_common.errors import HeadgateError
from headgate_common.signals import Signal

__all__ = ["Broker", "BrokerSettings", "Session", "World"]

log = logging.getLogger(__name__)

T = TypeVar("T")

# Internal: what is due in a moment waits for what else is.
_LEAST_PAUSE = 0.02
_WAITS_FOR_VOLUME = "WAITS_FOR_VOLUME"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Why a partition was not granted, and when it is worth asking again."""

    why: str
    leadership: Leadership
    again: float


class Broker:
    """`access.LogAccess`."""

    def __init__(
        self,
        name: str,
        volume_id: str,
        *,
        member: Session,
        view: CatalogView,
        catalog: LogCatalog,
        world: World,
        settings: BrokerSettings | None = None,
    ) -> None:
        self.name = name
        self.view = view
        self.catalog = catalog
        self.world = world
        self.settings = settings or BrokerSettings()
        self.led: dict[PartitionKey, Led] = {}
        # What only the write-ahead log holds, of partitions that are not led now.
        self.held: dict[PartitionKey, list[Held]] = {}
        self.assignment = Assignment()
        self.leaving = False
        # Why it takes no leads though it is a member; empty if it does.
        self.trouble = ""
        # Told the objects of segments that went with the start of a partition.
        self.removed: Callable[[Sequence[str]], None] = lambda keys: None
        self._volume_id = volume_id
        self._member = member
        self.certainty = Certainty(member, world.clock, lambda: self.settings.doubt)
        self._metadata: SessionMetadata | None = None
        self._refused: dict[PartitionKey, _Refusal] = {}
        # The last epoch in which each partition was led here, whether or not it still is.
        self._led_in: dict[PartitionKey, int] = {}
        self._retiring: dict[PartitionKey, asyncio.Task[None]] = {}
        self._acquiring: asyncio.Task[None] | None = None
        self._wake = Signal()
        self._transfers = Transfers(self)
        self._fetching = Fetching(self._leads, world.metrics, self.settings.read_timeout, self.settings.fetch_reads)
        self.edges = self._edges()
        view.listen(self._wake.set)

    def _edges(self) -> Edges:
        world, runs = self.world, CatalogRuns(self.catalog, lambda: self.session)

        def find(key: PartitionKey) -> Partition:
            return self._leads(key).partition

        in_objects = ObjectEdges(
            find,
            runs,
            world.objects,
            work=world.work,
            ids=world.ids,
            source=world.source,
            backoff=self.settings.upload_backoff,
            removed=self._remove,
            keep_bytes=self.settings.staged_bytes,
            most_stages=self.settings.commit_stages,
        )
        return Edges(find, WalEdges(world.wal, find), in_objects, runs, self.confirm)

    @property
    def session(self) -> str | None:
        """The session under which partitions are led now."""
        return self._metadata.session_id if self._metadata is not None else None

    @property
    def retiring(self) -> bool:
        """Whether what only the write-ahead log holds is being sorted out for some partition."""
        return bool(self._retiring)

    async def open(self) -> None:
        """Takes back what the write-ahead log holds. Once, before anything else."""
        replayed = replay(await self.world.wal.recover())
        self.held = replayed.held
        self.edges.restore(replayed)
        if self.held:
            log.info(
                "recovered from the write-ahead log",
                extra={"partitions": len(self.held), "bytes": sum(len(h.data) for v in self.held.values() for h in v)},
            )

    async def run(self) -> None:
        """Leads what it should until it is cancelled."""
        guard = asyncio.ensure_future(self._guard())
        # Without it nobody would be told that a session is certain again, or has ended.
        guard.add_done_callback(lambda _: self._wake.set())
        try:
            while True:
                self._wake.clear()
                if guard.done():
                    guard.result()
                if self.world.wal.stopped is not None:
                    raise WalStopped(self.world.wal.stopped)
                self._look()
                await self._wake.wait(self._until_next_look())
        finally:
            guard.cancel()

    async def leave(self) -> None:
        """Hands over everything, as well as it can in its time; what is left is released or waits for its volume."""
        self.leaving = True
        try:
            async with asyncio.timeout(self.settings.leave_timeout):
                await self._transfers.hand_over_all()
        except TimeoutError:
            log.warning("not everything was handed over in time", extra={"partitions": len(self.led)})
        await self._release(list(self.led.values()))

    def forsake(self, reason: str) -> None:
        """Stops to lead, at once and for good: nothing more is uploaded or handed over, and what only the write-ahead
        log holds stays there."""
        self.leaving = True
        for led in tuple(self.led.values()):
            self.retire(led, reason)

    async def close(self) -> None:
        """Ends everything that is left. Nothing is acknowledged any more."""
        for led in tuple(self.led.values()):
            self.retire(led, "the agent stops")
        if self._metadata is not None:
            self._metadata.close()
        tasks = [*self._retiring.values(), *([self._acquiring] if self._acquiring else [])]
        if self._acquiring is not None:
            self._acquiring.cancel()
        await self._transfers.close()
        await self.edges.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.world.wal.close()

    async def produce(self, key: PartitionKey, batches: bytes | memoryview) -> Appended:
        led = await self._surely(key)
        metrics, clock = self.world.metrics, self.world.clock
        started = clock.monotonic()
        try:
            appended = await led.partition.produce(batches)
        except Exception as error:
            metrics.refused.labels(type(error).__name__).inc()
            raise
        metrics.produce_seconds.observe(clock.monotonic() - started)
        metrics.bytes_in.inc(len(batches))
        return appended

    async def fetch(
        self,
        parts: Sequence[FetchPart],
        *,
        max_wait: float,
        min_bytes: int,
        max_bytes: int,
        room: AnswerRoom | None = None,
    ) -> list[FetchedPart]:
        while True:
            answer = await self._fetching.fetch(
                parts, max_wait=max_wait, min_bytes=min_bytes, max_bytes=max_bytes, room=room
            )
            doubted = next((part.key for part, each in zip(parts, answer, strict=True) if _doubted(each)), None)
            if doubted is None:
                return answer
            with suppress(NotLeader, UnknownPartition):
                await self._surely(doubted)

    async def confirm(self, key: PartitionKey) -> None:
        await self._surely(key)

    async def _surely(self, key: PartitionKey) -> Led:
        """The leadership, once it is certain; without waiting if it is now."""
        while True:
            try:
                return self._leads(key)
            except InDoubt:
                await self.led[key].partition.certain()

    def bounds(self, key: PartitionKey) -> Bounds:
        return self._leads(key).bounds

    async def size(self, key: PartitionKey) -> int:
        """Bytes of what can be read, as they are stored."""
        return await self._in_time((await self._surely(key)).size())

    async def records(self, key: PartitionKey, offset: int, max_bytes: int) -> bytes:
        """Acknowledged batches from the one that holds `offset` on, without waiting for more."""
        led = await self._surely(key)
        return b"".join(await self._in_time(led.read(offset, max_bytes)))

    async def offset_at(self, key: PartitionKey, timestamp: int) -> TimedOffset | None:
        return await self._in_time((await self._surely(key)).offset_at(timestamp))

    async def largest_timestamp(self, key: PartitionKey) -> TimedOffset | None:
        return await self._in_time((await self._surely(key)).largest_timestamp())

    async def _in_time(self, reading: Awaitable[T]) -> T:
        """What is read of segments, or an error that says to ask again."""
        seconds = self.settings.read_timeout
        try:
            async with asyncio.timeout(seconds):
                return await reading
        except TimeoutError:
            raise too_slow(seconds) from None

    def epoch_end(self, key: PartitionKey, epoch: int) -> tuple[int, int]:
        return self._leads(key).epoch_end(epoch)

    async def delete_records(self, key: PartitionKey, before: int) -> int:
        led = await self._surely(key)
        if not 0 <= before <= led.partition.durable:
            raise OffsetOutOfRange(f"{led.partition.name} ends at {led.partition.durable}, before {before}")
        if led.topic.internal:
            # Whoever reads an edge trims it with every batch and keeps its own position: the catalog is told in time,
            # and until then a new leader still has what was trimmed.
            led.trim(before)
            return led.partition.log_start
        if before > led.partition.committed:
            await led.partition.flush()
        await self.trim(led, before)
        return led.partition.log_start

    async def trim(self, led: Led, log_start: int) -> int:
        """Moves the start of a partition forward, in the catalog too; answers how many segments went with it."""
        gone = led.trim(log_start)
        try:
            await led.partition.tell_trim()
        except NotLeader as error:
            self.retire(led, str(error), type(error))
            raise
        return gone

    async def ask_as_leader(self, led: Led, method: str, request: Message) -> Any:
        """Asks the catalog for something that only the leader may; what it refuses ends the leadership."""
        try:
            return await self.catalog.ask(method, request, wanted=lambda: led.partition.lost is None)
        except HeadgateError as error:
            if error.reason.name in ("STALE_EPOCH", "SESSION_EXPIRED", "GRANT_CONFLICT"):
                self.retire(led, str(error))
                raise NotLeader(str(error)) from error
            raise

    def retire(self, led: Led, reason: str, kind: type[NotLeader] = NotLeader) -> None:
        """Ends a leadership here. What only the write-ahead log holds is kept for the next one."""
        key = led.partition.key
        if self.led.get(key) is not led:
            return
        del self.led[key]
        led.partition.lose(reason, kind)
        self.world.metrics.lost.inc()
        log.info("partition no longer led", extra=self._fields(led, reason=reason))
        self._retiring[key] = asyncio.ensure_future(self._retire(led))

    def _remove(self, keys: Sequence[str]) -> None:
        self.removed(keys)

    def wake(self) -> None:
        self._wake.set()

    def _leads(self, key: PartitionKey) -> Led:
        led = self.led.get(key)
        if led is not None and led.partition.leads:
            return led
        if led is not None and led.partition.lost is None and self._in_doubt():
            raise InDoubt(key, f"{led.partition.name}: it is not certain that this agent still leads it")
        topic = self.view.topic_by_uid(key.topic_uid)
        if topic is None or not 0 <= key.index < topic.partitions:
            raise UnknownPartition(f"there is no partition {key.index} of topic {key.topic_uid}")
        leadership = self.view.leadership(key)
        who = f"{leadership.leader} does" if leadership.leader not in ("", self.name) else leadership.waiting
        raise NotLeader(f"{topic.name}/{key.index}: this agent does not lead it{f'; {who}' if who else ''}")

    async def _retire(self, led: Led) -> None:
        key = led.partition.key
        try:
            # What was on its way into the write-ahead log is there now, or never will be.
            await self.world.wal.append(Barrier())
        except WalRefused as error:
            # A full disk took nothing of what came with it: that never will be there.
            log.warning("write-ahead log refused", extra={"error": str(error)})
        except WalStopped as error:
            log.warning("write-ahead log stopped", extra={"error": str(error)})
        remains = led.partition.remains()
        if remains and self.view.topic_by_uid(key.topic_uid) is not None:
            self.held[key] = remains
        led.partition.close()
        if self._retiring.get(key) is asyncio.current_task():
            del self._retiring[key]
        self._wake.set()

    async def _guard(self) -> None:
        """Ends every leadership when the session has ended, or may have for too long, and looks again when there is
        another. Who waits for a session in doubt is told when it is certain again."""
        doubted, certain_until = False, math.inf
        while True:
            in_doubt = self._in_doubt()
            # What was in doubt and is certain again between two looks was never seen to be, but others wait for it.
            doubted = doubted or self.world.clock.monotonic() >= certain_until
            if not in_doubt and self._member.session != self.session:
                self._follow_session()
                self._wake.set()
            elif doubted and self._member.session is not None:
                for led in self.led.values():
                    led.partition.renewed()
                self._wake.set()
            doubted, certain_until = in_doubt, self._member.valid_until
            if await self._member.news(self._until_in_question(in_doubt)):
                doubted = True

    def _until_in_question(self, in_doubt: bool) -> float:
        """Seconds until what is known of the session holds no more, if nothing is heard of it."""
        left = self._member.valid_until - self.world.clock.monotonic()
        if in_doubt:
            left += self.settings.doubt
        # Where it has ended already there is nothing but news to wait for.
        return min(max(left, 0.001), self.settings.guard) if left > 0 else self.settings.guard

    def _in_doubt(self) -> bool:
        """Whether the session of what is led was not renewed in time, and may live on all the same."""
        return self.certainty.in_doubt(self.session)

    def _follow_session(self) -> None:
        """Ends what was led under another session than there is. In doubt that is for later."""
        session = self._member.session
        if session == self.session or (session is None and self._in_doubt()):
            return
        for led in tuple(self.led.values()):
            if led.session != session:
                self.retire(led, "the session may have ended")
        if self._metadata is not None:
            self._metadata.close()
        if session is None:
            self._metadata = None
        else:
            self._metadata = SessionMetadata(self.catalog, session, self._remove)
        self._refused.clear()

    def _until_next_look(self) -> float:
        now = self.world.clock.monotonic()
        # What was due has just been looked at: it was asked for, or need not be.
        due = [one.again for one in self._refused.values() if one.again > now]
        soonest = min(due, default=now + self.settings.relook)
        return min(max(soonest - now, _LEAST_PAUSE), self.settings.relook)

    def _look(self) -> None:
        self._follow_session()
        self._let_go()
        # In doubt nothing is asked for or handed over: the guard wakes it when it is certain again.
        if self._in_doubt() or self.session is None or self.view.revision == 0:
            return
        self._compare_stores()
        if self.trouble:
            return
        wanted = self.assignment.leaders(
            self.view.peers(), self.view.topics(), without=self.name if self.leaving else ""
        )
        self._transfers.look(wanted)
        if self.leaving or self._acquiring is not None:
            return
        missing = [key for key in wanted if self._should_ask(key, wanted[key])]
        if missing:
            asked = missing[: self.settings.acquire_partitions]
            self._acquiring = asyncio.ensure_future(self._acquire(self.session, asked))

    def _compare_stores(self) -> None:
        """What one agent uploads to a store of its own is lost to the others: better not to begin."""
        own = self.view.peer(self.name)
        others = [
            peer.name
            for peer in self.view.peers()
            if own and own.store_id and peer.group == own.group and peer.store_id not in ("", own.store_id)
        ]
        trouble = ""
        if others:
            trouble = (
                f"agent {', '.join(sorted(others))} of the same group uses another object store: give all of them the "
                "same log.object_store"
            )
        if trouble != self.trouble:
            self.trouble = trouble
            if trouble:
                log.error("object stores differ", extra={"agents": ",".join(sorted(others))})
            else:
                log.info("object stores agree")

    def _let_go(self) -> None:
        """Of what is another's by now, is gone, or has failed."""
        for key, led in tuple(self.led.items()):
            topic = self.view.topic_by_uid(key.topic_uid)
            leadership = self.view.leadership(key)
            if led.partition.lost is not None:
                # Whatever made it fail may do so again at once.
                self._refuse(key, led.partition.lost)
                self.retire(led, led.partition.lost)
            elif topic is None:
                # Unless the view is older than the grant.
                if led.topic.revision <= self.view.revision:
                    self.retire(led, "the topic is gone")
            elif leadership.epoch > led.partition.epoch:
                self.retire(led, f"{leadership.leader or 'nobody'} leads it now", StaleEpoch)
            elif topic.revision != led.topic.revision:
                led.retune(topic, self.settings.limits)
        if self.view.revision:
            for key in [key for key in self.held if self.view.topic_by_uid(key.topic_uid) is None]:
                del self.held[key]
            for key in [key for key in self._led_in if self.view.topic_by_uid(key.topic_uid) is None]:
                del self._led_in[key]
            self.edges.forget(lambda uid: self.view.topic_by_uid(uid) is not None)

    def _should_ask(self, key: PartitionKey, wanted: str) -> bool:
        if key in self.led or key in self._retiring:
            return False
        leadership = self.view.leadership(key)
        leader = self.view.peer(leadership.leader)
        if leadership.leader not in ("", self.name) and leader is not None and leader.present:
            return False
        mine = self.name in (wanted, leadership.leader)
        if not mine and not (leadership.volume_id and leadership.volume_id == self._volume_id):
            return False
        refusal = self._refused.get(key)
        return refusal is None or refusal.leadership != leadership or self.world.clock.monotonic() >= refusal.again

    async def _acquire(self, session: str, keys: Sequence[PartitionKey]) -> None:
        try:
            request = api.AcquirePartitionsRequest(
                session_id=session,
                partitions=[ref(key) for key in keys],
                ended=[leader_ref(key, self._led_in[key]) for key in keys if key in self._led_in],
            )
            answer: api.AcquirePartitionsResponse = await self.catalog.once("AcquirePartitions", request)
            for acquired in answer.partitions:
                self._take(session, acquired)
        except HeadgateError as error:
            log.warning("partitions were not acquired", extra={"error": str(error), "partitions": len(keys)})
            for key in keys:
                self._refuse(key, str(error))
        except Exception as error:
            log.exception("partitions were not acquired", extra={"partitions": len(keys)})
            for key in set(keys) - set(self.led):
                self._refuse(key, repr(error))
        finally:
            self._acquiring = None
            self._wake.set()

    def _refuse(self, key: PartitionKey, why: str) -> None:
        # Who waits for a volume is woken by the watch; everything else passes by itself.
        pause = self.settings.relook if why == _WAITS_FOR_VOLUME else self.settings.retry
        again = self.world.clock.monotonic() + pause * self.world.source.uniform(0.8, 1.2)
        known = self._refused.get(key)
        self._refused[key] = _Refusal(why, self.view.leadership(key), again)
        if known is None or known.why != why:
            log.info("partition not granted", extra={"topic": key.topic_uid, "partition": key.index, "reason": why})

    def _take(self, session: str, acquired: api.AcquiredPartition) -> None:
        """Begins to lead what was granted."""
        key = key_of(acquired.partition)
        topic = self.view.topic_by_uid(key.topic_uid)
        if not acquired.epoch or topic is None:
            self._refuse(key, acquired.refusal or "the topic is not known here yet")
            return
        if self._metadata is None or self._metadata.session_id != session:
            return
        if self.leaving:
            # Asked for before the agent began to leave: the others were given back, and this goes with the session.
            return
        try:
            led = begin(
                acquired,
                topic,
                self.held.get(key, ()),
                world=self.world,
                settings=self.settings,
                catalog=self.catalog,
                metadata=self._metadata,
                member=self._member,
            )
        except (NotLeader, ValueError) as error:
            log.error("partition cannot be recovered", extra={"topic": topic.name, "partition": key.index})
            self._refuse(key, str(error))
            return
        self.held.pop(key, None)
        self._refused.pop(key, None)
        self.edges.learn(key, [run_of(run) for run in acquired.runs])
        self.led[key], self._led_in[key] = led, led.partition.epoch
        self.world.metrics.acquired.inc()
        log.info("partition led", extra=self._fields(led, offset=led.partition.next, committed=led.partition.committed))

    async def _release(self, leds: Iterable[Led]) -> None:
        """Gives partitions back, so that others need not wait for the session to end."""
        released: list[api.ReleasedPartition] = []
        for led in leds:
            part = led.partition
            flushed = part.committed == part.next and not led.bound_to_volume
            self.retire(led, "released")
            released.append(api.ReleasedPartition(leader=leader_ref(part.key, part.epoch), flushed=flushed))
        if not released or self.session is None:
            return
        try:
            await self.catalog.once(
                "ReleasePartitions", api.ReleasePartitionsRequest(session_id=self.session, partitions=released)
            )
        except HeadgateError as error:
            log.info("partitions were not released", extra={"error": str(error)})

    @staticmethod
    def _fields(led: Led, **more: object) -> dict[str, object]:
        return {"topic": led.topic.name, "partition": led.partition.key.index, "epoch": led.partition.epoch, **more}


def _doubted(part: FetchedPart) -> bool:
    return isinstance(part.error, InDoubt)
