"""What is told of a run, out of Spark's reports."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from headgate_engine.fragments.errors import failure_of
from headgate_engine.fragments.losses import Lost
from headgate_engine.fragments.progress import Counts, Reports
from headgate_engine.fragments.ranges import reported_ranges


def report(batch: int, **more: Any) -> str:
    base = {
        "batchId": batch,
        "batchDuration": 500,
        "durationMs": {"addBatch": 400},
        "inputRowsPerSecond": 20.0,
        "observedMetrics": {"input0": {"rows": 10, "bad": 1}},
        "sources": [{"latestOffset": {"t": {"0": 15}}, "endOffset": {"t": {"0": 10}}}],
        "sink": {"numOutputRows": 4},
    }
    return json.dumps({**base, **more})


@dataclass
class JavaReport:
    """One of Spark's reports, as py4j gives it."""

    batch: int
    time: str
    read: int = 0

    def batchId(self) -> int:
        return self.batch

    def timestamp(self) -> str:
        return self.time

    def json(self) -> str:
        self.read += 1
        return report(self.batch)


@dataclass
class JavaQuery:
    """A query that keeps its last reports."""

    kept: int = 100
    reports: list[JavaReport] = field(default_factory=list)

    def ended(self, *batches: int) -> None:
        for batch in batches:
            self.reports.append(JavaReport(batch, f"at {len(self.reports)}"))

    def lastProgress(self) -> JavaReport | None:
        return self.reports[-1] if self.reports else None

    def recentProgress(self) -> list[JavaReport]:
        return self.reports[-self.kept :]


def test_a_run_that_rests_has_no_rates_and_no_lag_and_keeps_its_sums_until_the_next_batch() -> None:
    counts = Counts()
    assert counts.saw(report(0))
    busy = counts.to_proto()
    assert (busy.rows_in_per_second, busy.rows_out_per_second, busy.lag) == (20.0, 8.0, 5)
    counts.rest()
    idle = counts.to_proto()
    assert (idle.rows_in_per_second, idle.rows_out_per_second, idle.lag) == (0.0, 0.0, 0)
    assert (idle.rows_in, idle.rows_out, idle.bad_records, idle.batch_id) == (10, 4, 1, 0)
    assert counts.saw(report(1))
    assert counts.to_proto().rows_in_per_second == 20.0


def test_what_earlier_runs_have_lost_is_added_to_and_none_of_their_batches_counts_again() -> None:
    counts = Counts(lost=Lost(batch_id=4, rows_late=3, bad_records=2))
    dropping = [{"numRowsDroppedByWatermark": 5}, {"numRowsDroppedByWatermark": 1}]
    counts.saw(report(4, stateOperators=dropping))
    assert counts.lost == Lost(4, 3, 2)
    counts.saw(report(5, stateOperators=dropping))
    assert counts.lost == Lost(5, 9, 3)
    told = counts.to_proto()
    assert (told.rows_late, told.bad_records, told.rows_in) == (9, 3, 20)


def test_every_report_is_read_once_and_in_order_also_those_of_a_query_that_rests() -> None:
    query, reports = JavaQuery(), Reports()
    assert reports.news(None, -1) == []
    assert reports.news(query, -1) == []
    query.ended(3, 4, 5)
    assert [json.loads(one)["batchId"] for one in reports.news(query, -1)] == [3, 4, 5]
    assert reports.news(query, 5) == []
    # A query that rests reports the batch that would come next, again and again.
    for _ in range(10):
        query.ended(6)
        assert len(reports.news(query, 5)) == 1
        assert reports.news(query, 5) == []
    query.ended(6, 7)
    assert [json.loads(one)["batchId"] for one in reports.news(query, 5)] == [6, 7]
    assert {one.read for one in query.reports} == {1}


def test_batches_whose_reports_were_gone_before_anybody_looked_are_noticed() -> None:
    query, reports, counts = JavaQuery(kept=4), Reports(), Counts()
    # A run may begin with any batch.
    query.ended(17, 18, 19)
    assert all(counts.saw(one) for one in reports.news(query, counts.batch_id))
    assert counts.missed == 0
    query.ended(*range(20, 30))
    assert [counts.saw(one) for one in reports.news(query, counts.batch_id)] == [True] * 4
    assert (counts.batch_id, counts.missed, counts.rows_in) == (29, 6, 70)


def test_what_goes_out_is_what_was_observed_where_the_sink_does_not_count() -> None:
    counts = Counts()
    observed = {"input0": {"rows": 10, "bad": 0}, "output": {"rows": 7}}
    counts.saw(report(0, observedMetrics=observed, sink={"numOutputRows": -1}))
    assert (counts.rows_in, counts.rows_out) == (10, 7)


def test_the_range_of_a_batch_is_that_of_its_topic_and_the_first_one_began_where_the_query_did() -> None:
    sources = [
        {"description": "KafkaV2[Subscribe[a]]", "startOffset": None, "endOffset": {"a": {"0": 3}}},
        {"description": "KafkaV2[Subscribe[ab]]", "startOffset": {"ab": {"0": 1}}, "endOffset": {"ab": {"0": 2}}},
        {"description": "KafkaV2[Subscribe[b]]", "startOffset": {"b": {"0": 2}}, "endOffset": {"b": {"0": 2}}},
    ]
    told = {"sources": sources}
    assert reported_ranges(told, "a", lambda number: f"first {number}") == {("first 0", '{"a": {"0": 3}}')}
    assert reported_ranges(told, "ab", str) == {('{"ab": {"0": 1}}', '{"ab": {"0": 2}}')}
    assert reported_ranges(told, "b", str) == set()


def test_kafkas_own_words_become_a_reason() -> None:
    missing = failure_of(RuntimeError("org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server"))
    assert (missing.reason.name, missing.transient) == ("KAFKA_TOPIC_MISSING", False)
    for text in (
        "org.apache.kafka.common.errors.TimeoutException: Timed out waiting for a node assignment.",
        "org.apache.kafka.common.config.ConfigException: No resolvable bootstrap urls given in bootstrap.servers",
        "Topic out not present in metadata after 60000 ms.",
    ):
        silent = failure_of(RuntimeError(text))
        assert (silent.reason.name, silent.transient) == ("KAFKA_UNREACHABLE", True)
