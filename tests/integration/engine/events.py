"""Rows with an event time, plans over them, and what must come out, worked out in plain Python."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from headgate.catalog import v1 as catalog
from tests.integration.engine.kit import compute, schema

Row = dict[str, Any]
EVENTS = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
WINDOW_SECONDS = 10


def event(number: int, second: float, key: str | None = None) -> Row:
    return {"k": key or f"k{number % 3}", "v": number, "ts": START + dt.timedelta(seconds=second)}


def events(seed: int, count: int, *, first: int = 0, step: float = 0.25) -> list[Row]:
    """Rows whose times grow, with some disorder of less than two seconds."""
    source = random.Random(seed)
    return [event(first + n, n * step + source.uniform(0.0, 1.9)) for n in range(count)]


def parts(rows: Sequence[Row], size: int) -> list[Sequence[Row]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def events_input(view: str, edge: int, *, lateness: float = 2.0, time: bool = True) -> catalog.ComputeInput:
    return catalog.ComputeInput(
        view=view,
        schema=schema(k="VARCHAR", v="INT64", ts="TIMESTAMP"),
        edge=edge,
        event_time="ts" if time else "",
        lateness_us=int(lateness * 1e6) if time else 0,
    )


def filtering(edge: int = 1) -> catalog.ComputeFragment:
    sql = "SELECT k, v * 2 AS w FROM s WHERE v % 2 = 0"
    return compute(sql, [events_input("s", edge, time=False)], schema(k="VARCHAR", w="INT64"))


def filtered(rows: Iterable[Row]) -> Counter[tuple[str, int]]:
    return Counter((row["k"], row["v"] * 2) for row in rows if row["v"] % 2 == 0)


def windowed(*edges: int, idle_timeout: float = 0.0) -> catalog.ComputeFragment:
    views = [f"s{edge}" for edge in edges]
    union = " UNION ALL ".join(f"SELECT k, v, ts FROM {view}" for view in views)
    sql = (
        f"SELECT k, window.start AS ws, count(*) AS n, sum(v) AS total FROM ({union}) "
        f"GROUP BY k, window(ts, '{WINDOW_SECONDS} seconds')"
    )
    inputs = [events_input(view, edge) for view, edge in zip(views, edges, strict=True)]
    columns = schema(k="VARCHAR", ws="TIMESTAMP", n="INT64", total="INT64")
    return compute(sql, inputs, columns, stateful=True, idle_timeout_us=int(idle_timeout * 1e6))


def windows(rows: Iterable[Row]) -> Counter[tuple[str, dt.datetime, int, int]]:
    found: dict[tuple[str, dt.datetime], list[int]] = defaultdict(list)
    for row in rows:
        second = int((row["ts"] - START).total_seconds() // WINDOW_SECONDS) * WINDOW_SECONDS
        found[(row["k"], START + dt.timedelta(seconds=second))].append(row["v"])
    return Counter((key, start, len(values), sum(values)) for (key, start), values in found.items())


def seen_windows(rows: Iterable[Row]) -> Counter[tuple[str, dt.datetime, int, int]]:
    return Counter((row["k"], row["ws"], row["n"], row["total"]) for row in rows)


def joined_plan(left: int, right: int) -> catalog.ComputeFragment:
    """Rows of the same key and number within five seconds of each other."""
    sql = (
        "SELECT a.k AS k, a.v AS v, b.ts AS at FROM a JOIN b ON a.k = b.k AND a.v = b.v "
        "AND b.ts BETWEEN a.ts - INTERVAL 5 SECONDS AND a.ts + INTERVAL 5 SECONDS"
    )
    inputs = [events_input("a", left), events_input("b", right)]
    return compute(sql, inputs, schema(k="VARCHAR", v="INT64", at="TIMESTAMP"), stateful=True)


def joined(left: Iterable[Row], right: Sequence[Row]) -> Counter[tuple[str, int, dt.datetime]]:
    near = dt.timedelta(seconds=5)
    return Counter(
        (a["k"], a["v"], b["ts"])
        for a in left
        for b in right
        if a["k"] == b["k"] and a["v"] == b["v"] and abs(a["ts"] - b["ts"]) <= near
    )
