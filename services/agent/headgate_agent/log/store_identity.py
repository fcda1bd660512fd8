"""Which object store this is: agents that lead the same topics must share one, and a wrong setting must not be quiet.

The first agent that uses a store puts an object with a random name of the store into it; the others read that. Each
agent registers with what it found, as a label. A second object says which catalog knows what is in the store: whatever
that catalog does not know is deleted in time, so an agent of another must not look. A store may be given to another
catalog while agents run: `upkeep` looks again before it deletes.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass

from headgate_agent.errors import CATALOG_MISMATCH
from headgate_agent.log.objects import ObjectExists, ObjectMissing, Objects, ObjectStoreFailed
from headgate_common.backoff import Backoff
from headgate_common.errors import HeadgateError
from headgate_common.ids import UID_LENGTH, Ids

log = logging.getLogger(__name__)

LABEL = "headgate.object_store"
_KEY = "headgate-store"
_CATALOG_KEY = "headgate-catalog"
_CATALOG_LENGTH = len("catalog-") + UID_LENGTH
_BACKOFF = Backoff(initial=0.2, cap=2.0)


@dataclass(frozen=True, slots=True)
class StorePatience:
    """How long an agent that starts waits for its store: it starts without it rather than not at all."""

    seconds: float = 10.0
    attempts: int = 6
    backoff: Backoff = _BACKOFF


DEFAULT_PATIENCE = StorePatience()


async def identity(
    objects: Objects, ids: Ids, source: random.Random, patience: StorePatience = DEFAULT_PATIENCE
) -> str:
    """The store's identity; empty if the store does not answer, so that an agent can start without it."""
    made = ids.uid("store")
    try:
        async with asyncio.timeout(patience.seconds):
            for attempt in range(patience.attempts):
                try:
                    return await _identity(objects, made)
                except ObjectStoreFailed as error:
                    log.warning("the object store does not answer", extra={"error": str(error)})
                await asyncio.sleep(patience.backoff.delay(attempt, source))
    except TimeoutError:
        log.warning("the object store does not answer", extra={"seconds": patience.seconds})
    return ""


async def _identity(objects: Objects, made: str) -> str:
    try:
        return await _read(objects, _KEY, len(made))
    except ObjectMissing:
        pass
    try:
        await objects.create(_KEY, [made.encode()])
    except ObjectExists:
        return await _read(objects, _KEY, len(made))
    return made


async def catalog_of(objects: Objects) -> str:
    """The catalog that the store is of; empty if it is of none, or does not answer: then `claim` finds out."""
    try:
        return await _catalog(objects)
    except ObjectStoreFailed as error:
        log.warning("the object store does not answer", extra={"error": str(error)})
        return ""


async def claim(
    objects: Objects,
    uid: str,
    source: random.Random,
    *,
    adopt: bool = False,
    patience: StorePatience = DEFAULT_PATIENCE,
) -> None:
    """Makes the store that of a catalog, however long the store takes to answer.

    CATALOG_MISMATCH if it is of another, unless it is to be adopted.
    """
    attempt = 0
    while True:
        try:
            return await _claim(objects, uid, adopt)
        except ObjectStoreFailed as error:
            if attempt == patience.attempts:
                log.warning("the object store does not answer", extra={"error": str(error)})
        await asyncio.sleep(patience.backoff.delay(attempt, source))
        attempt += 1


async def _claim(objects: Objects, uid: str, adopt: bool) -> None:
    found = await _catalog(objects)
    if found and found != uid and adopt:
        log.warning("the object store is given to another catalog", extra={"before": found, "catalog": uid})
        await objects.delete(_CATALOG_KEY)
        found = ""
    if not found:
        try:
            await objects.create(_CATALOG_KEY, [uid.encode()])
            return
        except ObjectExists:
            found = await _catalog(objects)
    if found != uid:
        raise _mismatch(found, uid)


async def still_of(objects: Objects, uid: str) -> None:
    """CATALOG_MISMATCH if a store that was claimed has been given to another catalog since. Raises what the store does:
    then nobody knows. One without a mark is nobody else's: whoever takes it over puts the next one there."""
    found = await _catalog(objects)
    if found not in ("", uid):
        raise _mismatch(found, uid)


def _mismatch(found: str, uid: str) -> HeadgateError:
    return HeadgateError(
        CATALOG_MISMATCH,
        f"the object store is of catalog {found}, and the coordinator's is {uid}: correct `log.object_store` or "
        "`coordinator`; to give the store to this catalog, which deletes what it does not know, start the agent "
        "once with --adopt-catalog",
        metadata={"store": found, "catalog": uid},
    )


async def _catalog(objects: Objects) -> str:
    try:
        return await _read(objects, _CATALOG_KEY, _CATALOG_LENGTH)
    except ObjectMissing:
        return ""


async def _read(objects: Objects, key: str, length: int) -> str:
    return (await objects.read(key, 0, length)).decode(errors="replace")
