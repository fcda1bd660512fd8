"""Lets a query be stopped between two batches.

Spark stops a query wherever it is, and a batch that was cut off is written again by the next start. Where nothing
fences what a batch writes, a stop that is no crash closes the gate first: the batch that has begun is done, and the
next one writes nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

# Seconds between two looks of a batch that is held.
_LOOK = 0.05


class Held(InterruptedError):
    """The batch has written nothing: its query is stopped, and its next start has the same batch."""


class BatchGate:
    """`enter` is for the thread of a batch, the rest for that of the run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = -1
        self._active: Callable[[], bool] | None = None

    @property
    def closed(self) -> bool:
        return self._active is not None

    def enter(self, batch_id: int) -> None:
        """Before a batch writes. Once the gate is closed it waits for the query to be stopped, and raises `Held`."""
        with self._lock:
            active = self._active
            if active is None:
                self._begun = batch_id
                return
        # Spark takes an interruption for a failure until the stop has begun.
        while active():
            time.sleep(_LOOK)
        raise Held("the query is stopped before this batch")

    def stop(self, query: StreamingQuery, look: Callable[[], None], seconds: float) -> None:
        """Stops the query when no batch is half written. `look` is called every `seconds` and may raise to give up."""
        with self._lock:
            self._active = lambda: query.isActive
            begun = self._begun
        try:
            while query.isActive and not _is_done(query, begun):
                look()
                time.sleep(seconds)
            query.stop()
        finally:
            with self._lock:
                self._active = None


def _is_done(query: StreamingQuery, batch_id: int) -> bool:
    """Whether Spark has written down that the batch is done, which it does before it reports on it. A query that rests
    reports on the batch that comes next."""
    if batch_id < 0:
        return True
    java = query._jsq.lastProgress()
    if java is None or int(java.batchId()) < batch_id:
        return False
    return int(java.batchId()) > batch_id or "addBatch" in json.loads(java.json()).get("durationMs", {})
