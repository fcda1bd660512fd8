"""Removes checkpoints of fragments that will never run again, which nobody else removed.

Whoever is told to forget a fragment for good removes its checkpoint. Where nobody could be told, because the agent was
declared gone before the query ended, the checkpoint stays in the object store that the agents of a group share, and any
of them finds it here. It goes when the catalog has said for the whole grace time that its fragment runs no more, by
this agent's own monotonic clock: one that begins to look only delays it. Removing twice is harmless.

Only the folder in the cluster's own object store is looked through: a place that was chosen with `checkpoints` may hold
those of other clusters, which this one does not know.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Protocol

from headgate.cluster import v1 as cluster
from headgate.cluster.v1 import membership_service_pb2
from headgate_agent.coordinators import Coordinators
from headgate_agent.log.objects import Objects, ObjectStoreFailed
from headgate_agent.work import Work
from headgate_common.clock import Clock
from headgate_common.dispatch import methods
from headgate_common.errors import HeadgateError

log = logging.getLogger(__name__)

_FIND = methods(membership_service_pb2.DESCRIPTOR.services_by_name["MembershipService"])["FindFragments"]
_AT_ONCE = 1000
# Names that can be no fragment's are none of this agent's business.
_UID = re.compile(r"fragment-[0-9a-z]+")

# The uids of all fragments that have a checkpoint.
Find = Callable[[], AsyncIterator[str]]


class Removing(Protocol):
    async def remove(self, fragment_uid: str) -> None: ...


class Leftovers:
    def __init__(
        self,
        find: Find,
        checkpoints: Removing,
        coordinators: Coordinators,
        *,
        clock: Clock,
        source: random.Random,
        interval: float,
        grace: float,
    ) -> None:
        """Times in seconds."""
        self._find = find
        self._checkpoints = checkpoints
        self._coordinators = coordinators
        self._clock = clock
        self._source = source
        self._interval = interval
        self._grace = grace
        # Fragments that run no more, since when this is known here.
        self._over: dict[str, float] = {}

    async def run(self) -> None:
        """Goes on until it is cancelled. What fails is tried again at the next turn."""
        while True:
            await asyncio.sleep(self._interval * self._source.uniform(0.8, 1.0))
            try:
                await self.look()
            except (HeadgateError, ObjectStoreFailed) as error:
                log.info("leftovers cannot be looked for", extra={"error": str(error)})

    async def look(self) -> int:
        """Removes those that are due; answers how many went."""
        listed = sorted({uid async for uid in self._find() if _UID.fullmatch(uid)})
        over: dict[str, float] = {}
        for start in range(0, len(listed), _AT_ONCE):
            some = listed[start : start + _AT_ONCE]
            answer: cluster.FindFragmentsResponse = await self._coordinators.call(
                _FIND, cluster.FindFragmentsRequest(uids=some)
            )
            now = self._clock.monotonic()
            over |= {uid: self._over.get(uid, now) for uid in sorted(set(some) - set(answer.uids))}
        self._over = over
        due = [uid for uid, since in over.items() if self._clock.monotonic() - since >= self._grace]
        for uid in due:
            await self._checkpoints.remove(uid)
            del over[uid]
            log.info("a checkpoint that nobody needs was removed", extra={"fragment": uid})
        return len(due)


def in_folder(folder: Path, work: Work) -> Find:
    """Finds checkpoints as folders in a folder."""

    def names() -> list[str]:
        return [path.name for path in folder.iterdir()] if folder.is_dir() else []

    async def find() -> AsyncIterator[str]:
        for name in await work.run(names):
            yield name.removesuffix(".control")

    return find


def in_objects(objects: Objects, prefix: str) -> Find:
    """Finds checkpoints in an object store, as the first part of keys after `prefix`."""

    async def find() -> AsyncIterator[str]:
        last = ""
        async for stored in objects.find(f"{prefix}/"):
            name = stored.key.removeprefix(f"{prefix}/").partition("/")[0].removesuffix(".control")
            if name != last:
                last = name
                yield name

    return find
