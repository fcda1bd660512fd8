"""Which object store this is: agents that lead the same topics must share one, and a wrong setting must not be quiet.

The first agent that uses a store puts an object with a random name of the store into it; the others read that. Each
agent registers with what it found, as a label.
"""

from __future__ import annotations

import asyncio
import logging
import random

from headgate_agent.log.objects import ObjectExists, ObjectMissing, Objects, ObjectStoreFailed
from headgate_common.backoff import Backoff
from headgate_common.ids import Ids

log = logging.getLogger(__name__)

LABEL = "headgate.object_store"
_KEY = "headgate-store"
_ATTEMPTS = 6
# An agent starts without its store rather than not at all, in seconds.
_PATIENCE = 10.0
_BACKOFF = Backoff(initial=0.2, cap=2.0)


async def identity(objects: Objects, ids: Ids, source: random.Random) -> str:
    """The store's identity; empty if the store does not answer, so that an agent can start without it."""
    made = ids.uid("store")
    try:
        async with asyncio.timeout(_PATIENCE):
            for attempt in range(_ATTEMPTS):
                try:
                    return await _identity(objects, made)
                except ObjectStoreFailed as error:
                    log.warning("the object store does not answer", extra={"error": str(error)})
                await asyncio.sleep(_BACKOFF.delay(attempt, source))
    except TimeoutError:
        log.warning("the object store does not answer", extra={"seconds": _PATIENCE})
    return ""


async def _identity(objects: Objects, made: str) -> str:
    try:
        return await _read(objects, len(made))
    except ObjectMissing:
        pass
    try:
        await objects.create(_KEY, [made.encode()])
    except ObjectExists:
        return await _read(objects, len(made))
    return made


async def _read(objects: Objects, length: int) -> str:
    return (await objects.read(_KEY, 0, length)).decode(errors="replace")
