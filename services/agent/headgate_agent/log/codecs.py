"""The codecs of record batches. Unpacking is bounded: a small batch cannot make a large process."""

from __future__ import annotations

import struct
import zlib

import cramjam
import lz4.frame
import numpy as np

from headgate_agent.log.record_batch import CorruptBatch

# As large as a topic may allow a batch to be: what was taken packed could have been taken as it is.
DEFAULT_UNPACKED = 64 << 20
_XERIAL = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
# Wide enough for gzip and zlib headers.
_ANY_WINDOW = 47
# How the library says that the output does not fit.
_TOO_SMALL = "whole buffer"


class UnpackedTooLarge(CorruptBatch):
    """Records that take more bytes when unpacked than they may."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"records take more than {limit} bytes when unpacked")


def unpack(codec: int, data: bytes, limit: int = DEFAULT_UNPACKED) -> bytes:
    """The records of a batch as they were before compression; `CorruptBatch` if they are not there, or too many."""
    unpacker = _CODECS.get(codec)
    if unpacker is None:
        raise CorruptBatch(f"there is no codec {codec}")
    try:
        found = unpacker(data, limit)
    except UnpackedTooLarge:
        raise
    except (cramjam.DecompressionError, zlib.error, RuntimeError, ValueError, struct.error, EOFError) as error:
        raise CorruptBatch(f"records do not unpack: {error}") from error
    if len(found) > limit:
        raise UnpackedTooLarge(limit)
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
        part = _snappy_block(data[at + 4 : at + 4 + length], limit, size)
        parts.append(part)
        size += len(part)
        at += 4 + length
    return b"".join(parts)


def _snappy_block(data: bytes, limit: int, before: int = 0) -> bytes:
    if before + cramjam.snappy.decompress_raw_len(data) > limit:
        raise UnpackedTooLarge(limit)
    return bytes(cramjam.snappy.decompress_raw(data))


def _lz4(data: bytes, limit: int) -> bytes:
    return bytes(lz4.frame.LZ4FrameDecompressor().decompress(data, max_length=limit + 1))


def _zstd(data: bytes, limit: int) -> bytes:
    size = max(64 * 1024, 8 * len(data))
    while True:
        size = min(size, limit + 1)
        # Not cleared before: that would hold everybody up for as long as unpacking does.
        out = np.empty(size, np.uint8).data
        try:
            return bytes(out[: cramjam.zstd.decompress_into(data, out)])
        except cramjam.DecompressionError as error:
            if _TOO_SMALL not in str(error):
                raise
            if size > limit:
                raise UnpackedTooLarge(limit) from error
            size *= 4


_CODECS = {0: _none, 1: _gzip, 2: _snappy, 3: _lz4, 4: _zstd}
