"""Joins, IN and EXISTS, with their oracles."""

from __future__ import annotations

from tests.integration.planner_spark.oracle.case import Case

JOINS = "Joins"
SEMI = "IN and EXISTS"
_NEAR = "p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR"


def _range(kind: str) -> Case:
    return Case(
        f"{kind.lower()}_within_a_time_range",
        JOINS,
        f"SELECT o.id, o.customer, p.order_id, p.paid FROM orders o {kind} JOIN payments p "
        f"ON o.id = p.order_id AND {_NEAR}",
        f"SELECT o.id, o.customer, p.order_id, p.paid FROM orders o {kind} JOIN payments p "
        f"ON o.id = p.order_id AND {_NEAR}",
    )


def _window(kind: str) -> Case:
    return Case(
        f"{kind.lower()}_within_a_window",
        JOINS,
        f"SELECT start, o.id, p.order_id, p.paid FROM orders o {kind} JOIN payments p ON o.id = p.order_id "
        "WINDOW TUMBLING(ts, SIZE 10 MIN)",
        f"""
        SELECT coalesce(tumble(o.ts, INTERVAL '10 minutes'), tumble(p.ts, INTERVAL '10 minutes')), o.id, p.order_id,
          p.paid
        FROM orders o {kind} JOIN payments p ON o.id = p.order_id
          AND tumble(o.ts, INTERVAL '10 minutes') = tumble(p.ts, INTERVAL '10 minutes')
        """,
    )


CASES = (
    Case(
        "left_within_a_time_range_as_in_the_reference",
        JOINS,
        """
        SELECT o.id, o.amount, p.paid
        FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR
        """,
        f"SELECT o.id, o.amount, p.paid FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND {_NEAR}",
    ),
    *(_range(kind) for kind in ("INNER", "LEFT", "RIGHT", "FULL")),
    *(_window(kind) for kind in ("INNER", "LEFT", "RIGHT", "FULL")),
    Case(
        "conditions_of_one_side_stay_where_they_belong",
        JOINS,
        f"""
        SELECT o.id, p.paid FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND {_NEAR} AND p.paid > 1
          AND o.amount > 1 WHERE o.customer <> 'ann' AND p.method IS NULL
        """,
        f"""
        SELECT o.id, p.paid FROM orders o LEFT JOIN payments p ON o.id = p.order_id AND {_NEAR} AND p.paid > 1
          AND o.amount > 1 WHERE o.customer <> 'ann' AND p.method IS NULL
        """,
    ),
    Case(
        "conditions_of_both_sides_in_a_full_join",
        JOINS,
        f"""
        SELECT o.id, o.amount, p.order_id, p.paid FROM orders o FULL JOIN payments p ON o.id = p.order_id AND {_NEAR}
          AND o.amount > 1 AND p.paid BETWEEN 0 AND 5 AND o.amount > p.paid
        """,
        f"""
        SELECT o.id, o.amount, p.order_id, p.paid FROM orders o FULL JOIN payments p ON o.id = p.order_id AND {_NEAR}
          AND o.amount > 1 AND p.paid BETWEEN 0 AND 5 AND o.amount > p.paid
        """,
    ),
    Case(
        "grouped_within_the_window_of_the_select",
        JOINS,
        """
        SELECT start, o.customer, SUM(p.paid) AS paid
        FROM orders o JOIN payments p ON o.id = p.order_id
        GROUP BY o.customer
        WINDOW TUMBLING(ts, SIZE 10 MIN)
        """,
        """
        SELECT tumble(o.ts, INTERVAL '10 minutes') AS s, o.customer, sum(p.paid) FROM orders o JOIN payments p
          ON o.id = p.order_id AND tumble(o.ts, INTERVAL '10 minutes') = tumble(p.ts, INTERVAL '10 minutes')
        GROUP BY s, o.customer
        """,
    ),
    Case(
        "equal_windows_of_both_sides",
        JOINS,
        """
        SELECT a.start, a.n, b.m
        FROM (SELECT start, COUNT(*) AS n FROM orders WINDOW TUMBLING(ts, SIZE 1 MIN)) a
        JOIN (SELECT start, COUNT(*) AS m FROM payments WINDOW TUMBLING(ts, SIZE 1 MIN)) b ON a.start = b.start
        """,
        """
        SELECT a.s, a.n, b.m FROM (SELECT tumble(ts, INTERVAL '1 minute') AS s, count(*) AS n FROM orders GROUP BY s) a
        JOIN (SELECT tumble(ts, INTERVAL '1 minute') AS s, count(*) AS m FROM payments GROUP BY s) b ON a.s = b.s
        """,
    ),
    Case(
        "full_within_a_window_then_grouped",
        JOINS,
        """
        SELECT start, COUNT(*) AS n, COUNT(o.id) AS a, COUNT(p.order_id) AS b FROM orders o
        FULL JOIN payments p ON o.id = p.order_id WINDOW TUMBLING(ts, SIZE 30 MIN)
        """,
        """
        SELECT coalesce(tumble(o.ts, INTERVAL '30 minutes'), tumble(p.ts, INTERVAL '30 minutes')) AS s, count(*),
          count(o.id), count(p.order_id)
        FROM orders o FULL JOIN payments p ON o.id = p.order_id
          AND tumble(o.ts, INTERVAL '30 minutes') = tumble(p.ts, INTERVAL '30 minutes') GROUP BY s
        """,
    ),
    Case(
        "sliding_window_join",
        JOINS,
        """
        SELECT start, COUNT(*) AS n FROM orders o JOIN payments p ON o.id = p.order_id
        WINDOW SLIDING(ts, SIZE 10 MIN, ADVANCE BY 5 MIN)
        """,
        """
        WITH o AS (SELECT id, unnest(hops(ts, INTERVAL '10 minutes', INTERVAL '5 minutes')) AS s FROM orders),
          p AS (SELECT order_id, unnest(hops(ts, INTERVAL '10 minutes', INTERVAL '5 minutes')) AS s FROM payments)
        SELECT o.s, count(*) FROM o JOIN p ON o.id = p.order_id AND o.s = p.s GROUP BY o.s
        """,
    ),
    Case(
        "three_streams_within_time_ranges",
        JOINS,
        f"""
        SELECT o.id, p.paid, s.carrier FROM orders o JOIN payments p ON o.id = p.order_id AND {_NEAR}
        LEFT JOIN shipments s ON o.id = s.order_id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL 10 MINUTES
        """,
        f"""
        SELECT o.id, p.paid, s.carrier FROM orders o JOIN payments p ON o.id = p.order_id AND {_NEAR}
        LEFT JOIN shipments s ON o.id = s.order_id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL 10 MINUTES
        """,
    ),
    Case(
        "three_streams_within_a_window",
        JOINS,
        """
        SELECT o.id, COUNT(*) AS n, MAX(s.carrier) AS c FROM orders o JOIN payments p ON o.id = p.order_id
        LEFT JOIN shipments s ON s.order_id = o.id GROUP BY o.id WINDOW TUMBLING(ts, SIZE 20 MIN)
        """,
        """
        SELECT o.id, count(*), max(s.carrier) FROM orders o JOIN payments p ON o.id = p.order_id
          AND tumble(o.ts, INTERVAL '20 minutes') = tumble(p.ts, INTERVAL '20 minutes')
        LEFT JOIN shipments s ON s.order_id = o.id
          AND tumble(o.ts, INTERVAL '20 minutes') = tumble(s.ts, INTERVAL '20 minutes')
        GROUP BY o.id, tumble(o.ts, INTERVAL '20 minutes')
        """,
    ),
    Case(
        "with_itself_by_using",
        JOINS,
        """
        SELECT vehicle, a.speed AS before, b.speed AS after FROM lrb a JOIN lrb b USING (vehicle)
        WHERE b.ts BETWEEN a.ts + INTERVAL 1 SECOND AND a.ts + INTERVAL 1 MINUTE
        """,
        """
        SELECT vehicle, a.speed, b.speed FROM lrb a JOIN lrb b USING (vehicle)
        WHERE b.ts BETWEEN a.ts + INTERVAL 1 SECOND AND a.ts + INTERVAL 1 MINUTE
        """,
    ),
    Case(
        "join_then_window",
        JOINS,
        f"""
        SELECT start, o.customer, COUNT(*) AS n FROM orders o JOIN payments p ON o.id = p.order_id AND {_NEAR}
        GROUP BY o.customer WINDOW TUMBLING(o.ts, SIZE 30 MIN)
        """,
        f"""
        SELECT tumble(o.ts, INTERVAL '30 minutes') AS s, o.customer, count(*) FROM orders o JOIN payments p
          ON o.id = p.order_id AND {_NEAR} GROUP BY s, o.customer
        """,
    ),
    Case(
        "in_a_windowed_sub_select",
        SEMI,
        "SELECT id FROM orders "
        "WHERE id IN (SELECT order_id FROM payments WHERE paid > 0 WINDOW TUMBLING(ts, SIZE 1 MIN))",
        """
        SELECT id FROM orders o WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id AND p.paid > 0
          AND tumble(p.ts, INTERVAL '1 minute') = tumble(o.ts, INTERVAL '1 minute'))
        """,
    ),
    Case(
        "in_the_same_window_by_several_columns",
        SEMI,
        """
        SELECT start, COUNT(*) AS n FROM orders WHERE (id, amount) IN (
          SELECT order_id, paid FROM payments WINDOW TUMBLING(ts, SIZE 60 MIN)
        ) WINDOW TUMBLING(ts, SIZE 60 MIN)
        """,
        """
        SELECT tumble(ts, INTERVAL '60 minutes') AS s, count(*) FROM orders o WHERE EXISTS (SELECT 1 FROM payments p
          WHERE p.order_id = o.id AND p.paid = o.amount
          AND tumble(p.ts, INTERVAL '60 minutes') = tumble(o.ts, INTERVAL '60 minutes')) GROUP BY s
        """,
    ),
    Case(
        "in_a_grouped_window",
        SEMI,
        """
        SELECT id FROM orders WHERE id IN (
          SELECT order_id FROM payments GROUP BY order_id WINDOW TUMBLING(ts, SIZE 180 MIN) HAVING COUNT(*) > 1)
        """,
        """
        SELECT id FROM orders o WHERE (SELECT count(*) FROM payments p WHERE p.order_id = o.id
          AND tumble(p.ts, INTERVAL '180 minutes') = tumble(o.ts, INTERVAL '180 minutes')) > 1
        """,
    ),
    Case(
        "exists_within_a_time_range",
        SEMI,
        "SELECT o.id FROM orders o "
        f"WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id AND {_NEAR} AND p.paid > 1)",
        "SELECT o.id FROM orders o "
        f"WHERE EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id AND {_NEAR} AND p.paid > 1)",
    ),
    Case(
        "not_exists",
        SEMI,
        """
        SELECT o.id FROM orders o WHERE NOT EXISTS (
          SELECT 1 FROM payments p WHERE p.order_id = o.id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 1 HOUR
        )
        """,
        f"SELECT o.id FROM orders o WHERE NOT EXISTS (SELECT 1 FROM payments p WHERE p.order_id = o.id AND {_NEAR})",
    ),
    Case(
        "not_exists_then_grouped",
        SEMI,
        f"""
        SELECT start, COUNT(*) AS unpaid FROM orders o WHERE NOT EXISTS (
          SELECT 1 FROM payments p WHERE p.order_id = o.id AND {_NEAR}) WINDOW TUMBLING(ts, SIZE 30 MIN)
        """,
        f"""
        SELECT tumble(o.ts, INTERVAL '30 minutes') AS s, count(*) FROM orders o WHERE NOT EXISTS (
          SELECT 1 FROM payments p WHERE p.order_id = o.id AND {_NEAR}) GROUP BY s
        """,
    ),
)
