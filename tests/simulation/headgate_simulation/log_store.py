"""The object store of a run: in memory, shared by all agents, and outliving each of them.

A request takes time and travels by itself: one whose sender has died or given up may still be carried out. A request
may fail before or after it was carried out, and its sender cannot tell which; or it may take longer than anyone waits.
The store has a clock of its own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextvars import Context
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from headgate_agent.log.objects import ObjectExists, ObjectMissing, ObjectStoreFailed, StoredObject
from headgate_simulation.loop import Killed, SimulationLoop
from headgate_simulation.processes import EPOCH, Environment

T = TypeVar("T")


@dataclass(slots=True)
class StoreTrouble:
    """What is wrong between one agent and the store just now. Changed by `log_faults.py`."""

    # Shares of requests that fail before, or after, they were carried out.
    fails_before: float = 0.0
    fails_after: float = 0.0
    # How much longer each request takes at most, in seconds.
    delay: float = 0.0
    # Whether the process dies at its next upload: "before" it, "after" it, or not at all.
    dies: str = ""
    # Whether the process is paused when its next upload is under way.
    pauses: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    data: bytes
    modified: datetime


class ObjectStore:
    def __init__(self, loop: SimulationLoop, delay: float) -> None:
        self.objects: dict[str, Stored] = {}
        self.loop = loop
        # How long a request takes at most.
        self.delay = delay
        # Told of every object that is deleted.
        self.deleted: Callable[[str], None] = lambda key: None

    def create(self, key: str, data: bytes) -> bool:
        """Whether it was not there."""
        if key in self.objects:
            return False
        self.objects[key] = Stored(data, EPOCH + timedelta(seconds=self.loop.time()))
        return True

    def delete(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            self.deleted(key)


class SimulatedObjects:
    """`Objects` as one process uses it."""

    def __init__(
        self,
        store: ObjectStore,
        environment: Environment,
        trouble: StoreTrouble,
        die: Callable[[], None],
        pause: Callable[[], None],
        outside: Context,
    ) -> None:
        """`outside` is where requests travel: in no process, so that they arrive whatever becomes of their sender."""
        self._store = store
        self._environment = environment
        self._trouble = trouble
        self._die = die
        self._pause = pause
        self._outside = outside
        self._source: random.Random = environment.random

    async def create(self, key: str, buffers: Sequence[bytes]) -> None:
        self._environment.domain.check()
        data = b"".join(buffers)
        if self._trouble.dies == "before":
            self._dies()
        if self._trouble.pauses:
            self._trouble.pauses = False
            self._pause()
        made: bool = await self._request(lambda: self._store.create(key, data))
        if self._trouble.dies == "after":
            self._dies()
        if not made:
            raise ObjectExists(key)

    async def read(self, key: str, start: int, length: int) -> bytes:
        stored = await self._request(lambda: self._store.objects.get(key))
        if stored is None:
            raise ObjectMissing(key)
        data = stored.data[start : start + length]
        if len(data) != length:
            raise ObjectStoreFailed(f"{key}: {len(data)} bytes from {start}, not {length}")
        return data

    async def delete(self, key: str) -> None:
        self._environment.domain.check()
        await self._request(lambda: self._store.delete(key))

    async def find(self, prefix: str) -> AsyncIterator[StoredObject]:
        found = await self._request(
            lambda: [
                StoredObject(key, len(stored.data), stored.modified)
                for key, stored in sorted(self._store.objects.items())
                if key.startswith(prefix)
            ]
        )
        for one in found:
            yield one

    async def _request(self, carry_out: Callable[[], T]) -> T:
        trouble, source, loop = self._trouble, self._source, self._store.loop
        answer: asyncio.Future[T] = loop.create_future()
        there = source.random() * (self._store.delay + trouble.delay)
        back = source.random() * self._store.delay
        fate = source.random()
        before, after = trouble.fails_before, trouble.fails_before + trouble.fails_after

        def arrives() -> None:
            if fate < before:
                loop.call_later(back, fails, "before")
                return
            result = carry_out()
            if fate < after:
                loop.call_later(back, fails, "after")
            else:
                loop.call_later(back, answers, result)

        def fails(when: str) -> None:
            if not answer.done():
                answer.set_exception(ObjectStoreFailed(f"the connection broke {when} the request was carried out"))

        def answers(result: T) -> None:
            if not answer.done():
                answer.set_result(result)

        loop.call_later(there, arrives, context=self._outside)
        return await answer

    def _dies(self) -> None:
        self._trouble.dies = ""
        self._die()
        raise Killed(self._environment.name)
