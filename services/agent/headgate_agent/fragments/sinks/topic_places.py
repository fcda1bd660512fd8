"""How far a TOPIC sink is in each partition of its topic: in the records themselves, with a note of where to look.

A *place* is (edge batch, rows): a partition has all of its rows of the edge batches before that one, and so many of its
rows of that one. Every record batch that the sink makes carries the place after it, in a header of its first record. So
place and rows are stored in one append, and the last batch of the sink that a partition holds says how far it is there:
it is read back, wherever the partition is led by now. A *note* says where to begin to read back, and what was known
there; it is true whenever it is written, so an old one only makes the reading longer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headgate.log import v1 as api
from headgate_agent.log.record_batch import BatchHeader, CorruptBatch, headers
from headgate_agent.log.records import unpack_batch

Place = tuple[int, int]

NOTHING: Place = (0, 0)
PLACE_HEADER = "headgate.place"
_SEQUENCES = 1 << 31
# Ids that the coordinator gives out are counted from 0 and never get here.
_OWN_PRODUCERS = 1 << 62


def producer_id(identity: str) -> int:
    """The fragment as a producer, the same in every run, so that any run's append is recognised when it is repeated."""
    digest = hashlib.sha256(b"headgate.sink\0" + identity.encode()).digest()
    return _OWN_PRODUCERS | int.from_bytes(digest[:8], "big") >> 2


@dataclass(frozen=True, slots=True)
class Known:
    """What a partition holds of the sink: the place, the sequence that comes next, and an offset from which on every
    later batch is found."""

    place: Place
    sequence: int
    offset: int

    def after(self, place: Place, count: int, offset: int) -> Known:
        return Known(place, (self.sequence + count) % _SEQUENCES, offset)

    def is_before(self, sequence: int) -> bool:
        """Whether rows of this sink are there, or on their way, that this does not know of."""
        return 0 < (sequence - self.sequence) % _SEQUENCES < _SEQUENCES // 2

    def note(self, topic: str, partition: int, delivered: int) -> api.GroupOffset:
        """`delivered` is an edge batch before which all partitions have everything."""
        told = {"batch": self.place[0], "rows": self.place[1], "sequence": self.sequence, "delivered": delivered}
        return api.GroupOffset(
            topic=topic, partition=partition, offset=self.offset, leader_epoch=-1, metadata=json.dumps(told)
        )


def read_note(note: api.GroupOffset) -> tuple[Known, int]:
    """What was known, and the edge batch before which everything is delivered. ValueError for any other text."""
    try:
        told = json.loads(note.metadata)
        place = (int(told["batch"]), int(told["rows"]))
        return Known(place, int(told["sequence"]), note.offset), int(told["delivered"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{note.metadata[:80]!r} is no note of a sink") from error


def place_header(place: Place) -> tuple[str, bytes]:
    return PLACE_HEADER, b"%d:%d" % place


async def read_back(
    known: Known, producer: int, start: int, end: int, read: Callable[[int], Awaitable[bytes]]
) -> Known:
    """What a partition holds before `end`, given what was known at `known.offset`; it begins at `start`. `read` gives
    whole batches from the one that holds an offset on. CorruptBatch where they are not what they were."""
    at = max(known.offset, start)
    while at < end:
        data = await read(at)
        moved = at
        last: BatchHeader | None = None
        for header in headers(data):
            moved = max(moved, header.next_offset)
            if header.producer_id == producer:
                last = header
        if last is not None:
            known = Known(_place(data, last), (last.last_sequence + 1) % _SEQUENCES, moved)
        if moved == at:
            raise CorruptBatch(f"there is nothing at offset {at}, and the end is at {end}")
        at = moved
    return Known(known.place, known.sequence, max(known.offset, at))


def _place(data: bytes, header: BatchHeader) -> Place:
    # A sink packs nothing: what unpacks to more than it is was not written by one.
    first = next(unpack_batch(data, header, header.size), None)
    for name, value in first.headers if first is not None else ():
        if name == PLACE_HEADER and value is not None:
            batch, _, rows = value.partition(b":")
            try:
                return int(batch), int(rows)
            except ValueError:
                break
    raise CorruptBatch(f"the batch at offset {header.base_offset} does not say which rows it holds")
