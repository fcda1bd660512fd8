"""What fragments tell of their work becomes the figures of their query."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from headgate.catalog import v1 as catalog
from headgate_cli.progress import QueryProgress, fragment_row, lag_text, number, of_query, size

SOURCE, COMPUTE, SINK = (
    catalog.FRAGMENT_KIND_SOURCE,
    catalog.FRAGMENT_KIND_COMPUTE,
    catalog.FRAGMENT_KIND_SINK,
)


def fragment(kind: catalog.FragmentKind.ValueType, **told: object) -> catalog.Fragment:
    return catalog.Fragment(kind=kind, progress=catalog.FragmentProgress(**told))  # type: ignore[arg-type]


def test_rows_come_in_at_the_sources_and_go_out_at_the_sinks() -> None:
    found = of_query(
        [
            fragment(SOURCE, rows_in=100, rows_in_per_second=10.0, rows_out=40, lag=7),
            fragment(SOURCE, rows_in=50, rows_in_per_second=5.0),
            fragment(COMPUTE, rows_in=40, rows_out=4, state_bytes=9, state_rows=2, rows_late=3, lag=2),
            fragment(SINK, rows_in=4, rows_out=4, rows_out_per_second=0.5),
        ]
    )
    assert (found.rows_in, found.rows_in_per_second, found.rows_out, found.rows_out_per_second) == (150, 15.0, 4, 0.5)
    assert (found.state_bytes, found.state_rows, found.rows_late) == (9, 2, 3)
    assert found.lag == {"source": 7, "compute": 2, "sink": 0}


def test_a_query_between_topics_is_told_by_its_compute_fragment() -> None:
    found = of_query([fragment(COMPUTE, rows_in=40, rows_out=4)])
    assert (found.rows_in, found.rows_out) == (40, 4)


def test_the_watermark_of_a_query_is_the_one_furthest_behind() -> None:
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    marks = []
    for moment in (late, early):
        mark = Timestamp()
        mark.FromDatetime(moment)
        marks.append(fragment(COMPUTE, watermark=mark))
    assert of_query(marks).watermark == early


def test_what_no_fragment_has_told_is_not_made_up() -> None:
    found = of_query([catalog.Fragment(kind=COMPUTE)])
    assert found == QueryProgress()
    assert number(found.rows_in) == size(found.state_bytes) == lag_text(found.lag) == "-"


def test_each_reason_to_wait_is_told_once() -> None:
    found = of_query([fragment(SOURCE, waiting="edge is full"), fragment(SINK, waiting="edge is full")])
    assert found.waiting == "edge is full"


def test_what_is_left_to_read_keeps_its_unit() -> None:
    assert lag_text({"source": 3 << 20, "compute": 12, "sink": 0}) == "3.00 MiB of files, 12 to compute"
    assert lag_text({"source": 0}) == "0"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.25, "0.2"),
        (980, "980"),
        (999.9, "1.00k"),
        (12_345, "12.3k"),
        (4_510_000, "4.51M"),
        (1e19, "10000P"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_a_fragment_shows_what_it_told() -> None:
    row = fragment_row(fragment(SOURCE, rows_in=5, lag=2048, bad_records=1, engine="h:1"))
    assert row[1] == "SOURCE"
    assert row[6] == "2.00 KiB"
    assert row[8] == "1"
    assert row[-1] == "h:1"
