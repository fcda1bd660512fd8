"""Putting batches into the object store as one segment."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from headgate_agent.log.contract import PartitionKey, SegmentInfo
from headgate_agent.log.objects import ObjectExists, Objects, ObjectStoreFailed
from headgate_agent.log.segment import SegmentWriter
from headgate_agent.log.tail import TailBatch
from headgate_agent.work import Work
from headgate_common.backoff import Backoff
from headgate_common.ids import Ids

log = logging.getLogger(__name__)

DEFAULT_BACKOFF = Backoff(initial=0.05, cap=2.0)


def object_key(key: PartitionKey, epoch: int, base_offset: int, uid: str) -> str:
    """Unique to the attempt, and of the epoch that makes it: two leaders never write the same object."""
    return f"{key.topic_uid}/{key.index}/{epoch:016d}/{base_offset:020d}-{uid}"


@dataclass(frozen=True, slots=True)
class Uploader:
    objects: Objects
    work: Work
    ids: Ids
    source: random.Random
    backoff: Backoff = DEFAULT_BACKOFF

    async def upload(
        self, key: PartitionKey, epoch: int, batches: Sequence[TailBatch], check: Callable[[], None]
    ) -> SegmentInfo:
        """Returns when the object is there, however often the store fails; `check` is asked before each attempt, and
        ends it by raising."""
        writer, buffers = await self.work.run(partial(_written_out, batches))
        base = batches[0].header.base_offset
        uid = self.ids.uid("segment")
        name = object_key(key, epoch, base, uid)
        await self._create(name, buffers, check)
        return SegmentInfo(
            uid,
            name,
            base,
            writer.next_offset,
            sum(len(part) for part in buffers),
            writer.min_timestamp or 0,
            writer.max_timestamp,
            batches[0].header.leader_epoch,
        )

    async def _create(self, name: str, buffers: Sequence[bytes], check: Callable[[], None]) -> None:
        attempt = 0
        while True:
            check()
            try:
                await self.objects.create(name, buffers)
            except ObjectExists:
                # The key is unique to this attempt, so the object is what an earlier, unanswered try has put there.
                return
            except ObjectStoreFailed as error:
                if attempt == 0:
                    log.warning("upload is tried again", extra={"object": name, "error": str(error)})
                await asyncio.sleep(self.backoff.delay(attempt, self.source))
                attempt += 1
                continue
            return


def _written_out(batches: Sequence[TailBatch]) -> tuple[SegmentWriter, list[bytes]]:
    writer = SegmentWriter()
    for batch in batches:
        writer.add(batch.data, batch.header)
    return writer, writer.finish()
