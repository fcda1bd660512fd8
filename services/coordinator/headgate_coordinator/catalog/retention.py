"""What the leader forgets in time: the history of changes, remembered requests, and whatever else has a trim.

A trim is a catalog operation that removes a bounded part of what may go, and says how much it removed. Times are the
catalog's: if that clock jumps, things are forgotten earlier or later than stated, and a watcher is told so
(REVISION_COMPACTED). The last `min_revisions` of the history are kept whatever the clock says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, update

from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import changes, schema
from headgate_coordinator.catalog.requests import forget
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import NOT_LEADER

log = logging.getLogger(__name__)

# Removes up to `limit` things and says how many it removed.
Trim = Callable[[Tx, int], int]


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """Times in seconds."""

    interval: float = 30.0
    # How much one transaction removes.
    batch: int = 500
    # History older than this goes, beyond the last `min_revisions`; beyond `max_revisions` it goes whatever its age.
    history_age: float = 3600.0
    min_revisions: int = 1_000
    max_revisions: int = 200_000
    request_age: float = 24 * 3600.0


def compact(tx: Tx, settings: RetentionSettings, limit: int) -> int:
    """Forgets the oldest part of the history, `limit` revisions at most; how many is the answer."""
    last, compacted = changes.head(tx.connection)
    table = schema.changes.c
    upto = min(last - settings.min_revisions, compacted + limit)
    if upto <= compacted:
        return 0
    young = select(func.min(table.revision)).where(
        table.revision > compacted,
        table.revision <= upto,
        table.time >= tx.now - round(settings.history_age * 1_000_000),
    )
    first_kept = tx.connection.execute(young).scalar_one()
    if first_kept is not None:
        upto = min(upto, max(first_kept - 1, last - settings.max_revisions))
    if upto <= compacted:
        return 0
    tx.connection.execute(update(schema.revision).where(schema.revision.c.id == 1).values(compacted=upto))
    tx.connection.execute(schema.changes.delete().where(table.revision <= upto))
    return upto - compacted


class Retention:
    """Runs every trim every `interval`, while this process leads."""

    def __init__(self, store: Store, settings: RetentionSettings | None = None, trims: Sequence[Trim] = ()) -> None:
        self._store = store
        self._settings = chosen = settings or RetentionSettings()
        self._trims: tuple[Trim, ...] = (
            lambda tx, limit: compact(tx, chosen, limit),
            lambda tx, limit: forget(tx, chosen.request_age, limit),
            *trims,
        )

    async def run(self, term: int) -> None:
        """Goes on until it is cancelled, or until `term` no longer leads (NOT_LEADER).

        After any other failure it tries again at the next interval.
        """
        while True:
            await asyncio.sleep(self._settings.interval)
            try:
                await self.run_once(term)
            except HeadgateError as error:
                if error.reason is NOT_LEADER:
                    raise
                log.warning("old records could not be removed", extra={"error": str(error)})

    async def run_once(self, term: int | None = None) -> int:
        """Removes all that may go now, in bounded parts, letting other writes in between; how much is the answer."""
        return sum([await self._drain(trim, term) for trim in self._trims])

    async def _drain(self, trim: Trim, term: int | None) -> int:
        batch = self._settings.batch
        total = 0
        while True:
            removed = await self._store.write(lambda tx: trim(tx, batch), term)
            total += removed
            if removed < batch:
                return total
