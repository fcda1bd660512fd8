"""What the plans compute: rewritten queries give the rows that their statements ask for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from tests.integration.planner_spark.streams import Rows, Streams, compute_of, schema_ddl
from tests.unit.planner.kit import CATALOG, MemoryView, plan

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
# A row this far ahead ends every window; it is taken out again right after the watermark.
FAR = datetime(2030, 1, 1, tzinfo=UTC)
UNTIL = "2029-01-01 00:00:00"


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def results(streams: Streams, text: str, sources: Mapping[str, Sequence[Rows]], sink: str) -> list[tuple[Any, ...]]:
    """The rows that a query gives for batches of rows of its logical sources, sorted."""
    view = MemoryView(CATALOG)
    view.apply(f"CREATE SINK out({sink}) TYPE PRINT ON edge SET('JSON' AS `SINK`.INPUT_FORMAT)")
    made = plan(text, view)
    compute = compute_of(made)
    for entry in compute.inputs:
        source, name = _source_of(made, entry)
        first = sorted(p.name for p in view.physical[f"logical-{name}"])[0]
        physical = source.physical_source if source is not None else entry.topic.physical_source
        # All rows come from one of the physical sources; the others only say that they have nothing more.
        batches = list(sources[name]) if physical == first else []
        schema = view.logical[name].schema
        time = next(field.name for field in schema.fields if field.type == "TIMESTAMP")
        folder = streams.of(schema_ddl(schema), [*batches, [{time: FAR}]])
        full = catalog.ComputeInput()
        full.CopyFrom(entry)
        full.schema.CopyFrom(schema)
        streams.register(full, folder, UNTIL, filter_=_filter(source), columns=source.columns if source else ())
    frame = streams.spark.sql(compute.spark_sql)
    table = streams.run(frame, compute.output_mode, "memory")
    rows = [tuple(row) for row in streams.spark.sql(f"SELECT * FROM {table}").collect()]
    return sorted(rows, key=repr)


def _source_of(made: catalog.QueryPlan, entry: catalog.ComputeInput) -> tuple[catalog.SourceFragment | None, str]:
    if entry.HasField("topic"):
        return None, entry.topic.physical_source.rpartition("_")[0]
    fragment = made.fragments[made.edges[entry.edge - 1].from_fragment - 1]
    return fragment.source, fragment.source.physical_source.rpartition("_")[0]


def _filter(source: catalog.SourceFragment | None) -> str:
    return source.filter if source is not None else ""


def naive(moment: datetime) -> datetime:
    """As the session gives timestamps back."""
    return moment.replace(tzinfo=None)


def car(second: float, vehicle: int, speed: float | None = 50.0, highway: int = 1) -> dict[str, Any]:
    return {"creationTS": at(second), "vehicle": vehicle, "speed": speed, "highway": highway}


def order(second: float, id_: int, customer: str = "c", status: str = "open") -> dict[str, Any]:
    return {"ts": at(second), "id": id_, "customer": customer, "amount": Decimal("5.00"), "status": status}


def payment(second: float, id_: int, paid: str = "1.00", method: str = "card") -> dict[str, Any]:
    return {"ts": at(second), "order_id": id_, "paid": Decimal(paid), "method": method}


def test_tumbling_count_with_a_pushed_filter_and_having(streams: Streams) -> None:
    cars = [car(1, 1), car(2, 2), car(3, 3, speed=5.0), car(4, 4, highway=2), car(7, 5), car(9, 6, speed=None)]
    found = results(
        streams,
        "SELECT start, highway, COUNT(*) AS n FROM lrb WHERE speed > 10 GROUP BY highway "
        "WINDOW TUMBLING(creationTS, SIZE 5 SEC) HAVING n > 0 AND highway < 2 INTO out",
        {"lrb": [cars]},
        "start TIMESTAMP, highway INT16, n INT64",
    )
    assert found == [(naive(at(0)), 1, 2), (naive(at(5)), 1, 1)]


def test_rows_of_a_sliding_window_count_in_each_window(streams: Streams) -> None:
    found = results(
        streams,
        "SELECT start, COUNT(*) AS n FROM lrb WINDOW SLIDING(creationTS, SIZE 10 SEC, ADVANCE BY 5 SEC) INTO out",
        {"lrb": [[car(1, 1), car(6, 2)]]},
        "start TIMESTAMP, n INT64",
    )
    assert found == [(naive(at(-5)), 1), (naive(at(0)), 2), (naive(at(5)), 1)]


def test_session_ends_after_its_gap_with_first_and_last(streams: Streams) -> None:
    cars = [car(0, 1, highway=3), car(8, 1, highway=4), car(30, 1, highway=5), car(2, 2, highway=9)]
    found = results(
        streams,
        "SELECT start, end, vehicle, COUNT(*) AS n, FIRST(highway) AS a, LAST(highway) AS b FROM lrb GROUP BY vehicle "
        "WINDOW SESSION(creationTS, GAP 10 SEC) INTO out",
        {"lrb": [cars]},
        "start TIMESTAMP, end TIMESTAMP, vehicle INT32, n INT64, a INT16, b INT16",
    )
    assert found == [
        (naive(at(0)), naive(at(18)), 1, 2, 3, 4),
        (naive(at(2)), naive(at(12)), 2, 1, 9, 9),
        (naive(at(30)), naive(at(40)), 1, 1, 5, 5),
    ]


def test_sessions_are_told_apart_by_both_bounds_and_not_merged_again(streams: Streams) -> None:
    cars = [car(0, 1), car(5, 1), car(0, 2), car(5, 2), car(3, 3), car(60, 4)]
    found = results(
        streams,
        "SELECT s, e, COUNT(*) AS cars, MAX(n) AS most FROM (SELECT start AS s, end AS e, vehicle, COUNT(*) AS n "
        "FROM lrb GROUP BY vehicle WINDOW SESSION(creationTS, GAP 10 SEC)) GROUP BY s, e INTO out",
        {"lrb": [cars]},
        "s TIMESTAMP, e TIMESTAMP, cars INT64, most INT64",
    )
    assert found == [
        (naive(at(0)), naive(at(15)), 2, 2),
        (naive(at(3)), naive(at(13)), 1, 1),
        (naive(at(60)), naive(at(70)), 1, 1),
    ]
    found = results(
        streams,
        "SELECT start, end, COUNT(*) AS n FROM lrb WINDOW SESSION(creationTS, GAP 10 SEC) INTO out",
        {"lrb": [cars]},
        "start TIMESTAMP, end TIMESTAMP, n INT64",
    )
    assert found == [(naive(at(0)), naive(at(15)), 5), (naive(at(60)), naive(at(70)), 1)]


def test_aggregates_by_event_time_and_exact_distinct(streams: Streams) -> None:
    rows = [
        {"ts": at(3), "s": "c", "i32": 3, "f64": float("nan")},
        {"ts": at(1), "s": None, "i32": 1, "f64": 0.0},
        {"ts": at(2), "s": "b", "i32": 1, "f64": -0.0},
        {"ts": at(4), "s": "b", "i32": None, "f64": float("nan")},
        {"ts": at(4), "s": "a", "i32": 2, "f64": None},
    ]
    found = results(
        streams,
        "SELECT FIRST(s) AS a, FIRST(s) IGNORE NULLS AS b, LAST(s) AS c, COLLECT_LIST(s) AS d, "
        "COUNT(DISTINCT f64) AS e, SUM(DISTINCT i32) AS f, "
        "COUNT(DISTINCT s, i32) AS g, COLLECT_SET(i32) AS h, MAX_BY(s, i32) AS i "
        "FROM types WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out",
        {"types": [rows]},
        "a VARCHAR, b VARCHAR, c VARCHAR, d ARRAY<VARCHAR>, e INT64, f INT64, g INT64, h ARRAY<INT32>, i VARCHAR",
    )
    assert found == [(None, "b", "b", ["b", "c", "a", "b"], 2, 6, 3, [1, 2, 3], "c")]


def test_left_join_within_a_window_keeps_rows_without_partner(streams: Streams) -> None:
    found = results(
        streams,
        "SELECT start, o.id, p.paid FROM orders o LEFT JOIN payments p ON o.id = p.order_id "
        "WINDOW TUMBLING(ts, SIZE 10 SEC) INTO out",
        {"orders": [[order(1, 1), order(2, 2), order(11, 3)]], "payments": [[payment(3, 1), payment(5, 3)]]},
        "start TIMESTAMP, id INT64, paid DECIMAL(12,2)",
    )
    assert found == [
        (naive(at(0)), 1, Decimal("1.00")),
        (naive(at(0)), 2, None),
        (naive(at(10)), 3, None),
    ]


def test_full_join_within_a_window_can_be_grouped_by_it(streams: Streams) -> None:
    found = results(
        streams,
        "SELECT start, COUNT(*) AS n, COUNT(o.id) AS o, COUNT(p.order_id) AS p FROM orders o FULL JOIN payments p "
        "ON o.id = p.order_id WINDOW TUMBLING(ts, SIZE 10 SEC) INTO out",
        {"orders": [[order(1, 1), order(2, 2), order(12, 5)]], "payments": [[payment(3, 1), payment(4, 9)]]},
        "start TIMESTAMP, n INT64, o INT64, p INT64",
    )
    assert found == [(naive(at(0)), 3, 2, 2), (naive(at(10)), 1, 1, 0)]


def test_three_streams_within_a_window(streams: Streams) -> None:
    shipped = [{"ts": at(5), "order_id": 1, "carrier": "x"}, {"ts": at(6), "order_id": 1, "carrier": "y"}]
    found = results(
        streams,
        "SELECT o.id, COUNT(*) AS n, LAST(s.carrier) AS c FROM orders o JOIN payments p ON o.id = p.order_id "
        "LEFT JOIN shipments s ON s.order_id = o.id GROUP BY o.id WINDOW TUMBLING(ts, SIZE 10 SEC) INTO out",
        {
            "orders": [[order(1, 1), order(2, 2)]],
            "payments": [[payment(3, 1), payment(3, 2)]],
            "shipments": [shipped],
        },
        "id INT64, n INT64, c VARCHAR",
    )
    assert found == [(1, 2, "y"), (2, 1, None)]


def test_in_a_windowed_sub_select_goes_by_the_same_window(streams: Streams) -> None:
    found = results(
        streams,
        "SELECT id FROM orders WHERE id IN (SELECT order_id FROM payments WINDOW TUMBLING(ts, SIZE 10 SEC)) INTO out",
        {
            "orders": [[order(1, 1), order(2, 2), order(9, 3)]],
            "payments": [[payment(8, 1), payment(9, 1), payment(10, 3)]],
        },
        "id INT64",
    )
    assert found == [(1,)]


def test_not_exists_gives_rows_once_their_time_has_passed(streams: Streams) -> None:
    found = results(
        streams,
        "SELECT start, COUNT(*) AS unpaid FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p "
        "WHERE p.order_id = o.id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 5 SECONDS) "
        "WINDOW TUMBLING(ts, SIZE 10 SEC) INTO out",
        {"orders": [[order(1, 1), order(2, 2), order(3, 3)]], "payments": [[payment(4, 1), payment(9, 2)]]},
        "start TIMESTAMP, unpaid INT64",
    )
    assert found == [(naive(at(0)), 2)]


def test_start_of_a_window_as_a_bound_of_a_time_range(streams: Streams) -> None:
    found = results(
        streams,
        "SELECT o.id, w.n FROM orders o JOIN (SELECT start, order_id, COUNT(*) AS n FROM payments GROUP BY order_id "
        "WINDOW TUMBLING(ts, SIZE 10 SEC)) w ON o.id = w.order_id "
        "AND w.start BETWEEN o.ts AND o.ts + INTERVAL 10 SECONDS INTO out",
        {
            "orders": [[order(0, 1), order(1, 2), order(10, 3)]],
            "payments": [[payment(9, 1), payment(10, 2), payment(11, 2), payment(9, 3)]],
        },
        "id INT64, n INT64",
    )
    # The window of order 3's payment starts 10 s before it, which is out of range.
    assert found == [(1, 1), (2, 2)]


def test_first_rows_of_a_window_with_ties_nulls_and_numbers(streams: Streams) -> None:
    cars = [car(1, 1, 70.0), car(2, 2, 90.0), car(3, 3, 90.0), car(4, 4, None), car(5, 5, 10.0), car(61, 6, 1.0)]
    found = results(
        streams,
        "SELECT vehicle, speed, rn FROM (SELECT vehicle, speed, ROW_NUMBER() OVER (PARTITION BY window_start "
        "ORDER BY speed DESC NULLS FIRST) AS rn FROM TUMBLE(TABLE lrb, DESCRIPTOR(creationTS), INTERVAL '1' MINUTE)) "
        "WHERE rn <= 3 INTO out",
        {"lrb": [cars]},
        "vehicle INT32, speed FLOAT32, rn INT32",
    )
    assert found == [(2, 90.0, 2), (3, 90.0, 3), (4, None, 1), (6, 1.0, 1)]


def test_top_groups_and_distinct_of_each_window(streams: Streams) -> None:
    cars = [car(s, v, highway=h) for s, v, h in ((1, 1, 1), (2, 2, 1), (3, 3, 2), (61, 4, 3), (62, 5, 4), (63, 6, 4))]
    found = results(
        streams,
        "SELECT start, highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) "
        "ORDER BY n DESC LIMIT 1 INTO out",
        {"lrb": [cars]},
        "start TIMESTAMP, highway INT16, n INT64",
    )
    assert found == [(naive(at(0)), 1, 2), (naive(at(60)), 4, 2)]
    found = results(
        streams,
        "SELECT DISTINCT highway FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO out",
        {"lrb": [cars]},
        "highway INT16",
    )
    assert found == [(1,), (2,), (3,), (4,)]


def test_windows_of_windows(streams: Streams) -> None:
    cars = [car(1, 1), car(2, 2), car(12, 3), car(61, 4)]
    found = results(
        streams,
        "SELECT start, MAX(n) AS most, COUNT(*) AS windows FROM (SELECT start, COUNT(*) AS n FROM lrb "
        "WINDOW TUMBLING(creationTS, SIZE 10 SEC)) WINDOW TUMBLING(start, SIZE 1 MIN) INTO out",
        {"lrb": [cars]},
        "start TIMESTAMP, most INT64, windows INT64",
    )
    assert found == [(naive(at(0)), 2, 2), (naive(at(60)), 1, 1)]


def test_updates_of_an_aggregate_without_a_window(streams: Streams) -> None:
    found = results(
        streams,
        "SELECT highway, COUNT(DISTINCT vehicle) AS cars FROM lrb WHERE highway > 0 GROUP BY highway INTO out",
        {"lrb": [[car(1, 1), car(2, 1)], [car(3, 2), car(4, 3, highway=2)]]},
        "highway INT16, cars INT64",
    )
    assert found == [(1, 1), (1, 2), (2, 1)]
