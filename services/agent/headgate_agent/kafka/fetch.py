"""Fetch: reads partitions that this agent leads, and waits where there is too little."""

from __future__ import annotations

import logging
import uuid

from kio.schema.errors import ErrorCode

from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.kafka.errors import KafkaError, translate
from headgate_agent.kafka.fetch_codec import FetchItem, FetchRequest, FetchResult
from headgate_agent.kafka.leader_hints import LeaderHints
from headgate_agent.kafka.topics import TopicNames
from headgate_agent.kafka.turns import Turns
from headgate_agent.log.access import AnswerRoom, Bounds, FetchedPart, FetchPart, LogAccess, certain_bounds
from headgate_agent.log.contract import PartitionKey

log = logging.getLogger(__name__)

_OTHER_LEADER = (ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch)
# The Java client takes any other code in the answer to a fetch for a defect, and its application gets an exception.
_UNDERSTOOD = frozenset(
    (
        *_OTHER_LEADER,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.offset_out_of_range,
        ErrorCode.topic_authorization_failed,
        ErrorCode.corrupt_message,
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_server_error,
    )
)


def check_epoch(current: int, bounds: Bounds) -> None:
    """Refuses a client that knows another leader; one that says nothing (-1) is believed."""
    if current >= 0 and current != bounds.epoch:
        newer = current > bounds.epoch
        raise KafkaError(ErrorCode.unknown_leader_epoch if newer else ErrorCode.fenced_leader_epoch)


class Fetch:
    def __init__(self, access: LogAccess, topics: TopicNames, hints: LeaderHints, limits: KafkaLimits) -> None:
        self._access, self._topics, self._hints, self._limits = access, topics, hints, limits

    async def __call__(self, request: FetchRequest, room: AnswerRoom | None = None) -> list[FetchResult]:
        """In the order of the request; the records take `room`."""
        if request.session_id != 0 and request.session_epoch > 0:
            raise KafkaError(ErrorCode.fetch_session_id_not_found)
        results: list[FetchResult] = []
        parts: list[FetchPart] = []
        wanted: list[FetchResult] = []
        turns = Turns(self._limits.turn_items)
        for item in request.items:
            await turns.pass_on()
            result = FetchResult(item.topic, item.partition)
            results.append(result)
            try:
                key = self._key(item)
                check_epoch(item.current_epoch, await certain_bounds(self._access, key))
                parts.append(FetchPart(key, item.offset, max(item.max_bytes, 0)))
                wanted.append(result)
            except Exception as error:
                self._fail(result, error)
        if not parts:
            return results
        # An error is told at once.
        waits = len(parts) == len(results)
        fetched = await self._access.fetch(
            parts,
            max_wait=min(max(request.max_wait_ms, 0) / 1000, self._limits.fetch_wait) if waits else 0.0,
            min_bytes=max(request.min_bytes, 0),
            max_bytes=min(max(request.max_bytes, 1), self._limits.fetch_bytes),
            room=room,
        )
        for result, part in zip(wanted, fetched, strict=True):
            self._fill(result, part)
        return results

    def _key(self, item: FetchItem) -> PartitionKey:
        found = self._topics.partition(item.topic, item.partition)
        if found is None:
            by_id = isinstance(item.topic, uuid.UUID) and self._topics.find(item.topic) is None
            raise KafkaError(ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition)
        return found[1]

    def _fill(self, result: FetchResult, part: FetchedPart) -> None:
        if part.bounds is not None:
            result.high_watermark, result.log_start = part.bounds.high_watermark, part.bounds.log_start
        if part.error is not None:
            self._fail(result, part.error)
        else:
            result.batches = part.batches

    def _fail(self, result: FetchResult, error: Exception) -> None:
        refused = translate(error)
        result.error_code = refused.code if refused.code in _UNDERSTOOD else ErrorCode.kafka_storage_error
        topic = self._topics.find(result.topic)
        if refused.code in _OTHER_LEADER and topic is not None:
            result.leader = self._hints.find(topic.uid, result.partition)
        if refused.code is ErrorCode.unknown_server_error:
            log.error("fetch failed", extra={"topic": str(result.topic), "partition": result.partition}, exc_info=error)
