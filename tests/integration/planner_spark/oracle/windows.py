"""Windows and aggregates, with their oracles."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.integration.planner_spark.oracle.case import Case, Row, Tables
from tests.integration.planner_spark.streams import Rows

WINDOWS = "Windows"
AGGREGATES = "Aggregates"


def sessions(rows: Rows, gap: timedelta, key: str = "") -> list[tuple[datetime, datetime, Any, list[Any]]]:
    """Start, end, key and rows of each session: rows of a key less than a gap apart."""
    by_key: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        if row["ts"] is not None:
            by_key[row[key] if key else None].append(row)
    found = []
    for value, members in by_key.items():
        open_: list[Any] = []
        for row in sorted(members, key=lambda row: row["ts"]):
            if open_ and row["ts"] >= open_[-1]["ts"] + gap:
                found.append((open_[0]["ts"], open_[-1]["ts"] + gap, value, open_))
                open_ = []
            open_.append(row)
        found.append((open_[0]["ts"], open_[-1]["ts"] + gap, value, open_))
    return found


def _sessions_of_cars(tables: Tables) -> Iterable[Row]:
    for start, end, vehicle, rows in sessions(tables["lrb"], timedelta(seconds=30), "vehicle"):
        yield vehicle, start, end, len(rows)


def _busy_sessions(tables: Tables) -> Iterable[Row]:
    for start, end, _, rows in sessions(tables["lrb"], timedelta(seconds=20)):
        if len(rows) > 2:
            yield start, end, len(rows), _first(rows, "vehicle"), _first(list(reversed(rows)), "vehicle", last=True)


def _first(rows: list[Any], column: str, *, last: bool = False) -> Any:
    """The value of the first row; of several at that instant the least, NULL before all."""
    same = [row[column] for row in rows if row["ts"] == rows[0]["ts"]]
    chosen = sorted(same, key=lambda value: (value is not None, value or 0))
    return chosen[-1] if last else chosen[0]


def _windows_of_sessions(tables: Tables) -> Iterable[Row]:
    found: dict[datetime, list[int]] = defaultdict(list)
    for _, end, _, rows in sessions(tables["lrb"], timedelta(seconds=10), "vehicle"):
        last = end - timedelta(microseconds=1)
        found[last.replace(minute=last.minute // 5 * 5, second=0, microsecond=0)].append(len(rows))
    return [(start, len(counts), sum(counts)) for start, counts in found.items()]


def _total(rows: list[Row]) -> list[Row]:
    """The sum over windows of processing time, which are where they are; they begin on whole five seconds."""
    aligned = all(row[0].second % 5 == 0 and row[0].microsecond == 0 for row in rows)
    return [(sum((row[1] for row in rows if row[1] is not None), Decimal(0)), aligned)]


_TUMBLED = "FROM lrb WHERE ts IS NOT NULL"

CASES = (
    Case(
        "tumbling_with_having_on_an_alias",
        WINDOWS,
        """
        SELECT start, end, highway, AVG(speed) AS mean
        FROM lrb
        GROUP BY highway
        WINDOW TUMBLING(ts, SIZE 5 MIN)
        HAVING mean < FLOAT32(40)
        """,
        f"""
        SELECT tumble(ts, INTERVAL '5 minutes') AS s, s + INTERVAL '5 minutes', highway, avg(speed::DOUBLE) AS mean
        {_TUMBLED} GROUP BY s, highway HAVING mean < 40
        """,
    ),
    Case(
        "sliding",
        WINDOWS,
        """
        SELECT start, end, highway, COUNT(*) AS n, MAX(speed) AS top FROM lrb GROUP BY highway
        WINDOW SLIDING(ts, SIZE 5 MIN, ADVANCE BY 1 MIN)
        """,
        f"""
        SELECT s, s + INTERVAL '5 minutes', highway, count(*), max(speed) FROM (
          SELECT *, unnest(hops(ts, INTERVAL '5 minutes', INTERVAL '1 minute')) AS s {_TUMBLED}
        ) GROUP BY s, highway
        """,
    ),
    Case(
        "sliding_by_a_step_that_does_not_divide_it",
        WINDOWS,
        "SELECT start, COUNT(*) AS n FROM lrb WINDOW SLIDING(ts, SIZE 50 SEC, ADVANCE BY 20 SEC)",
        f"""
        SELECT s, count(*) FROM (
          SELECT unnest(hops(ts, INTERVAL '50 seconds', INTERVAL '20 seconds')) AS s {_TUMBLED}
        ) GROUP BY s
        """,
    ),
    Case(
        "sessions_of_each_group",
        WINDOWS,
        """
        SELECT vehicle, start, end, COUNT(*) AS points FROM lrb GROUP BY vehicle
        WINDOW SESSION(ts, GAP 30 SEC, LATENESS 5 SEC)
        """,
        _sessions_of_cars,
    ),
    Case(
        "sessions_of_all_rows_with_having",
        WINDOWS,
        """
        SELECT start, end, COUNT(*) AS n, FIRST(vehicle) AS a, LAST(vehicle) AS b FROM lrb
        WINDOW SESSION(ts, GAP 20 SEC) HAVING n > 2
        """,
        _busy_sessions,
    ),
    Case(
        "processing_time",
        WINDOWS,
        "SELECT start, SUM(amount) AS total FROM orders WINDOW TUMBLING(size = 5s)",
        "SELECT sum(amount), TRUE FROM orders",
        _total,
    ),
    Case(
        "integer_time",
        WINDOWS,
        """
        SELECT start, symbol, MAX(price) AS high FROM ticks GROUP BY symbol
        WINDOW TUMBLING(at_ms UNIT MILLISECONDS, SIZE 1 MIN)
        """,
        "SELECT tumble(make_timestamp(at_ms * 1000), INTERVAL '1 minute') AS s, symbol, max(price) "
        "FROM ticks GROUP BY ALL",
    ),
    *(
        Case(
            f"integer_time_in_{unit.lower()}",
            WINDOWS,
            f"""
            SELECT start, symbol, COUNT(*) AS n FROM (SELECT at_ms * {factor} DIV {divisor} AS at, symbol FROM ticks)
            GROUP BY symbol WINDOW TUMBLING(at UNIT {unit}, SIZE 1 MIN)
            """,
            "SELECT tumble(make_timestamp(at_ms * 1000), INTERVAL '1 minute') AS s, symbol, count(*) "
            "FROM ticks GROUP BY ALL",
        )
        for unit, factor, divisor in (("SECONDS", 1, 1000), ("MICROSECONDS", 1000, 1), ("NANOSECONDS", 1_000_000, 1))
    ),
    Case(
        "sliding_with_an_offset",
        WINDOWS,
        "SELECT start, COUNT(*) AS n FROM lrb WINDOW SLIDING(ts, SIZE 5 MIN, ADVANCE BY 2 MIN, OFFSET 30 SEC)",
        f"""
        SELECT s + INTERVAL '30 seconds', count(*) FROM (
          SELECT unnest(hops(ts - INTERVAL '30 seconds', INTERVAL '5 minutes', INTERVAL '2 minutes')) AS s {_TUMBLED}
        ) GROUP BY s
        """,
    ),
    Case(
        "offset_window_time_and_window_first",
        WINDOWS,
        """
        SELECT start, window_time, highway, COUNT(vehicle) AS n FROM lrb
        WINDOW TUMBLING(ts, SIZE 5 MIN, OFFSET 2 MIN, LATENESS 10 SEC) GROUP BY highway
        """,
        f"""
        SELECT tumble(ts - INTERVAL '2 minutes', INTERVAL '5 minutes') + INTERVAL '2 minutes' AS s,
          s + INTERVAL '5 minutes' - INTERVAL '1 microsecond', highway, count(vehicle)
        {_TUMBLED} GROUP BY s, highway
        """,
    ),
    Case(
        "rows_with_their_windows",
        WINDOWS,
        "SELECT start, end, vehicle, speed FROM lrb WINDOW SLIDING(ts, SIZE 2 MIN, ADVANCE BY 1 MIN)",
        f"""
        SELECT s, s + INTERVAL '2 minutes', vehicle, speed FROM (
          SELECT *, unnest(hops(ts, INTERVAL '2 minutes', INTERVAL '1 minute')) AS s {_TUMBLED})
        """,
    ),
    Case(
        "spelling_of_spark",
        WINDOWS,
        "SELECT window.start, highway, COUNT(*) AS n FROM lrb GROUP BY window(ts, '5 minutes'), highway",
        f"SELECT tumble(ts, INTERVAL '5 minutes') AS s, highway, count(*) {_TUMBLED} GROUP BY s, highway",
    ),
    Case(
        "spelling_of_flink",
        WINDOWS,
        """
        SELECT window_start, window_end, COUNT(*) AS n
        FROM TABLE(HOP(TABLE lrb, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTES))
        GROUP BY window_start, window_end
        """,
        f"""
        SELECT s, s + INTERVAL '5 minutes', count(*) FROM (
          SELECT unnest(hops(ts, INTERVAL '5 minutes', INTERVAL '1 minute')) AS s {_TUMBLED}
        ) GROUP BY s
        """,
    ),
    Case(
        "sessions_in_the_spelling_of_spark",
        WINDOWS,
        "SELECT vehicle, session_window.start, session_window.end, COUNT(*) AS points FROM lrb "
        "GROUP BY session_window(ts, '30 seconds'), vehicle",
        _sessions_of_cars,
    ),
    Case(
        "sessions_in_the_spelling_of_flink",
        WINDOWS,
        """
        SELECT vehicle, window_start, window_end, COUNT(*) AS points
        FROM TABLE(SESSION(TABLE lrb, DESCRIPTOR(ts), INTERVAL '30' SECONDS))
        GROUP BY vehicle, window_start, window_end
        """,
        _sessions_of_cars,
    ),
    Case(
        "windows_of_windows",
        WINDOWS,
        """
        SELECT start, MAX(n) AS busiest
        FROM (SELECT start, highway, COUNT(*) AS n FROM lrb GROUP BY highway WINDOW TUMBLING(ts, SIZE 10 SEC))
        WINDOW TUMBLING(start, SIZE 1 MIN)
        """,
        f"""
        SELECT tumble(s, INTERVAL '1 minute') AS o, max(n) FROM (
          SELECT tumble(ts, INTERVAL '10 seconds') AS s, highway, count(*) AS n {_TUMBLED} GROUP BY s, highway
        ) GROUP BY o
        """,
    ),
    Case(
        "windows_of_sessions_by_their_last_instant",
        WINDOWS,
        """
        SELECT start, COUNT(*) AS visits, SUM(n) AS points FROM (
          SELECT vehicle, window_time, COUNT(*) AS n FROM lrb GROUP BY vehicle WINDOW SESSION(ts, GAP 10 SEC)
        ) WINDOW TUMBLING(window_time, SIZE 5 MIN)
        """,
        _windows_of_sessions,
    ),
    Case(
        "distinct_filters_first_and_last",
        AGGREGATES,
        """
        SELECT highway, COUNT(DISTINCT vehicle) AS cars, COUNT(*) FILTER (WHERE speed > 30) AS fast,
          FIRST(vehicle) AS first_in, LAST(speed) IGNORE NULLS AS last_speed
        FROM lrb GROUP BY highway WINDOW TUMBLING(ts, SIZE 1 MIN)
        """,
        f"""
        SELECT highway, count(DISTINCT vehicle), count(*) FILTER (WHERE speed > 30),
          list(vehicle ORDER BY ts, vehicle NULLS FIRST)[1],
          list(speed ORDER BY ts DESC, speed DESC) FILTER (WHERE speed IS NOT NULL)[1]
        {_TUMBLED} GROUP BY tumble(ts, INTERVAL '1 minute'), highway
        """,
    ),
    Case(
        "sums_and_moments",
        AGGREGATES,
        """
        SELECT start, COUNT(*) AS a, COUNT(i, j) AS b, COUNT_IF(flag) AS c, SUM(i) AS d, SUM(d) AS e, SUM(u64) AS f,
          AVG(i) AS g, MEAN(y) AS h, AVG(d) AS k, STDDEV(y) AS l, STD(i) AS m, STDDEV_SAMP(y) AS o, STDDEV_POP(y) AS p,
          VARIANCE(y) AS q, VAR_SAMP(i) AS r, VAR_POP(y) AS s, CORR(y, i) AS u, COVAR_POP(y, i) AS v,
          COVAR_SAMP(y, i) AS w, SUM(x) AS z
        FROM kinds WINDOW TUMBLING(ts, SIZE 2 MIN)
        """,
        """
        SELECT tumble(ts, INTERVAL '2 minutes') AS st, count(*), count(*) FILTER (WHERE i IS NOT NULL
          AND j IS NOT NULL),
          count(*) FILTER (WHERE flag), sum(i), sum(d), sum(u64), avg(i), avg(y), round(sum(d) / count(d), 6),
            stddev(y), stddev(i),
          stddev_samp(y), stddev_pop(y), variance(y), var_samp(i), var_pop(y), corr(y, i), covar_pop(y, i),
          covar_samp(y, i), sum(x)
        FROM kinds GROUP BY st
        """,
    ),
    Case(
        "least_greatest_and_bits",
        AGGREGATES,
        """
        SELECT start, MIN(s) AS a, MAX(s) AS b, MIN(x) AS c, MAX(x) AS d, MIN(moment) AS e, MAX(day) AS f,
          BOOL_AND(flag) AS g,
          EVERY(other) AS h, BOOL_OR(flag) AS k, SOME(other) AS l, BIT_AND(i) AS o, BIT_OR(i) AS p,
          BIT_XOR(i) AS q, MAX_BY(n, y) AS r, MIN_BY(n, y) AS u, ANY_VALUE(word) AS v
        FROM kinds WINDOW TUMBLING(ts, SIZE 2 MIN)
        """,
        """
        SELECT tumble(ts, INTERVAL '2 minutes') AS st, min(s), max(s), min(x), max(x), min(moment), max(day),
          bool_and(flag),
          bool_and(other), bool_or(flag), bool_or(other), bit_and(i), bit_or(i), bit_xor(i),
          list(n ORDER BY y DESC NULLS LAST, n DESC)[1], list(n ORDER BY y NULLS LAST, n)[1], min(word)
        FROM kinds GROUP BY st
        """,
    ),
    Case(
        "shape_of_a_distribution",
        AGGREGATES,
        """
        SELECT start, SKEWNESS(y) AS a, KURTOSIS(y) AS b, PERCENTILE(y, 0.25) AS c, MEDIAN(i) AS d
        FROM kinds WINDOW TUMBLING(ts, SIZE 5 MIN)
        """,
        """
        SELECT st, avg((y - m) ** 3) / var_pop(y) ** 1.5, avg((y - m) ** 4) / var_pop(y) ** 2 - 3, quantile_cont(y,
          0.25),
          quantile_cont(i, 0.5)
        FROM (SELECT *, tumble(ts, INTERVAL '5 minutes') AS st, avg(y) OVER (PARTITION BY tumble(ts,
          INTERVAL '5 minutes')) AS m
          FROM kinds) GROUP BY st
        """,
    ),
    Case(
        "estimates_of_few_values",
        AGGREGATES,
        """
        SELECT start, APPROX_COUNT_DISTINCT(word) AS a, PERCENTILE_APPROX(i, 0.5) AS b, APPROX_PERCENTILE(y, 0.95,
          1000) AS c
        FROM kinds WINDOW TUMBLING(ts, SIZE 5 MIN)
        """,
        """
        SELECT tumble(ts, INTERVAL '5 minutes') AS st, count(DISTINCT word), quantile_disc(i, 0.5), quantile_disc(y,
          0.95)
        FROM kinds GROUP BY st
        """,
    ),
    Case(
        "exact_distinct",
        AGGREGATES,
        """
        SELECT start, COUNT(DISTINCT x) AS a, COUNT(DISTINCT i, s) AS b, SUM(DISTINCT i) AS c, AVG(DISTINCT d) AS d,
          SUM(DISTINCT i) FILTER (WHERE flag) AS e, MIN(DISTINCT i) AS f, COUNT(DISTINCT place) AS g
        FROM kinds WINDOW TUMBLING(ts, SIZE 5 MIN)
        """,
        """
        SELECT tumble(ts, INTERVAL '5 minutes') AS st, count(DISTINCT x + 0.0),
          count(DISTINCT (i, s)) FILTER (WHERE i IS NOT NULL AND s IS NOT NULL), sum(DISTINCT i),
          round(sum(DISTINCT d) / count(DISTINCT d), 6), sum(DISTINCT i) FILTER (WHERE flag), min(i),
            count(DISTINCT place)
        FROM kinds GROUP BY st
        """,
    ),
    Case(
        "first_last_and_lists",
        AGGREGATES,
        """
        SELECT start, FIRST_VALUE(s) AS a, LAST_VALUE(s) AS b, FIRST(s) IGNORE NULLS AS c, COLLECT_LIST(s) AS d,
          ARRAY_AGG(i) FILTER (WHERE flag) AS e, COLLECT_SET(i) AS f
        FROM kinds WINDOW TUMBLING(ts, SIZE 2 MIN)
        """,
        """
        SELECT tumble(ts, INTERVAL '2 minutes') AS st, list(s ORDER BY ts, s NULLS FIRST)[1],
          list(s ORDER BY ts DESC, s DESC NULLS LAST)[1],
          list(s ORDER BY ts, s) FILTER (WHERE s IS NOT NULL)[1],
          coalesce(list(s ORDER BY ts, s) FILTER (WHERE s IS NOT NULL), []),
          coalesce(list(i ORDER BY ts, i) FILTER (WHERE flag AND i IS NOT NULL), []),
          coalesce(list_sort(list(DISTINCT i) FILTER (WHERE i IS NOT NULL)), [])
        FROM kinds GROUP BY st
        """,
    ),
    Case(
        "expressions_of_aggregates_and_having_on_others",
        AGGREGATES,
        """
        SELECT highway % 2 AS odd, MAX(speed) - MIN(speed) AS spread, SUM(vehicle) / COUNT(*) AS mean FROM lrb
        GROUP BY odd WINDOW TUMBLING(ts, SIZE 2 MIN) HAVING COUNT(*) > 2 AND MAX(lane) > 1
        """,
        f"""
        SELECT highway % 2 AS odd, max(speed) - min(speed), sum(vehicle)::DOUBLE / count(*)
        {_TUMBLED} GROUP BY tumble(ts, INTERVAL '2 minutes'), odd HAVING count(*) > 2 AND max(lane) > 1
        """,
    ),
    Case(
        "updates_without_a_window",
        AGGREGATES,
        "SELECT highway, COUNT(*) AS n, COUNT(DISTINCT vehicle) AS cars, MAX(speed) AS top FROM lrb GROUP BY highway",
        "SELECT highway, count(*), count(DISTINCT vehicle), max(speed) FROM lrb GROUP BY highway",
        lambda rows: {row[0]: row for row in rows}.values(),
    ),
)
