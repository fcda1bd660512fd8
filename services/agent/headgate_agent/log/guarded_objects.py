"""An object store within bounds: uploads at once, time for each request, reads tried again; and everything counted."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import TypeVar

from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.objects import ObjectExists, ObjectMissing, Objects, ObjectStoreFailed, StoredObject
from headgate_common.backoff import Backoff

T = TypeVar("T")


class GuardedObjects:
    """`Objects` around another. A `create` is not repeated here: whoever asks must know that it may have happened."""

    def __init__(
        self,
        inner: Objects,
        metrics: LogMetrics,
        *,
        uploads: int,
        reads: int,
        timeout: float,
        source: random.Random,
        backoff: Backoff | None = None,
        attempts: int = 4,
    ) -> None:
        """`attempts` is how often a read is tried."""
        self._inner = inner
        self._metrics = metrics
        self._uploads = asyncio.Semaphore(uploads)
        self._reads = asyncio.Semaphore(reads)
        self._timeout = timeout
        self._attempts = attempts
        self._random = source
        self._backoff = backoff or Backoff(initial=0.05, cap=2.0)

    async def create(self, key: str, buffers: Sequence[bytes]) -> None:
        async with self._uploads:
            await self._ask("create", self._inner.create(key, buffers))
        self._metrics.object_bytes.labels("create").inc(sum(len(part) for part in buffers))

    async def read(self, key: str, start: int, length: int) -> bytes:
        for attempt in range(self._attempts):
            try:
                async with self._reads:
                    data = await self._ask("read", self._inner.read(key, start, length))
                self._metrics.object_bytes.labels("read").inc(length)
                return data
            except ObjectStoreFailed:
                if attempt == self._attempts - 1:
                    raise
            await asyncio.sleep(self._backoff.delay(attempt, self._random))
        raise AssertionError("the last attempt has answered or raised")

    async def delete(self, key: str) -> None:
        await self._ask("delete", self._inner.delete(key))

    async def find(self, prefix: str) -> AsyncIterator[StoredObject]:
        self._metrics.object_requests.labels("find", "OK").inc()
        async for found in self._inner.find(prefix):
            yield found

    async def _ask(self, operation: str, call: Awaitable[T]) -> T:
        outcome = "OK"
        try:
            async with asyncio.timeout(self._timeout):
                return await call
        except TimeoutError as error:
            outcome = "TIMED_OUT"
            raise ObjectStoreFailed(f"no answer within {self._timeout:g} s") from error
        except (ObjectExists, ObjectMissing, ObjectStoreFailed) as error:
            outcome = type(error).__name__
            raise
        finally:
            self._metrics.object_requests.labels(operation, outcome).inc()
