"""Where the results of a run go.

To an edge they are written in two steps, one Spark action a batch: tasks stage Arrow batches, each under a random id;
the driver commits the stages that the action answered, which are those of the attempts that won, all at once, with the
batch id and the epoch, and with them the records that could not be decoded. A batch that was committed by an earlier
run is computed again, because Spark needs its state, and written nowhere.

To a topic without an edge Spark's own sink writes, at least once. The error rows of a batch are committed before Spark
takes the batch for done, and applied once. Real time calls nobody at the end of a batch: there the run's thread brings
them when it hears of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Protocol

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headgate.catalog import v1 as catalog
from headgate_engine.executor.calls import Access, EdgeClient
from headgate_engine.executor.writing import STAGED_SCHEMA, stage_function, task_number
from headgate_engine.fragments.gate import BatchGate, Held
from headgate_engine.fragments.kafka import connector_options
from headgate_engine.fragments.progress import OUTPUT
from headgate_engine.fragments.records import encoded

log = logging.getLogger(__name__)

# The records of the present batch that could not be decoded, or None where there are none.
Bad = Callable[[], DataFrame | None]
# (batch id, rows): what a batch came to.
Wrote = Callable[[int, int], None]


_LOOK_FOR_ROOM = 0.1
# What Spark takes for the end of a query that was stopped, rather than for a failure.
_INTERRUPTED = "py4j.protocol.Py4JJavaError: An error occurred while calling the batch: java.lang.InterruptedException"


class BatchFailed(Exception):
    """A batch was not written; `EdgeOutput.failure` says why."""


def given_up_or(error: BaseException, *, given_up: bool) -> BatchFailed:
    """What Spark is told of a batch that was not written. Short: it searches the text, trace included, with a pattern
    that overflows its stack on a long one."""
    return BatchFailed(_INTERRUPTED if given_up else type(error).__name__)


class Output(Protocol):
    """Where a run writes."""

    @property
    def gate(self) -> BatchGate | None:
        """There is one where a batch that is cut off would be written again."""
        ...

    def open(self) -> int:
        """Shuts earlier runs out, where that can be done. Answers the last batch that was committed; -1 if none was."""
        ...

    def attach(self, frame: DataFrame, bad: Bad, wrote: Wrote) -> DataStreamWriter:
        """A stream that writes there."""
        ...

    def finish(self) -> None:
        """Tells readers that nothing follows. May be called again by a later run."""
        ...


class EdgeOutput:
    """The edge that a run writes, and beside it the error topic of the query."""

    gate: BatchGate | None = None

    def __init__(self, access: Access, errors: Access | None, given_up: Callable[[], bool], max_lag: int) -> None:
        """`max_lag`: bytes that may wait to be delivered; beyond it no batch is written, and so none is read."""
        self._access = access
        self._errors = errors
        self._given_up = given_up
        self._max_lag = max_lag
        self._client = EdgeClient(access, given_up=given_up)
        self._last = -1
        # What stopped the last batch: Spark turns it into text on its way through the JVM.
        self.failure: BaseException | None = None

    def open(self) -> int:
        topics = [self._access.topic_uid, *([self._errors.topic_uid] if self._errors else [])]
        self._last = self._client.open_writer(topics)
        return self._last

    def attach(self, frame: DataFrame, bad: Bad, wrote: Wrote) -> DataStreamWriter:
        def write(batch: DataFrame, batch_id: int) -> None:
            try:
                wrote(batch_id, self._write(batch, batch_id, bad))
            except BaseException as error:
                self.failure = self.failure or error
                raise given_up_or(error, given_up=self._given_up()) from None

        return frame.writeStream.foreachBatch(write)

    def _write(self, batch: DataFrame, batch_id: int, bad: Bad) -> int:
        if batch_id <= self._last:
            log.info("batch was committed before", extra={"fragment": self._access.fragment_uid, "batch": batch_id})
            batch.write.format("noop").mode("append").save()
            return 0
        self._wait_for_room()
        staged = _stage(batch, self._access)
        rows = sum(int(row["rows"]) for row in staged)
        undecoded = bad() if self._errors is not None else None
        if undecoded is not None and self._errors is not None:
            staged += _stage(undecoded, self._errors)
        if staged:
            self._client.commit(batch_id, [row["stage_id"] for row in staged])
            self._last = batch_id
        return rows

    def _wait_for_room(self) -> None:
        """Returns when whoever delivers the edge is not too far behind."""
        said = False
        while (waiting := sum(partition.bytes for partition in self._client.get())) >= self._max_lag:
            if not said:
                fields = {"fragment": self._access.fragment_uid, "bytes": waiting}
                log.info("the query waits for its sink, which is far behind", extra=fields)
                said = True
            if self._given_up():
                raise InterruptedError("a stop was asked for")
            time.sleep(_LOOK_FOR_ROOM)

    def finish(self) -> None:
        if not all(partition.ended for partition in self._client.get()):
            self._last += 1
            self._client.commit(self._last, [], end=True)


class ErrorRows:
    """The error topic of a query, where there is no edge beside it."""

    def __init__(self, access: Access, given_up: Callable[[], bool]) -> None:
        self._access = access
        self._client = EdgeClient(access, given_up=given_up)
        self._last = -1

    def open(self) -> int:
        """Shuts earlier runs out of it. Answers the last batch that had any; -1 if none had."""
        self._last = self._client.open_writer([self._access.topic_uid])
        return self._last

    def write(self, batch_id: int, bad: Bad) -> None:
        """Commits those of a batch, unless they were before."""
        undecoded = bad() if batch_id > self._last else None
        staged = _stage(undecoded, self._access) if undecoded is not None else []
        if staged:
            self._client.commit(batch_id, [row["stage_id"] for row in staged])
            self._last = batch_id


class TopicOutput:
    """A topic that Spark writes by itself: rows may come twice after a crash."""

    def __init__(
        self,
        target: catalog.TopicTarget,
        bootstrap: str,
        errors: ErrorRows | None,
        given_up: Callable[[], bool],
        *,
        realtime: bool,
    ) -> None:
        self._target = target
        self._bootstrap = bootstrap
        self._given_up = given_up
        self._realtime = realtime
        self.gate: BatchGate | None = None if realtime else BatchGate()
        self.errors = errors
        self.failure: BaseException | None = None

    def open(self) -> int:
        """Nothing fences a topic: a new epoch starts only when the earlier run is known to have stopped."""
        return self.errors.open() if self.errors is not None else -1

    def attach(self, frame: DataFrame, bad: Bad, wrote: Wrote) -> DataStreamWriter:
        options = {
            **connector_options(self._target.options, self._bootstrap),
            "topic": self._target.options["topic"],
        }
        records = encoded(frame, self._target)
        errors, gate = self.errors, self.gate
        if gate is None:
            return records.writeStream.format("kafka").options(**options)

        def write(batch: DataFrame, batch_id: int) -> None:
            try:
                gate.enter(batch_id)
                batch.write.format("kafka").options(**options).save()
                if errors is not None:
                    errors.write(batch_id, bad)
            except Held as error:
                raise given_up_or(error, given_up=True) from None
            except BaseException as error:
                self.failure = self.failure or error
                raise given_up_or(error, given_up=self._given_up()) from None

        # Nothing else counts what a batch writes.
        return records.observe(OUTPUT, f.count(f.lit(1)).alias("rows")).writeStream.foreachBatch(write)

    def finish(self) -> None:
        """A topic has no end."""


def _stage(frame: DataFrame, access: Access) -> list[Row]:
    rows = frame.mapInArrow(stage_function(access, task_number), STAGED_SCHEMA).collect()
    return sorted(rows, key=lambda row: (row["task"], row["sequence"]))
