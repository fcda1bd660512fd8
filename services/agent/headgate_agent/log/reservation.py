"""Offsets that the leader of a WAL partition may acknowledge into.

Contract: an offset is reserved in the catalog before a record gets it, so whoever leads next without our disk begins
above anything that can have been acknowledged. What is reserved is never used up: while more is reserved than segments
hold, the partition waits for our volume. Entries take their offsets when it is their turn to be written, so those on
their way together must fit into what is reserved.
"""

from __future__ import annotations

import asyncio
import logging

from headgate_agent.log.contract import Metadata, NotLeader, PartitionKey
from headgate_agent.log.tenure import Tenure

log = logging.getLogger(__name__)


class Reservation:
    def __init__(
        self, key: PartitionKey, name: str, epoch: int, reserved: int, *, metadata: Metadata, tenure: Tenure
    ) -> None:
        self._key, self._name, self._epoch, self._reserved = key, name, epoch, reserved
        self._metadata, self._tenure = metadata, tenure
        # Offsets that room was made for and that are not known to be given out.
        self._claimed = 0
        self._asking: asyncio.Task[None] | None = None

    def covers(self, next_offset: int, count: int) -> bool:
        """Whether so many more records may get their offsets, behind all that are on their way."""
        return next_offset + self._claimed + count < self._reserved

    def claim(self, count: int) -> None:
        """So many records are on their way; a negative number says that they have their offsets, or never will."""
        self._claimed += count

    async def extend(self, next_offset: int, count: int, ahead: int) -> bool:
        """Asks for what is missing, and `ahead` more; whether nothing is missing any more. Where something is, the
        partition may have moved on meanwhile, and its caller looks again."""
        if self.covers(next_offset, count):
            return True
        if self._asking is None:
            until = next_offset + self._claimed + count + ahead
            self._asking = asyncio.ensure_future(self._ask(until))
        await asyncio.wait((self._asking,))
        self._tenure.check_lost()
        return False

    def cancel(self) -> None:
        if self._asking is not None and self._asking is not asyncio.current_task():
            self._asking.cancel()

    async def _ask(self, until: int) -> None:
        try:
            await self._metadata.reserve(self._key, self._epoch, until)
            self._reserved = until
        except NotLeader as error:
            self._tenure.lose(str(error), type(error))
        except Exception as error:
            log.exception("offsets cannot be reserved", extra={"partition": self._name})
            self._tenure.lose(f"offsets cannot be reserved: {error}")
        finally:
            self._asking = None
