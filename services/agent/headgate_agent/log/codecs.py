"""The codecs of record batches. Unpacking is bounded: a small batch cannot make a large process."""

from __future__ import annotations

import struct
import zlib

import cramjam
import lz4.frame

from headgate_agent.log.record_batch import CorruptBatch

MOST_UNPACKED = 256 << 20
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
# Wide enough for gzip and zlib headers.
_ANY_WINDOW = 47
# How the library says that the output does not fit.
_TOO_SMALL = "whole buffer"


def unpack(codec: int, data: bytes, limit: int = MOST_UNPACKED) -> bytes:
    """The records of a batch as they were before compression; `CorruptBatch` if they are not there, or too many."""
    unpacker = _CODECS.get(codec)
    if unpacker is None:
        raise CorruptBatch(f"there is no codec {codec}")
    try:
        found = unpacker(data, limit)
    except (cramjam.DecompressionError, zlib.error, RuntimeError, ValueError, struct.error, EOFError) as error:
        raise CorruptBatch(f"records do not unpack: {error}") from error
    if len(found) > limit:
        raise CorruptBatch(f"records take more than {limit} bytes when unpacked")
    return found


def _none(data: bytes, limit: int) -> bytes:
    return data


def _gzip(data: bytes, limit: int) -> bytes:
    return zlib.decompressobj(_ANY_WINDOW).decompress(data, limit + 1)


def _snappy(data: bytes, limit: int) -> bytes:
    if not data.startswith(_XERIAL):
        return _snappy_block(data, limit)
    parts: list[bytes] = []
    at, size = _XERIAL_HEADER, 0
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        part = _snappy_block(data[at + 4 : at + 4 + length], limit - size)
        parts.append(part)
        size += len(part)
        at += 4 + length
    return b"".join(parts)


def _snappy_block(data: bytes, limit: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(data) > limit:
        raise ValueError(f"more than {limit} bytes")
    return bytes(cramjam.snappy.decompress_raw(data))


def _lz4(data: bytes, limit: int) -> bytes:
    return bytes(lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=limit + 1))


def _zstd(data: bytes, limit: int) -> bytes:
    size = max(64 * 1024, 8 * len(data))
    while True:
        size = min(size, limit + 1)
        out = bytearray(size)
        try:
            return bytes(memoryview(out)[: cramjam.zstd.decompress_into(data, out)])
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error) or size > limit:
                raise
            size *= 4


_CODECS = {0: _none, 1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}
