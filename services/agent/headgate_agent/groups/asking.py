"""Asking the leading coordinator on behalf of a client that waits: what can be repeated is, until its time is up."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message

from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.dispatch import Method
from headgate_common.errors import HeadgateError

_PASSING = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.RESOURCE_EXHAUSTED)
_OTHER_LEADER = "NOT_LEADER"
DEFAULT_BACKOFF = Backoff(initial=0.02, cap=0.5)


class Caller(Protocol):
    """Calls the leading coordinator once; see `coordinators.Coordinators`."""

    async def call(self, method: Method, request: Message, *, timeout: float | None = None) -> Any: ...


class Asking:
    """Contract: a request that is asked here may be repeated without harm: it reads, carries a request id, or is
    checked against an epoch. Raises the last error when the time is up, and at once an error that will not pass."""

    def __init__(self, caller: Caller, clock: Clock, source: random.Random, backoff: Backoff = DEFAULT_BACKOFF) -> None:
        self._caller, self._clock, self._random, self._backoff = caller, clock, source, backoff

    async def once(self, method: Method, request: Message, *, within: float) -> Any:
        return await self._caller.call(method, request, timeout=within)

    async def ask(self, method: Method, request: Message, *, within: float) -> Any:
        deadline = self._clock.monotonic() + within
        attempt = 0
        while True:
            left = deadline - self._clock.monotonic()
            try:
                return await self._caller.call(method, request, timeout=max(left, 0.001))
            except HeadgateError as error:
                pause = max(self._backoff.delay(attempt, self._random), error.retry_after or 0.0)
                passes = error.reason.code in _PASSING or error.reason.name == _OTHER_LEADER
                if not passes or self._clock.monotonic() + pause >= deadline:
                    raise
            await asyncio.sleep(pause)
            attempt += 1
