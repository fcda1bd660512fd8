"""Handing partitions over: offered, accepted, flushed, and the grant moved in one transaction of the catalog.

The leader goes on serving until the other agent has accepted; then it takes no more records, uploads what it has, and
completes. So there is no time without a leader but the flush. An offer that is not accepted in time is given up, and
the leader goes on; the next look may offer again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.log import v1 as api
from headgate_agent.log.contract import NotLeader, PartitionKey
from headgate_agent.log.led import Led
from headgate_agent.log.metadata import Together, leader_ref
from headgate_common.errors import HeadgateError

if TYPE_CHECKING:
    from headgate_agent.log.broker import Broker

log = logging.getLogger(__name__)


class Transfers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._moving: dict[PartitionKey, asyncio.Task[None]] = {}
        # Offers that were answered, while they are known.
        self._answered: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._not_before: dict[PartitionKey, float] = {}
        broker.view.listen(self._announce)

    def look(self, wanted: Mapping[PartitionKey, str]) -> None:
        """Answers offers, and offers what belongs to others."""
        self._answer_offers()
        now = self._broker.world.clock.monotonic()
        offers: list[tuple[Led, str]] = []
        for key, led in self._broker.led.items():
            to = self._broker.view.peer(wanted.get(key, ""))
            if to is None or not to.present or to.name == self._broker.name or key in self._moving:
                continue
            if now >= self._not_before.get(key, 0.0):
                offers.append((led, to.name))
        if offers:
            task = self._start(self._offer(offers))
            for led, _ in offers:
                self._moving[led.partition.key] = task

    async def hand_over_all(self) -> None:
        """Returns when every partition is led by another agent, or has nobody to go to and is flushed."""
        broker = self._broker
        self._not_before.clear()
        while broker.led:
            wanted = broker.assignment.leaders(broker.view.peers(), broker.view.topics(), without=broker.name)
            self.look(wanted)
            stay = [led for key, led in broker.led.items() if key not in self._moving]
            if len(stay) == len(broker.led):
                for led in stay:
                    led.partition.seal("the agent stops")
                await asyncio.gather(*(led.partition.flush() for led in stay), return_exceptions=True)
                return
            await asyncio.wait(set(self._moving.values()), return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _answer_offers(self) -> None:
        broker = self._broker
        known = list(broker.view.transfers())
        self._answered &= {transfer.uid for transfer in known}
        pending = [
            transfer
            for transfer in known
            if transfer.to_agent == broker.name
            and transfer.state == api.TRANSFER_STATE_PENDING
            and transfer.uid not in self._answered
        ]
        if pending and broker.session is not None:
            self._answered |= {transfer.uid for transfer in pending}
            self._start(self._answer(broker.session, [transfer.uid for transfer in pending]))

    async def _answer(self, session: str, uids: Sequence[str]) -> None:
        request = api.AnswerTransfersRequest(session_id=session)
        if self._broker.leaving:
            request.rejected.extend(uids)
            request.reason = "this agent stops too"
        else:
            request.accepted.extend(uids)
        try:
            await self._broker.catalog.once("AnswerTransfers", request)
        except HeadgateError as error:
            # The other agent gives up in its own time, or this one answers at its next look.
            log.info("offers were not answered", extra={"error": str(error)})
            self._answered -= set(uids)

    async def _offer(self, offers: Sequence[tuple[Led, str]]) -> None:
        broker = self._broker
        try:
            request = api.StartTransfersRequest(
                session_id=offers[0][0].session,
                offers=[
                    api.TransferOffer(leader=leader_ref(led.partition.key, led.partition.epoch), to_agent=to)
                    for led, to in offers
                ],
            )
            answer: api.StartTransfersResponse = await broker.catalog.once("StartTransfers", request)
            completions = _Completions(broker, offers[0][0].session)
            await asyncio.gather(
                *(
                    self._hand_over(led, transfer, completions)
                    for (led, _), transfer in zip(offers, answer.transfers, strict=True)
                )
            )
        except HeadgateError as error:
            log.warning("partitions were not offered", extra={"error": str(error), "partitions": len(offers)})
        finally:
            again = broker.world.clock.monotonic() + broker.settings.retry
            for led, _ in offers:
                self._moving.pop(led.partition.key, None)
                if led.partition.lost is None:
                    self._not_before[led.partition.key] = again
                else:
                    self._not_before.pop(led.partition.key, None)
            broker.wake()

    async def _hand_over(self, led: Led, transfer: api.Transfer, completions: _Completions) -> None:
        broker, part = self._broker, led.partition
        fields = {"topic": led.topic.name, "partition": part.key.index, "to_agent": transfer.to_agent}
        try:
            async with asyncio.timeout(broker.settings.transfer_timeout):
                accepted = await self._accepted(transfer)
                if accepted:
                    part.seal(f"it is being handed over to {transfer.to_agent}")
                    await part.flush()
            if not accepted:
                broker.world.metrics.transfers.labels("rejected").inc()
                log.info("offer rejected", extra=fields)
                return
            if await completions.complete(transfer.uid):
                broker.retire(led, f"handed over to {transfer.to_agent}")
                broker.world.metrics.transfers.labels("completed").inc()
                log.info("partition handed over", extra=fields)
            else:
                broker.world.metrics.transfers.labels("failed").inc()
                log.warning("hand-over failed", extra={**fields, "error": "it was ended before it was complete"})
                part.unseal()
        except NotLeader as error:
            broker.retire(led, str(error))
        except (TimeoutError, HeadgateError) as error:
            broker.world.metrics.transfers.labels("failed").inc()
            log.warning("hand-over failed", extra={**fields, "error": str(error) or "it took too long"})
            await self._give_up(led, transfer)
            part.unseal()

    async def _accepted(self, transfer: api.Transfer) -> bool:
        """Waits for the other agent's answer."""
        if transfer.state == api.TRANSFER_STATE_FAILED:
            return False
        view = self._broker.view
        while True:
            changed = self._changed
            known = {one.uid: one for one in view.transfers()}.get(transfer.uid)
            if known is not None and known.state == api.TRANSFER_STATE_ACCEPTED:
                return True
            if known is None and view.revision > transfer.revision:
                return False
            await changed.wait()

    async def _give_up(self, led: Led, transfer: api.Transfer) -> None:
        request = api.CompleteTransfersRequest(
            session_id=led.session, failed=[transfer.uid], reason="it was not accepted and flushed in time"
        )
        try:
            await self._broker.catalog.once("CompleteTransfers", request)
        except HeadgateError as error:
            log.info("hand-over was not given up", extra={"error": str(error)})


class _Completions:
    """Completes hand-overs that have come so far at the same time in one call."""

    def __init__(self, broker: Broker, session: str) -> None:
        self._broker = broker
        self._session = session
        self._states: dict[str, int] = {}
        self._together: Together[str] = Together(self._send)

    async def complete(self, uid: str) -> bool:
        """Whether the other agent leads now; otherwise the transfer had ended before, and the leader leads on.
        `NotLeader` if the catalog refuses it."""
        await self._together.put(uid)
        return self._states.pop(uid) == api.TRANSFER_STATE_COMPLETED

    async def _send(self, uids: Sequence[str], wanted: Callable[[], bool]) -> None:
        request = api.CompleteTransfersRequest(session_id=self._session, completed=uids)
        answer: api.CompleteTransfersResponse = await self._broker.catalog.ask(
            "CompleteTransfers", request, wanted=lambda: wanted() and self._broker.session == self._session
        )
        self._states |= {transfer.uid: transfer.state for transfer in answer.transfers}
