"""Calls of Kafka clients for a run: off the event loop, again while that may help, and as errors that a run can report.

Clients block their threads and tell of problems through callbacks, in whichever thread makes a call of theirs. What
they told last is kept here: why no broker answers, or why a record was not taken.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from headgate_agent.fragments.sinks.kafka_client import SINK, Reasons, failure, fenced, may_repeat
from headgate_agent.work import Work
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError

_BACKOFF = Backoff(initial=0.05, cap=1.0)


@dataclass(frozen=True, slots=True)
class KafkaTimings:
    """In seconds."""

    # How long the cluster may not answer before the run ends with an error that may pass.
    patience: float = 30.0
    # The longest that one call blocks its thread, so that a run can be cancelled.
    step: float = 1.0
    # The cluster itself aborts what takes longer, and shuts the producer out.
    transaction: float = 45.0
    closing: float = 3.0


class KafkaCalls:
    """The calls of one run about one topic. `where` is how messages call it."""

    def __init__(
        self,
        where: str,
        waits: Callable[[str], None],
        *,
        clock: Clock,
        source: random.Random,
        blocking: Work,
        timings: KafkaTimings | None = None,
        reasons: Reasons = SINK,
    ) -> None:
        """`waits` is told what keeps a call from being answered, and the empty text when nothing does any more."""
        self.where = where
        self.timings = timings or KafkaTimings()
        self.blocking = blocking
        self.clock = clock
        self.cause: KafkaError | None = None
        # When the open transaction was begun; None while there is none.
        self.begun: float | None = None
        self._waits = waits
        self._random = source
        self._reasons = reasons

    async def once(self, call: Callable[[], Any]) -> Any:
        try:
            return await self.blocking.run(call)
        except KafkaException as error:
            raise self.failed(error.args[0]) from error

    async def repeated(self, call: Callable[[], Any]) -> Any:
        """Makes a call that may be made again until it is answered."""
        until = self.clock.monotonic() + self.timings.patience
        attempt = 0
        while True:
            try:
                answer = await self.blocking.run(call)
                self._waits("")
                return answer
            except KafkaException as error:
                problem: KafkaError = error.args[0]
                pause = _BACKOFF.delay(attempt, self._random)
                hopeless = problem.fatal() or problem.txn_requires_abort() or not may_repeat(problem)
                if hopeless or self._refused() or self.clock.monotonic() + pause > until:
                    raise self.failed(problem) from error
            self._waits(self.failed(problem).message)
            await asyncio.sleep(pause)
            attempt += 1

    async def drain(self, producer: Producer) -> None:
        """Returns when every record is acknowledged, or will never be: the transaction then cannot be committed."""
        await self.repeated(partial(self._drain, producer))

    def _drain(self, producer: Producer) -> None:
        try:
            waiting = producer.flush(self.timings.step)
        except SystemError:
            # So the client calls an error that no call of this producer will survive; the commit says which.
            return
        if waiting:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "records are not acknowledged"))

    def _refused(self) -> bool:
        """Whether the client has said that it will never be let in."""
        return self.cause is not None and self.cause.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL)

    def failed(self, error: KafkaError) -> HeadgateError:
        if fenced(error) and self.begun is not None:
            took = self.clock.monotonic() - self.begun
            if took >= self.timings.transaction * 0.9:
                # Not another run: the cluster aborts what takes too long, and shuts its producer out.
                text = f"{self.where}: a transaction took {took:.0f} s and was aborted"
                return HeadgateError(self._reasons.unavailable, text)
        return failure(error, self.where, self.cause, self._reasons)

    def reported(self, error: KafkaError) -> None:
        """For `error_cb` of a client."""
        self.cause = error

    def delivered(self, error: KafkaError | None, message: Any) -> None:
        """For `on_delivery` of a producer."""
        if error is not None and error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self.cause = error
