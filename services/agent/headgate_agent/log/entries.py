"""How the records of partitions lie in the write-ahead log.

An entry of the kind RECORDS is what one produce stored: whole batches of one partition. Its head is the index of the
partition (i32), the epoch (i64), the first offset and the first one after it (i64 each), and the uid of the topic.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from headgate_agent.log.contract import Held, PartitionKey
from headgate_agent.log.tail import TailBatch
from headgate_agent.log.wal import Entry, Frame

KIND_RECORDS = 1
_HEAD = struct.Struct(">iqqq")


def records_frame(key: PartitionKey, epoch: int, batches: list[TailBatch]) -> Frame:
    head = _HEAD.pack(key.index, epoch, batches[0].header.base_offset, batches[-1].header.next_offset)
    return Frame(KIND_RECORDS, head + key.topic_uid.encode(), [batch.data for batch in batches])


def held_in(entries: Iterable[Entry]) -> dict[PartitionKey, list[Held]]:
    """What the entries of a write-ahead log hold of each partition, in order."""
    found: dict[PartitionKey, list[Held]] = {}
    for entry in entries:
        if entry.kind == KIND_RECORDS:
            index, *_ = _HEAD.unpack_from(entry.head)
            key = PartitionKey(entry.head[_HEAD.size :].decode(), index)
            found.setdefault(key, []).append(Held(entry.file, entry.body))
    return found
