"""What the leader forgets in time: the history of changes, remembered requests, and whatever else has a trim.

A trim is a catalog operation that removes a bounded part of what may go, and says how much it removed. Ages are by the
catalog's clock, as far as the leader has seen it pass (`steady_time`): a jump forward, or a leader that finds the clock
ahead, deletes nothing that anybody touches within `patience`. Only the history goes by the catalog's clock alone: the
last `min_revisions` are kept whatever it says, and a watcher is told that older ones are gone (REVISION_COMPACTED).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import func, select, update

from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import changes, schema
from headgate_coordinator.catalog.requests import forget
from headgate_coordinator.catalog.steady_time import SteadyTime
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import NOT_LEADER

log = logging.getLogger(__name__)

# Removes up to `limit` things and says how many it removed.
Trim = Callable[[Tx, int], int]


@dataclass(frozen=True, slots=True)
class Aged:
    """What goes when it is older than `age` seconds: `forget(tx, age, limit)` removes up to `limit` of what is older
    than that by `tx.now`, and says how many it removed."""

    age: float
    forget: Callable[[Tx, float, int], int]


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """Times in seconds."""

    interval: float = 30.0
    # How long the leader must have seen what it forgets to be too old, or its age where that is shorter.
    patience: float = 3600.0
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
    """Forgets what has become too old every `interval`, while this process leads."""

    def __init__(
        self, store: Store, settings: RetentionSettings | None = None, aged: Sequence[Aged] = (), *, clock: Clock
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = chosen = settings or RetentionSettings()
        self._aged = (Aged(chosen.request_age, forget), *aged)
        self._time = SteadyTime(clock, chosen.patience)

    async def run(self, term: int) -> None:
        """Goes on until it is cancelled, or until `term` no longer leads (NOT_LEADER).

        After any other failure it tries again at the next interval.
        """
        self._time = SteadyTime(self._clock, self._settings.patience)
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
        self._time.see(await self._store.read(lambda tx: tx.now))
        removed = await self._drain(lambda tx, limit: compact(tx, self._settings, limit), term)
        for aged in self._aged:
            now = self._time.read(min(max(aged.age, 0.0), self._settings.patience))
            if now is not None:
                removed += await self._drain(_by(now, aged), term)
        return removed

    async def _drain(self, trim: Trim, term: int | None) -> int:
        batch = self._settings.batch
        total = 0
        while True:
            removed = await self._store.write(lambda tx: trim(tx, batch), term)
            total += removed
            if removed < batch:
                return total


def _by(now: int, aged: Aged) -> Trim:
    """The trim that takes `now` for the time, whatever the catalog's clock says meanwhile."""
    return lambda tx, limit: aged.forget(tx, aged.age + (tx.now - now) / 1_000_000, limit)
