"""Results that go to an edge on Kafka: Spark's own sink writes them, at least once, as Arrow batches.

Nothing fences them: a new epoch starts only when the earlier run is known to have stopped, and a batch that was not
done is written again by the next run. The error rows of a batch are committed before Spark takes the batch for done.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from headgate.engine import v1 as engine
from headgate_engine.executor.writing import edge_values
from headgate_engine.fragments.gate import BatchGate, Held
from headgate_engine.fragments.kafka import connector_options
from headgate_engine.fragments.kafka_edges import END_KEY, EdgeTopic
from headgate_engine.fragments.progress import OUTPUT
from headgate_engine.fragments.write import Bad, ErrorRows, Wrote, given_up_or
from headgate_engine.spark import QUERIES, SparkHost

log = logging.getLogger(__name__)

# What the value of a record may have, where it holds more than one row: brokers take 1 MB by default.
_LARGEST = 900_000
# The observation of what records come to.
_RECORDS = "edge"
_LOOK_FOR_ROOM = 0.1


class KafkaEdgeOutput:
    """`Output` for an edge on Kafka, and beside it the error topic of the query."""

    def __init__(
        self,
        edge: engine.KafkaEdge,
        errors: ErrorRows | None,
        given_up: Callable[[], bool],
        max_lag: int,
        host: SparkHost,
    ) -> None:
        """`max_lag`: about how many bytes may wait to be delivered; beyond it no batch is written, and so none is
        read."""
        self._edge = edge
        self._given_up = given_up
        self._max_lag = max_lag
        self._host = host
        self._topic = EdgeTopic(host.root, edge)
        self._options = {**connector_options(edge.options, ""), "topic": edge.topic}
        # Of all records of this run that are known of.
        self._records = self._bytes = 0
        self.gate = BatchGate()
        self.errors = errors
        # What stopped the last batch: Spark turns it into text on its way through the JVM.
        self.failure: BaseException | None = None

    def open(self) -> int:
        return self.errors.open() if self.errors is not None else -1

    def attach(self, frame: DataFrame, bad: Bad, wrote: Wrote) -> DataStreamWriter:
        counted = frame.observe(OUTPUT, f.count(f.lit(1)).alias("rows"))
        values = counted.mapInArrow(edge_values(_LARGEST), "value binary").observe(
            _RECORDS, f.count(f.lit(1)).alias("records"), f.sum(f.octet_length("value")).alias("bytes")
        )

        def write(batch: DataFrame, batch_id: int) -> None:
            try:
                self._wait_for_room()
                self.gate.enter(batch_id)
                batch.withColumn("partition", f.lit(0)).write.format("kafka").options(**self._options).save()
                if self.errors is not None:
                    self.errors.write(batch_id, bad)
            except Held as error:
                raise given_up_or(error, given_up=True) from None
            except BaseException as error:
                self.failure = self.failure or error
                raise given_up_or(error, given_up=self._given_up()) from None

        return values.writeStream.foreachBatch(write)

    def saw(self, report: str) -> None:
        """Takes the report of a batch, to know how large records are."""
        told = json.loads(report).get("observedMetrics", {}).get(_RECORDS, {})
        self._records += int(told.get("records") or 0)
        self._bytes += int(told.get("bytes") or 0)

    def _wait_for_room(self) -> None:
        """Returns when whoever delivers the edge is not too far behind, by the size of records of this run; at once if
        the batch will not be written anyway."""
        said = False
        while self._records and not self.gate.closed:
            low, high = self._topic.bounds()
            waiting = (high - low) * self._bytes // self._records
            if waiting < self._max_lag:
                return
            if not said:
                log.info("the query waits for its sink, which is far behind", extra={"bytes": waiting})
                said = True
            if self._given_up():
                raise InterruptedError("a stop was asked for")
            time.sleep(_LOOK_FOR_ROOM)

    def finish(self) -> None:
        """An end that comes again changes nothing: whoever delivers the edge stops at the first."""
        session = self._host.session({}, pool=QUERIES)
        end = session.range(1).select(
            f.lit(END_KEY).alias("key"), f.lit(None).cast("binary").alias("value"), f.lit(0).alias("partition")
        )
        end.write.format("kafka").options(**self._options).save()
