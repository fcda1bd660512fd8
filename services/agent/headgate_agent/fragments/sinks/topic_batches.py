"""Record batches of a TOPIC sink: as `log.records.pack` makes them, without an object for each record."""

from __future__ import annotations

from collections.abc import Sequence

from headgate_agent.fragments.sinks.topic_places import Place, place_header
from headgate_agent.log.record_batch import encode

# The place after it, its key, its value.
Row = tuple[Place, bytes | None, bytes]

# Length, attributes, times, offset and the lengths of key and value take no more.
_AROUND = 30


def record_size(row: Row) -> int:
    """How many bytes a row takes in a batch at most, but for the place."""
    key = row[1]
    return len(row[2]) + _AROUND if key is None else len(key) + len(row[2]) + _AROUND


def pack_rows(rows: Sequence[Row], timestamp: int, producer: tuple[int, int, int]) -> bytes:
    """One uncompressed batch, whose first record says the place after the last; `producer` is id, epoch and base
    sequence."""
    name, place = place_header(rows[-1][0])
    headers = b"".join((_number(1), _number(len(name)), name.encode(), _number(len(place)), place))
    parts: list[bytes] = []
    for delta, (_, key, value) in enumerate(rows):
        head = b"\0\0" + _number(delta) + (_NONE if key is None else _number(len(key)) + key) + _number(len(value))
        parts += (_number(len(head) + len(value) + len(headers)), head, value, headers)
        headers = b"\0"
    return bytes(encode(b"".join(parts), len(rows), timestamp=timestamp, producer=producer))


def _varint(value: int) -> bytes:
    """Zigzag, seven bits a byte, as in Kafka's records; not for negative numbers but -1."""
    value = value << 1 if value >= 0 else 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_NONE = _varint(-1)
_SMALL = tuple(_varint(value) for value in range(1 << 13))


def _number(value: int) -> bytes:
    return _SMALL[value] if value < len(_SMALL) else _varint(value)
