"""Produce: each partition is answered for itself, when its records are as durable as its topic promises."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Sequence

from kio.schema.errors import ErrorCode

from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.kafka.connection import Client, GiveUp
from headgate_agent.kafka.errors import KafkaError, translate
from headgate_agent.kafka.leader_hints import LeaderHints
from headgate_agent.kafka.produce_codec import ProducePart, ProduceRequest, ProduceResult
from headgate_agent.kafka.topics import TopicNames
from headgate_agent.kafka.turns import Turns
from headgate_agent.log.access import LogAccess
from headgate_agent.log.contract import PartitionKey

log = logging.getLogger(__name__)

NO_ACKS = 0
_ACKS = (-1, NO_ACKS, 1)
# To begin with an append takes about as long as so many other items.
_PART_ITEMS = 20


class Produce:
    def __init__(self, access: LogAccess, topics: TopicNames, hints: LeaderHints, limits: KafkaLimits) -> None:
        self._access, self._topics, self._hints, self._limits = access, topics, hints, limits

    async def __call__(self, request: ProduceRequest, client: Client) -> list[ProduceResult]:
        """In the order of the request. `GiveUp` if something failed and the client wants no answer."""
        if request.transactional_id is not None:
            raise KafkaError(ErrorCode.transactional_id_authorization_failed, "transactions are not supported")
        if request.acks not in _ACKS:
            raise KafkaError(ErrorCode.invalid_required_acks, f"acks = {request.acks}")
        tasks = await self._begin(request.parts, client)
        await _settle(tasks, self._timeout(request))
        turns = Turns(self._limits.turn_items)
        results: list[ProduceResult] = []
        for part, task in zip(request.parts, tasks, strict=True):
            await turns.pass_on()
            results.append(await self._result(part, task))
        if request.acks == NO_ACKS and (failed := next((one for one in results if one.error_code), None)):
            raise GiveUp(f"{failed.topic}/{failed.partition}: {ErrorCode(failed.error_code).name}: {failed.message}")
        return results

    async def _begin(self, parts: Sequence[ProducePart], client: Client) -> list[asyncio.Task[ProduceResult]]:
        """One task each, also where there is only one: tasks begin in the order in which they are made, over all
        requests of a connection, and so do appends. So one that lets others have their turn between its parts goes
        before those that came later."""
        tasks: list[asyncio.Task[ProduceResult]] = []
        turns = Turns(self._limits.turn_items)
        async with client.beginning:
            try:
                for part in parts:
                    tasks.append(asyncio.ensure_future(self._append(part)))
                    await turns.pass_on(_PART_ITEMS)
            except BaseException:
                for task in tasks:
                    task.cancel()
                raise
        return tasks

    async def _result(self, part: ProducePart, task: asyncio.Task[ProduceResult]) -> ProduceResult:
        if task.cancelled():
            # What has begun may yet be stored: the client asks again, with the same sequence if it is idempotent.
            return ProduceResult(part.topic, part.partition, ErrorCode.request_timed_out)
        result = task.result()
        if result.error_code:
            return result
        try:
            await self._access.confirm(self._key(part))
        except Exception as error:
            return self._refused(part, translate(error))
        return result

    def _timeout(self, request: ProduceRequest) -> float:
        """Seconds. Who wants no answer does not know that it came too late."""
        most = self._limits.produce_timeout
        if request.acks == NO_ACKS:
            return most
        return min(max(request.timeout_ms / 1000, self._limits.timeout_min), most)

    async def _append(self, part: ProducePart) -> ProduceResult:
        try:
            appended = await self._access.produce(self._key(part), part.records or b"")
        except Exception as error:
            refused = translate(error)
            if refused.code is ErrorCode.unknown_server_error:
                log.error("produce failed", extra={"topic": part.topic, "partition": part.partition}, exc_info=error)
            return self._refused(part, refused)
        return ProduceResult(part.topic, part.partition, base_offset=appended.base_offset, log_start=appended.log_start)

    def _refused(self, part: ProducePart, refused: KafkaError) -> ProduceResult:
        result = ProduceResult(part.topic, part.partition, refused.code, message=refused.message)
        topic = self._topics.find(part.topic)
        if refused.code is ErrorCode.not_leader_or_follower and topic is not None:
            result.leader = self._hints.find(topic.uid, part.partition)
        return result

    def _key(self, part: ProducePart) -> PartitionKey:
        found = self._topics.partition(part.topic, part.partition)
        if found is None:
            raise KafkaError(ErrorCode.unknown_topic_or_partition)
        topic, key = found
        if topic.internal:
            raise KafkaError(ErrorCode.topic_authorization_failed, "the topic belongs to a query")
        if not part.records:
            raise KafkaError(ErrorCode.invalid_record, "no records")
        return key


async def _settle(tasks: Sequence[asyncio.Task[ProduceResult]], timeout: float) -> None:
    """Returns when all have ended; those that take too long are cancelled. One that waits for room would otherwise keep
    its frame while the client sends the next, and nothing would bound how many of them there are."""
    late: Collection[asyncio.Task[ProduceResult]] = tasks
    try:
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=timeout)
    finally:
        for task in late:
            task.cancel()
    if late:
        await asyncio.wait(late)
