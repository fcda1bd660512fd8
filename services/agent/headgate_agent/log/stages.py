"""Stages of OBJECT edges: objects that a commit may make segments of.

A key says whose the stage is and when it was made: `topic/partition/stages-fragment/epoch-after/digest of its id`,
where `after` is the last batch that the writer had committed then, plus one. Only the next commit of that very run may
name it. So what the catalog says of the writer decides, without a clock, whether a stage can still be committed: not
any more once the writer has a later epoch or a later batch, and that never changes back.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote, unquote

from headgate_agent.log.contract import PartitionKey, SegmentInfo
from headgate_agent.log.record_batch import header_at, headers, placed
from headgate_agent.log.segment import Index, SegmentWriter, batches_from, stored_range, unpack_block

_KEY = re.compile(r"(?P<topic>[^/]+)/(?P<index>\d+)/stages-(?P<fragment>[^/]+)/(?P<epoch>\d+)-(?P<made>\d+)/[0-9a-f]+")
# The epoch of batches that no leader has placed.
_NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class StageTime:
    """When a stage was made: by which run, after which of its writer's batches."""

    fragment: str
    epoch: int
    after: int


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that is durable under `name`; `count` offsets in `size` bytes."""

    key: PartitionKey
    time: StageTime
    name: str
    count: int
    size: int
    min_timestamp: int
    max_timestamp: int
    # Its batches, if they are in memory.
    data: bytes | None = field(default=None, repr=False, compare=False)

    def as_segment(self, uid: str, base_offset: int, leader_epoch: int) -> SegmentInfo:
        return SegmentInfo(
            uid,
            self.name,
            base_offset,
            base_offset + self.count,
            self.size,
            self.min_timestamp,
            self.max_timestamp,
            leader_epoch,
        )


def prefix_of(key: PartitionKey, time: StageTime) -> str:
    """Of the keys of all stages for a partition that were made at a time."""
    fragment = quote(time.fragment, safe="")
    return f"{key.topic_uid}/{key.index}/stages-{fragment}/{time.epoch:016d}-{time.after + 1:016d}/"


def name_of(key: PartitionKey, time: StageTime, stage_id: str) -> str:
    return prefix_of(key, time) + hashlib.sha256(stage_id.encode()).hexdigest()[:40]


def read_name(name: str) -> tuple[PartitionKey, StageTime] | None:
    """What the stage of that key is for and when it was made; None if it is not a stage's."""
    found = _KEY.fullmatch(name)
    if found is None:
        return None
    time = StageTime(unquote(found["fragment"]), int(found["epoch"]), int(found["made"]) - 1)
    return PartitionKey(found["topic"], int(found["index"])), time


def may_be_committed(time: StageTime, epoch: int, batch_id: int) -> bool:
    """Whether a writer that has come so far may still name a stage of that time."""
    return (epoch, batch_id) <= (time.epoch, time.after)


def written_out(data: bytes) -> tuple[SegmentWriter, list[bytes]]:
    """Batches as a stage; and its buffers."""
    writer = SegmentWriter(staged=True)
    for header in headers(data):
        batch = placed(data, header, writer.next_offset, _NO_EPOCH)
        writer.add(batch, header_at(batch, 0))
    return writer, writer.finish()


def from_index(key: PartitionKey, time: StageTime, name: str, index: Index, size: int) -> Stage:
    return Stage(key, time, name, index.next_offset, size, index.min_timestamp, index.max_timestamp)


def batches_of(index: Index, data: bytes) -> bytes:
    """All batches of a stage, given the whole object."""
    blocks: Sequence[bytes] = [
        unpack_block(block, data[at : at + length]) for block in index.blocks for at, length in (stored_range(block),)
    ]
    return b"".join(bytes(batches_from(block, 0)) for block in blocks)
