"""Columns, sub-selects, unions, DISTINCT, the first rows of windows, options, several sources, with their oracles."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from tests.integration.planner_spark.oracle.case import Case, Row, Tables
from tests.integration.planner_spark.oracle.rows import ARRIVING, BEGIN, LATENESS

COLUMNS = "Columns and expressions"
SUB_SELECTS = "UNION ALL, sub-selects, WITH"
FIRST_ROWS = "DISTINCT and the first n of a window"
OPTIONS = "Options"
SEVERAL = "Several sources of one logical source"
EXPLAIN = "EXPLAIN"

MINUTE = timedelta(minutes=1)


def _too_late(lateness: timedelta) -> Iterable[Row]:
    """Windows of a minute, without the rows whose window had been given when their batch began.

    What a batch ends is given with the next one; until then rows of it count, late or not.
    """
    counts: dict[datetime, int] = {}
    watermarks = [BEGIN, BEGIN]
    for batch in ARRIVING["late"]:
        for row in batch:
            start = BEGIN + (row["ts"] - BEGIN) // MINUTE * MINUTE
            if start + MINUTE > watermarks[-2]:
                counts[start] = counts.get(start, 0) + 1
        watermarks.append(max(watermarks[-1], *(row["ts"] - lateness for row in batch)))
    return [*counts.items()]


def _random(rows: list[Row]) -> list[Row]:
    """What can be said of random values: in their range, and not all the same."""
    inside = all(0 <= row[1] < 1 and -20 < row[2] < 20 and len(row[3]) == 36 for row in rows)
    apart = min(len({row[place] for row in rows}) for place in (1, 2, 3))
    return [(len(rows), inside, apart == len(rows))]


def _now(rows: list[Row]) -> list[Row]:
    """The time of the batch: one for a batch, of today, the date that of the time."""
    instants = {row[0] for row in rows}
    return [
        (
            all(row[0] == row[1] and row[2] == row[3] == row[0].date() for row in rows),
            len(instants) == len(ARRIVING["orders"]),
            len(rows),
        )
    ]


def _places(tables: Tables) -> Iterable[Row]:
    for row in tables["kinds"]:
        place = row["place"] or {"city": None, "at": None}
        more = None if row["i"] is None else row["i"] + 1
        if row["n"] > 3:
            yield row["n"], place["city"], place["at"] and (*place["at"].values(),), more, more and more * 2


CASES = (
    Case(
        "expressions_and_filters",
        COLUMNS,
        """
        SELECT vehicle, speed * 3.6 AS kmh, CASE WHEN speed > 30 THEN 'fast' ELSE 'slow' END AS class
        FROM lrb
        WHERE highway IN (1, 2) AND lane BETWEEN 1 AND 3 AND NOT direction
        """,
        """
        SELECT vehicle, speed::DOUBLE * 3.6::DOUBLE, CASE WHEN speed > 30 THEN 'fast' ELSE 'slow' END
        FROM lrb WHERE highway IN (1, 2) AND lane BETWEEN 1 AND 3 AND NOT direction
        """,
    ),
    Case(
        "many_expressions",
        COLUMNS,
        """
        SELECT id, amount + 1 AS more, CAST(amount AS INT64) AS whole, TRY_CAST(customer AS INT32) AS number,
          upper(customer) || '-' || CAST(id AS VARCHAR) AS label, tags[0] AS first_tag,
          get_json_object(doc, '$.address.city') AS city, regexp_extract(customer, '([a-z]+)', 1) AS letters,
          date_trunc('HOUR', ts) AS hour, ts + INTERVAL 5 MINUTES AS later, COALESCE(customer, 'nobody') AS who
        FROM orders
        """,
        """
        SELECT id, amount + 1, trunc(amount)::BIGINT, TRY_CAST(customer AS INTEGER),
          upper(customer) || '-' || id::VARCHAR,
          tags[1], CASE WHEN doc LIKE '%Köln%' THEN 'Köln' END, regexp_extract(customer, '([a-z]+)', 1),
          date_trunc('hour', ts), ts + INTERVAL 5 MINUTES, coalesce(customer, 'nobody')
        FROM orders
        """,
    ),
    Case("all_columns", COLUMNS, "SELECT * FROM visits", "SELECT * FROM visits"),
    Case(
        "star_with_exceptions_and_quoted_names",
        COLUMNS,
        'SELECT v.* EXCEPT (ts, `end`), "Weird Name" AS again, V.START AS s FROM Visits AS v',
        'SELECT start, "Weird Name", "Weird Name", start FROM visits',
    ),
    Case(
        "star_of_a_struct_and_aliases_used_further_right",
        COLUMNS,
        "SELECT n, place.*, i + 1 AS next, next * 2 AS twice FROM kinds WHERE n > 3",
        _places,
    ),
    Case(
        "filters_of_every_sort_that_agents_evaluate",
        COLUMNS,
        """
        SELECT n FROM kinds WHERE x > 1.5 OR s IN ('a', '日本語') OR (d IS NULL AND NOT flag) OR day < '2024-01-01'
          OR u64 > 5 AND ts >= '2026-01-01 00:05:00' OR i BETWEEN -7 AND 0 AND i <> small
        """,
        """
        SELECT n FROM kinds WHERE x > 1.5 OR s IN ('a', '日本語') OR (d IS NULL AND NOT flag) OR day < '2024-01-01'
          OR u64 > 5 AND ts >= '2026-01-01 00:05:00' OR i BETWEEN -7 AND 0 AND i <> small
        """,
    ),
    Case(
        "times_of_the_batch",
        COLUMNS,
        "SELECT current_timestamp() AS a, now() AS b, current_date() AS c, curdate() AS d FROM orders",
        lambda tables: [(True, True, len(tables["orders"]))],
        _now,
    ),
    Case(
        "random_values",
        OPTIONS,
        "SELECT id, rand() AS a, randn() AS b, uuid() AS c, random() AS d FROM orders INTO out WITH (mode = realtime)",
        lambda tables: [(len(tables["orders"]), True, True)],
        _random,
    ),
    Case(
        "union_in_a_with_query",
        SUB_SELECTS,
        """
        WITH all_ids AS (SELECT id, ts FROM orders UNION ALL SELECT order_id, ts FROM payments)
        SELECT start, id, COUNT(*) AS n FROM all_ids GROUP BY id WINDOW TUMBLING(ts, SIZE 1 MIN)
        """,
        """
        WITH all_ids AS (SELECT id, ts FROM orders UNION ALL SELECT order_id, ts FROM payments)
        SELECT tumble(ts, INTERVAL '1 minute'), id, count(*) FROM all_ids GROUP BY ALL
        """,
    ),
    Case(
        "union_widens_and_keeps_duplicates",
        SUB_SELECTS,
        "SELECT vehicle AS v, speed AS x FROM lrb UNION ALL SELECT id, amount FROM orders "
        "UNION ALL SELECT n, y FROM kinds",
        "SELECT vehicle, speed::DOUBLE FROM lrb UNION ALL SELECT id, amount::DOUBLE FROM orders "
        "UNION ALL SELECT n, y FROM kinds",
    ),
    Case(
        "same_source_twice_in_a_union",
        SUB_SELECTS,
        "SELECT vehicle FROM lrb WHERE speed > 30 AND highway = 1 UNION ALL SELECT vehicle FROM lrb WHERE speed > 30",
        "SELECT vehicle FROM lrb WHERE speed > 30 AND highway = 1 UNION ALL SELECT vehicle FROM lrb WHERE speed > 30",
    ),
    Case(
        "sub_selects_in_sub_selects",
        SUB_SELECTS,
        "SELECT a + 1 AS b FROM (SELECT a FROM (SELECT vehicle AS a, speed FROM lrb WHERE speed > 3) "
        "WHERE a > 2) AS x(a)",
        "SELECT vehicle + 1 FROM lrb WHERE speed > 3 AND vehicle > 2",
    ),
    Case(
        "with_query_used_twice",
        SUB_SELECTS,
        """
        WITH c(s, h, n) AS (
          SELECT start, highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(ts, SIZE 5 MIN)
        ) SELECT a.s, a.h, b.h AS other FROM c a JOIN c b ON a.s = b.s AND a.n = b.n AND a.h < b.h
        """,
        """
        WITH c AS (SELECT tumble(ts, INTERVAL '5 minutes') AS s, highway AS h, count(*) AS n FROM lrb
          WHERE ts IS NOT NULL GROUP BY ALL)
        SELECT a.s, a.h, b.h FROM c a JOIN c b ON a.s = b.s AND a.n = b.n AND a.h < b.h
        """,
    ),
    Case(
        "grouping_with_itself_in_a_union",
        SUB_SELECTS,
        """
        WITH c AS (SELECT start, highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(ts, SIZE 5 MIN))
        SELECT * FROM c UNION ALL SELECT * FROM c
        """,
        """
        WITH c AS (SELECT tumble(ts, INTERVAL '5 minutes') AS s, highway AS h, count(*) AS n FROM lrb
          WHERE ts IS NOT NULL GROUP BY ALL)
        SELECT * FROM c UNION ALL SELECT * FROM c
        """,
    ),
    Case(
        "union_of_windowed_queries",
        SUB_SELECTS,
        """
        SELECT start, COUNT(*) AS n FROM orders WINDOW TUMBLING(ts, SIZE 10 MIN)
        UNION ALL SELECT start, COUNT(*) AS n FROM payments WINDOW TUMBLING(ts, SIZE 10 MIN)
        """,
        """
        SELECT tumble(ts, INTERVAL '10 minutes') AS s, count(*) FROM orders GROUP BY s
        UNION ALL SELECT tumble(ts, INTERVAL '10 minutes') AS s, count(*) FROM payments GROUP BY s
        """,
    ),
    Case(
        "distinct_rows_of_a_window",
        FIRST_ROWS,
        "SELECT DISTINCT highway, lane FROM lrb WINDOW TUMBLING(ts, SIZE 1 MIN)",
        """
        SELECT highway, lane FROM (
          SELECT DISTINCT tumble(ts, INTERVAL '1 minute') AS s, highway, lane FROM lrb WHERE ts IS NOT NULL
        )
        """,
    ),
    Case(
        "distinct_of_groups_and_of_not_a_number",
        FIRST_ROWS,
        "SELECT DISTINCT start, speed FROM lrb WINDOW TUMBLING(ts, SIZE 10 MIN)",
        "SELECT DISTINCT tumble(ts, INTERVAL '10 minutes'), speed FROM lrb WHERE ts IS NOT NULL",
    ),
    Case(
        "first_groups_of_a_window",
        FIRST_ROWS,
        """
        SELECT start, highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(ts, SIZE 1 MIN)
        ORDER BY n DESC LIMIT 3
        """,
        """
        SELECT s, highway, n FROM (
          SELECT tumble(ts, INTERVAL '1 minute') AS s, highway, count(*) AS n FROM lrb WHERE ts IS NOT NULL GROUP BY ALL
        ) QUALIFY row_number() OVER (PARTITION BY s ORDER BY n DESC, highway NULLS FIRST) <= 3
        """,
    ),
    Case(
        "fetch_first_by_what_is_not_selected",
        FIRST_ROWS,
        """
        SELECT start, highway FROM lrb GROUP BY highway WINDOW TUMBLING(ts, SIZE 5 MIN)
        ORDER BY MAX(speed) DESC NULLS LAST FETCH FIRST 1 ROWS ONLY
        """,
        """
        SELECT s, highway FROM (
          SELECT tumble(ts, INTERVAL '5 minutes') AS s, highway, max(speed) AS m
            FROM lrb WHERE ts IS NOT NULL GROUP BY ALL
        ) QUALIFY row_number() OVER (PARTITION BY s ORDER BY m DESC NULLS LAST, highway NULLS FIRST) <= 1
        """,
    ),
    Case(
        "first_rows_of_each_group",
        FIRST_ROWS,
        """
        SELECT highway, vehicle, speed FROM (
          SELECT highway, vehicle, speed, ROW_NUMBER() OVER (PARTITION BY window_start,
            highway ORDER BY speed DESC) AS place
          FROM TUMBLE(TABLE lrb, DESCRIPTOR(ts), INTERVAL '1' MINUTE)
        ) WHERE place <= 3
        """,
        """
        SELECT highway, vehicle, speed FROM lrb WHERE ts IS NOT NULL QUALIFY row_number() OVER (
          PARTITION BY tumble(ts, INTERVAL '1 minute'), highway ORDER BY speed DESC NULLS LAST, vehicle NULLS FIRST
        ) <= 3
        """,
    ),
    Case(
        "qualify",
        FIRST_ROWS,
        """
        SELECT highway, vehicle FROM TUMBLE(TABLE lrb, DESCRIPTOR(ts), INTERVAL '5' MINUTES)
        QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start, highway ORDER BY speed NULLS LAST, vehicle) <= 2
        """,
        """
        SELECT highway, vehicle FROM lrb WHERE ts IS NOT NULL QUALIFY row_number() OVER (
          PARTITION BY tumble(ts, INTERVAL '5 minutes'), highway ORDER BY speed NULLS LAST, vehicle NULLS FIRST
        ) <= 2
        """,
    ),
    Case(
        "row_numbers_within_the_window_of_the_select",
        FIRST_ROWS,
        """
        SELECT id, place FROM (
          SELECT id, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY amount) AS place
          FROM orders WINDOW TUMBLING(ts, SIZE 30 MIN)
        ) WHERE place < 3
        """,
        """
        SELECT id, row_number() OVER (PARTITION BY tumble(ts, INTERVAL '30 minutes'), customer
          ORDER BY amount NULLS FIRST, id NULLS FIRST) AS place FROM orders QUALIFY place < 3
        """,
    ),
    Case(
        "rows_that_are_too_late_are_left_out",
        OPTIONS,
        "SELECT start, COUNT(*) AS n FROM late WINDOW TUMBLING(ts, SIZE 1 MIN) INTO out WITH (lateness = 30s)",
        lambda _: _too_late(timedelta(seconds=30)),
    ),
    Case(
        "lateness_by_default",
        OPTIONS,
        "SELECT start, COUNT(*) AS n FROM late WINDOW TUMBLING(ts, SIZE 1 MIN)",
        lambda _: _too_late(LATENESS),
    ),
    Case(
        "windows_over_both_sources",
        SEVERAL,
        """
        SELECT start, visits.start AS theirs, COUNT(*) AS n FROM visits GROUP BY visits.start
        WINDOW TUMBLING(ts, SIZE 1 MIN)
        """,
        "SELECT tumble(ts, INTERVAL '1 minute'), start, count(*) FROM visits GROUP BY 1, 2",
    ),
    Case(
        "what_explain_shows_pushed_to_agents",
        EXPLAIN,
        "EXPLAIN SELECT vehicle FROM lrb WHERE speed > 30 AND sqrt(highway) > 1",
        # The root of a negative number is NaN, which is greater than any other.
        "SELECT vehicle FROM lrb WHERE speed > 30 AND (highway > 1 OR highway < 0)",
    ),
)
