"""Tells damage in the last file of a write-ahead log from a torn tail.

What is torn belongs to the last write, of which nobody was told that it is there. A write begins only when the one
before it has been synced: so where the first entry of a write is whole, all that lies before it was on the disk, and if
it cannot be read now it was damaged there, and may have been acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from headgate_agent.log.wal_format import FRAME_BYTES, SEQUENCE_AT, START_AT, entry_at

# Bytes that are looked through at once.
_PART = 4 << 20
# More entries than this are in no file.
_ENTRIES = 1 << 24


def write_behind(data: bytes, number: int, position: int, sequence: int) -> int | None:
    """Where in a file's bytes, from a position on, a write begins whose first entry is whole and comes after the entry
    with this sequence; None where there is none. `sequence` is 0 where no entry is known."""
    for at in _candidates(data, position, sequence):
        found = entry_at(data, number, at)
        if found is not None and found.starts and found.entry.sequence > sequence:
            return at
    return None


def _candidates(data: bytes, position: int, sequence: int) -> Iterator[int]:
    """Where a frame of the first entry of a write may begin, by the few bytes that are known of it."""
    whole = np.frombuffer(data, np.uint8)
    for begin in range(position, len(data) - FRAME_BYTES + 1, _PART):
        part = whole[begin : begin + _PART + FRAME_BYTES - 1]
        count = len(part) - FRAME_BYTES + 1
        found = np.flatnonzero(
            (part[START_AT : START_AT + count] == 1) & (part[SEQUENCE_AT : SEQUENCE_AT + count] == 0)
        )
        # Most that is left after the two cheap looks goes by the sequence.
        numbers = np.zeros(len(found), np.uint64)
        for place in range(SEQUENCE_AT, SEQUENCE_AT + 8):
            numbers = (numbers << np.uint64(8)) | part[found + place].astype(np.uint64)
        known = numbers > sequence
        if sequence:
            known &= numbers <= sequence + _ENTRIES
        yield from (begin + found[known]).tolist()
