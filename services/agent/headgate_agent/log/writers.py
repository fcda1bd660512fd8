"""What a writer of edges is, and what it may be told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headgate_agent.log.record_batch import HEADER_BYTES, headers
from headgate_agent.log.records import PlainRecord, pack

# The record that ends a partition: nothing follows it.
END_KEY = b"headgate.end"


class StaleWriter(Exception):
    """A later run of the fragment writes now."""


class UnknownStage(Exception):
    """A commit names a stage that is not there; it must be staged again."""


@dataclass(slots=True)
class Writer:
    """A fragment that writes. `wal_file` holds the last entry that tells all of this, where one does."""

    epoch: int
    batch_id: int = -1
    # Where a source was when it made the last batch; free bytes.
    position: bytes = b""
    topics: tuple[str, ...] = ()
    ended: bool = False
    wal_file: int = 0


def require(writer: Writer | None, fragment: str, epoch: int) -> Writer:
    """The writer, if that is the run that has it open."""
    if writer is None or writer.epoch != epoch:
        now = "nothing" if writer is None else f"epoch {writer.epoch}"
        raise StaleWriter(f"epoch {epoch} of fragment {fragment} is not open here: {now} is")
    return writer


def end_marker() -> bytes:
    """The batch that ends a partition."""
    (marker,) = pack([PlainRecord(END_KEY, None, 0)], 1 << 20)
    return bytes(marker)


def same_records(one: bytes, other: bytes) -> bool:
    """Whether batches hold the same records, whenever they were made."""
    return list(_bodies(one)) == list(_bodies(other))


def _bodies(data: bytes) -> Iterator[bytes]:
    for header in headers(data):
        yield data[header.position + HEADER_BYTES : header.position + header.size]
