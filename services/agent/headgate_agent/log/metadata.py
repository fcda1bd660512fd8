"""The log's metadata, asked of the coordinator: `contract.Metadata` and what the broker needs beside it.

Every call may be repeated, so each is repeated until it is answered or nobody waits for it any more. Commits and
reservations of many partitions that are wanted at the same time go in one call: while one is on its way the next ones
gather. A call that the catalog refuses as a whole is taken apart, so that one stale leader does not fail the others.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from headgate.log import v1 as api
from headgate.log.v1 import log_metadata_service_pb2
from headgate_agent.coordinators import Coordinators
from headgate_agent.log.contract import NotLeader, PartitionKey, SegmentInfo, StaleEpoch
from headgate_agent.log.producers import Producer, TakenBatch
from headgate_common.backoff import Backoff
from headgate_common.dispatch import methods
from headgate_common.errors import HeadgateError

log = logging.getLogger(__name__)

T = TypeVar("T")

_METHODS = methods(log_metadata_service_pb2.DESCRIPTOR.services_by_name["LogMetadataService"])
_PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
# Internal: what goes in one call to the catalog, and what it lists in one answer.
_MOST_TOGETHER = 500
_SEGMENTS_AT_ONCE = 1000


def passing(error: HeadgateError) -> bool:
    """Whether the same call may be answered another time."""
    return error.reason.code in _PASSING


class LogCatalog:
    """LogMetadataService, by whichever coordinator leads."""

    def __init__(self, coordinators: Coordinators, *, source: random.Random, backoff: Backoff) -> None:
        self._coordinators = coordinators
        self._random = source
        self._backoff = backoff

    async def ask(self, method: str, request: Message, *, wanted: Callable[[], bool] = lambda: True) -> Any:
        """The answer, however long it takes, while it is `wanted`; the service's refusal otherwise."""
        attempt = 0
        while True:
            try:
                return await self._coordinators.call(_METHODS[method], request)
            except HeadgateError as error:
                if not passing(error) or not wanted():
                    raise
                if attempt == 3:
                    log.warning("the coordinator does not answer", extra={"method": method, "error": str(error)})
            await asyncio.sleep(self._backoff.delay(attempt, self._random))
            attempt += 1

    async def once(self, method: str, request: Message) -> Any:
        """One try; whoever asks comes back by itself."""
        return await self._coordinators.call(_METHODS[method], request)

    async def segments(
        self, key: PartitionKey, from_offset: int, until: int, *, wanted: Callable[[], bool] = lambda: True
    ) -> list[SegmentInfo]:
        """The segments that hold offsets of a range, in order; asked for while they are `wanted`."""
        found: list[SegmentInfo] = []
        at = from_offset
        while at < until:
            request = api.ListSegmentsRequest(partition=ref(key), from_offset=at, limit=_SEGMENTS_AT_ONCE)
            answer: api.ListSegmentsResponse = await self.ask("ListSegments", request, wanted=wanted)
            found += [info_of(segment) for segment in answer.segments if segment.base_offset < until]
            if len(answer.segments) < _SEGMENTS_AT_ONCE:
                break
            at = answer.segments[-1].next_offset
        return found


@dataclass(slots=True)
class _Item(Generic[T]):
    what: T
    done: asyncio.Future[None]


class Together(Generic[T]):
    """Gathers what is wanted at the same time into one call."""

    def __init__(self, send: Callable[[Sequence[T], Callable[[], bool]], Awaitable[None]]) -> None:
        self._send = send
        self._waiting: list[_Item[T]] = []
        self._sender: asyncio.Task[None] | None = None

    async def put(self, what: T) -> None:
        item = _Item(what, asyncio.get_running_loop().create_future())
        self._waiting.append(item)
        if self._sender is None:
            self._sender = asyncio.ensure_future(self._run())
        await item.done

    def close(self) -> None:
        if self._sender is not None:
            self._sender.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                items, self._waiting = self._waiting[:_MOST_TOGETHER], self._waiting[_MOST_TOGETHER:]
                await self._deliver([item for item in items if not item.done.done()])
        finally:
            self._sender = None
            for item in self._waiting:
                item.done.cancel()
            self._waiting = []

    async def _deliver(self, items: list[_Item[T]]) -> None:
        if not items:
            return
        try:
            await self._send([item.what for item in items], lambda: any(not item.done.done() for item in items))
        except HeadgateError as error:
            if len(items) > 1 and not passing(error):
                for item in items:
                    await self._deliver([item] if not item.done.done() else [])
                return
            for item in items:
                if not item.done.done():
                    stale = error.reason.name == "STALE_EPOCH"
                    item.done.set_exception(StaleEpoch(str(error)) if stale else NotLeader(str(error)))
            return
        except asyncio.CancelledError:
            for item in items:
                item.done.cancel()
            raise
        for item in items:
            if not item.done.done():
                item.done.set_result(None)


class SessionMetadata:
    """`contract.Metadata` under one session."""

    def __init__(
        self, catalog: LogCatalog, session_id: str, removed: Callable[[Sequence[str]], None] = lambda keys: None
    ) -> None:
        """`removed` is told the objects of segments that went with the start of a partition."""
        self._catalog = catalog
        self.session_id = session_id
        self._removed = removed
        self._commits: Together[api.SegmentCommit] = Together(self._commit)
        self._reservations: Together[api.OffsetReservation] = Together(self._reserve)
        self._trims: Together[api.PartitionTrim] = Together(self._trim)

    async def reserve(self, key: PartitionKey, epoch: int, until: int) -> None:
        await self._reservations.put(api.OffsetReservation(leader=leader_ref(key, epoch), until_offset=until))

    async def commit(self, key: PartitionKey, epoch: int, segment: SegmentInfo, producers: Sequence[Producer]) -> None:
        await self._commits.put(
            api.SegmentCommit(
                leader=leader_ref(key, epoch),
                segment=segment_of(segment),
                producers=[producer_state(producer) for producer in producers],
            )
        )

    async def trim(self, key: PartitionKey, epoch: int, log_start: int) -> None:
        try:
            await self._trims.put(api.PartitionTrim(leader=leader_ref(key, epoch), log_start=log_start))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise NotLeader("the session has ended") from None

    def shown(self, key: PartitionKey, segment: SegmentInfo) -> None:
        return

    def close(self) -> None:
        """The session has ended: whoever still waits is cancelled."""
        self._commits.close()
        self._reservations.close()
        self._trims.close()

    async def _commit(self, commits: Sequence[api.SegmentCommit], wanted: Callable[[], bool]) -> None:
        request = api.CommitSegmentsRequest(session_id=self.session_id, commits=commits)
        await self._catalog.ask("CommitSegments", request, wanted=wanted)

    async def _reserve(self, reservations: Sequence[api.OffsetReservation], wanted: Callable[[], bool]) -> None:
        request = api.ReserveOffsetsRequest(session_id=self.session_id, reservations=reservations)
        await self._catalog.ask("ReserveOffsets", request, wanted=wanted)

    async def _trim(self, trims: Sequence[api.PartitionTrim], wanted: Callable[[], bool]) -> None:
        request = api.TrimPartitionsRequest(session_id=self.session_id, trims=trims)
        answer: api.TrimPartitionsResponse = await self._catalog.ask("TrimPartitions", request, wanted=wanted)
        self._removed([segment.key for segment in answer.removed])


def ref(key: PartitionKey) -> api.PartitionRef:
    return api.PartitionRef(topic_uid=key.topic_uid, index=key.index)


def leader_ref(key: PartitionKey, epoch: int) -> api.LeaderRef:
    return api.LeaderRef(partition=ref(key), epoch=epoch)


def key_of(partition: api.PartitionRef) -> PartitionKey:
    return PartitionKey(partition.topic_uid, partition.index)


def segment_of(info: SegmentInfo) -> api.Segment:
    return api.Segment(
        uid=info.uid,
        key=info.key,
        base_offset=info.base_offset,
        next_offset=info.next_offset,
        bytes=info.size,
        min_timestamp=info.min_timestamp,
        max_timestamp=info.max_timestamp,
        epoch=info.epoch,
    )


def info_of(segment: api.Segment) -> SegmentInfo:
    return SegmentInfo(
        segment.uid,
        segment.key,
        segment.base_offset,
        segment.next_offset,
        segment.bytes,
        segment.min_timestamp,
        segment.max_timestamp,
        segment.epoch,
    )


def producer_state(producer: Producer) -> api.ProducerState:
    return api.ProducerState(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        batches=[
            api.ProducerBatch(
                base_sequence=batch.base_sequence, last_sequence=batch.last_sequence, base_offset=batch.base_offset
            )
            for batch in producer.batches
        ],
    )


def producer_of(state: api.ProducerState) -> Producer:
    return Producer(
        state.producer_id,
        state.producer_epoch,
        [TakenBatch(one.base_sequence, one.last_sequence, one.base_offset, -1) for one in state.batches],
    )
