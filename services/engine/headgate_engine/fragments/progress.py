"""How a run is doing, out of what Spark reports after each batch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from google.protobuf import duration_pb2, timestamp_pb2

from headgate.engine import v1 as engine
from headgate_engine.executor.reading import FAR_FUTURE_US
from headgate_engine.fragments.losses import Lost

# The observation of what goes out, where the sink does not count.
OUTPUT = "output"


@dataclass(slots=True)
class Counts:
    """Sums over the batches of a run; `lost` over those of earlier runs too. Belongs to the thread of the run, except
    `wrote`, which foreachBatch calls."""

    batch_id: int = -1
    rows_in: int = 0
    rows_out: int = 0
    lost: Lost = field(default_factory=Lost)
    lag: int = 0
    # Whether there was nothing to do for a while: then rates are those of now, not those of the last batch.
    quiet: bool = False
    last: dict[str, Any] = field(default_factory=dict)
    # Batches of this run whose reports were gone before anybody looked: what they counted is in none of the sums.
    missed: int = 0
    # Per input: the latest event time seen, and the last batch that had rows with one.
    latest_us: dict[str, int] = field(default_factory=dict)
    spoke: dict[str, int] = field(default_factory=dict)
    _out_of_batch: dict[int, int] = field(default_factory=dict)
    _rows_out_of_last: int = 0

    def wrote(self, batch_id: int, rows: int) -> None:
        self._out_of_batch[batch_id] = rows

    def saw(self, text: str) -> bool:
        """Takes one progress report; says whether it is of a batch not counted yet."""
        report = json.loads(text)
        batch = int(report["batchId"])
        if batch <= self.batch_id or not report.get("durationMs", {}).get("addBatch"):
            return False
        if self.batch_id >= 0:
            self.missed += batch - self.batch_id - 1
        self.batch_id = batch
        self.quiet = False
        self.last = report
        observed = report.get("observedMetrics", {})
        marked = {name for name in observed if name.startswith("input")}
        if marked:
            # They leave marks and bad records out.
            self.rows_in += sum(int(observed[name].get("rows") or 0) for name in marked)
        else:
            self.rows_in += sum(int(source.get("numInputRows", 0)) for source in report.get("sources", ()))
        for name in marked:
            latest = observed[name].get("latest_us")
            if latest is not None:
                self.latest_us[name] = max(self.latest_us.get(name, 0), int(latest))
                self.spoke[name] = batch
        sink_rows = int(report.get("sink", {}).get("numOutputRows", -1))
        if OUTPUT in observed:
            sink_rows = int(observed[OUTPUT].get("rows") or 0)
        self._rows_out_of_last = self._out_of_batch.pop(batch, max(0, sink_rows))
        self.rows_out += self._rows_out_of_last
        self.lag = sum(_behind(source.get("latestOffset"), source.get("endOffset")) for source in report["sources"])
        if batch > self.lost.batch_id:
            late = sum(int(op.get("numRowsDroppedByWatermark", 0)) for op in report.get("stateOperators", ()))
            bad = sum(int(observed[name].get("bad") or 0) for name in marked)
            self.lost = Lost(batch, self.lost.rows_late + late, self.lost.bad_records + bad)
        return True

    def rest(self) -> None:
        """There was nothing to do for a while: nothing waits to be read, and nothing comes in or goes out."""
        self.quiet = True
        self.lag = 0

    def to_proto(self) -> engine.RunProgress:
        report = self.last
        operators = report.get("stateOperators", ())
        took = duration_pb2.Duration()
        milliseconds = int(report.get("batchDuration", 0))
        took.FromMilliseconds(milliseconds)
        progress = engine.RunProgress(
            batch_id=self.batch_id,
            rows_in=self.rows_in,
            rows_out=self.rows_out,
            rows_in_per_second=0.0 if self.quiet else _rate(report.get("inputRowsPerSecond")),
            rows_out_per_second=0.0 if self.quiet else self._rows_out_of_last * 1000 / max(1, milliseconds),
            batch_time=took,
            lag=self.lag,
            state_rows=sum(int(op.get("numRowsTotal", 0)) for op in operators),
            state_bytes=sum(int(op.get("memoryUsedBytes", 0)) for op in operators),
            rows_late=self.lost.rows_late,
            bad_records=self.lost.bad_records,
        )
        if "timestamp" in report:
            progress.time.CopyFrom(_timestamp(report["timestamp"]))
        watermark = report.get("eventTime", {}).get("watermark")
        if watermark:
            found = _timestamp(watermark)
            # Before the first row it is 1970, after the end the mark's: neither says anything.
            if 0 < found.ToMicroseconds() < FAR_FUTURE_US - 366 * 86_400 * 1_000_000:
                progress.watermark.CopyFrom(found)
        return progress


class Reports:
    """Spark's reports of the batches of a run, each read once. Spark keeps so many for each query
    (`spark.progress_reports`), and one that nobody came for in time is gone."""

    def __init__(self) -> None:
        # Batch and time of the last one that was read: a query that rests reports its next batch again and again.
        self._read: tuple[int, str] | None = None

    def news(self, query: Any, batch_id: int) -> list[str]:
        """Those of batches after `batch_id` that were not read yet, in order. `query` is Spark's, in Java: every step
        is a call, and most looks find nothing, so the latest one is looked at first and the others from its end."""
        if query is None or not self._is_news(query.lastProgress(), batch_id):
            return []
        recent: Sequence[Any] = query.recentProgress()
        fresh: list[Any] = []
        for index in reversed(range(len(recent))):
            report = recent[index]
            if not self._is_news(report, batch_id):
                break
            fresh.append(report)
        if fresh:
            self._read = _known_by(fresh[0])
        return [report.json() for report in reversed(fresh)]

    def _is_news(self, report: Any, batch_id: int) -> bool:
        return report is not None and int(report.batchId()) > batch_id and _known_by(report) != self._read


def _known_by(report: Any) -> tuple[int, str]:
    return int(report.batchId()), str(report.timestamp())


def _behind(latest: Any, end: Any) -> int:
    """How far the offsets of `end` are behind those of `latest`, over all partitions: both are trees of numbers."""
    if isinstance(latest, dict):
        known = end if isinstance(end, dict) else {}
        return sum(_behind(value, known.get(name, 0)) for name, value in latest.items())
    return max(0, latest - end) if isinstance(latest, int) and isinstance(end, int) else 0


def _rate(value: object) -> float:
    """Spark leaves out, or writes as text, what is infinite or not a number."""
    return float(value) if isinstance(value, int | float) else 0.0


def _timestamp(text: str) -> timestamp_pb2.Timestamp:
    made = timestamp_pb2.Timestamp()
    made.FromDatetime(datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC))
    return made
