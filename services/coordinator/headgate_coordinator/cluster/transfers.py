"""Gives up hand-overs of partitions that take too long, by the leading coordinator's own clock.

A transfer that it sees for the first time has the whole time from then on, whatever happened before.
"""

from __future__ import annotations

import asyncio
import logging

from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.log import transfers
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.errors import NOT_LEADER

log = logging.getLogger(__name__)

# Looks in the time that a transfer may take.
LOOKS = 6


class OverdueTransfers:
    def __init__(self, store: Store, *, clock: Clock, timeout: float) -> None:
        """`timeout` in seconds."""
        self._store = store
        self._clock = clock
        self._timeout = timeout
        # When each open transfer was first seen.
        self._seen: dict[str, float] = {}

    async def run(self, term: int) -> None:
        """Goes on until it is cancelled, or raises NOT_LEADER when `term` is over."""
        self._seen = {}
        while True:
            try:
                await self.look(term)
            except HeadgateError as error:
                if error.reason is NOT_LEADER:
                    raise
                log.warning("transfers cannot be looked at", extra={"error": str(error)})
            await asyncio.sleep(self._timeout / LOOKS)

    async def look(self, term: int | None = None) -> None:
        found = await self._store.read(transfers.open_transfers)
        now = self._clock.monotonic()
        self._seen = {uid: self._seen.get(uid, now) for uid in found}
        overdue = [uid for uid, since in self._seen.items() if now - since >= self._timeout]
        if overdue:
            failed = await self._store.write(lambda tx: transfers.fail_overdue(tx, overdue, self._timeout), term)
            log.warning("transfers took too long", extra={"transfers": failed})
