"""Times of records in messages."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

# The first moment of the year 1 and the last of 9999: messages have no others.
_FIRST, _LAST = -62_135_596_800_000, 253_402_300_799_999


def timestamp_of(milliseconds: int) -> Timestamp:
    """The time of a record, in milliseconds since 1970, or the nearest one that a message can say: what a producer
    wrote, another must be able to read."""
    time = Timestamp()
    time.FromMilliseconds(min(max(milliseconds, _FIRST), _LAST))
    return time
