"""How many rows came too late and how many records could not be read, over all runs of a fragment.

A small file beside the checkpoint has the sums up to a batch, and its name has the batch: the next run, on whichever
engine, goes on from there. Sums are written down after their batches, so an engine that is killed may leave out those
of its last moment; no batch is counted twice.
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, dataclass

from pyspark.sql import SparkSession

from headgate_engine.fragments.storage import file_names, read_text, remove_file, write_text

log = logging.getLogger(__name__)

_BEGIN, _END = "losses-", ".json"


@dataclass(frozen=True, slots=True)
class Lost:
    """Sums over all batches up to one, and that batch; -1 before the first."""

    batch_id: int = -1
    rows_late: int = 0
    bad_records: int = 0


class Losses:
    """The sums of one fragment, in `folder`, which need not be there yet. Belongs to the thread of the run."""

    def __init__(self, session: SparkSession, folder: str, interval: float) -> None:
        """`interval`: least time between two writes, in seconds."""
        self._session = session
        self._folder = folder
        self._interval = interval
        self._kept = Lost()
        self._written = 0.0
        self._names: list[str] = []

    def load(self) -> Lost:
        """What the runs before have written down."""
        self._names = [name for name in file_names(self._session, self._folder) if _batch(name) >= 0]
        # A run that died between two steps leaves an older one behind.
        latest = max(self._names, key=_batch, default="")
        text = read_text(self._session, f"{self._folder}/{latest}") if latest else None
        if text is not None:
            self._kept = Lost(**json.loads(text))
        return self._kept

    def keep(self, lost: Lost, now: float, *, last: bool = False) -> None:
        """Writes sums down where they have grown, not too often unless they are the last. Numbers are no reason to end
        a run: where it fails, the next call tries again."""
        grown = (lost.rows_late, lost.bad_records) != (self._kept.rows_late, self._kept.bad_records)
        if not grown or (now - self._written < self._interval and not last):
            return
        self._written = now
        name = f"{_BEGIN}{lost.batch_id}{_END}"
        try:
            write_text(self._session, f"{self._folder}/{name}", json.dumps(asdict(lost)))
            self._kept = lost
            for old in self._names:
                if old != name:
                    remove_file(self._session, f"{self._folder}/{old}")
            self._names = [name]
        except Exception as error:
            log.warning("sums of late rows and bad records were not kept", extra={"error": str(error).splitlines()[0]})


def _batch(name: str) -> int:
    """The batch in the name of a file; -1 where it is another file."""
    number = name.removeprefix(_BEGIN).removesuffix(_END)
    return int(number) if name == f"{_BEGIN}{number}{_END}" and number.isdigit() else -1
