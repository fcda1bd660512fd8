"""What the oracle's cases read: the sources of the SQL reference and some more, with rows made from a seed.

Rows have NULL, NaN, negative numbers, duplicates, text beyond ASCII and instants on the bounds of windows. They come in
several batches and out of order, but never later than `LATENESS`: no case loses a row, unless it is about that.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.integration.planner_spark.streams import Rows

PAGE = Path(__file__).parents[4] / "docs" / "sql" / "select.md"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
# How much of event time a row may be behind one of an earlier batch.
DISORDER = timedelta(seconds=4)
LATENESS = timedelta(seconds=5)
# Beside the one that ends the stream.
BATCHES = 2
# A row this far ahead ends every window; it is taken out again right after the watermark.
FAR = datetime(2030, 1, 1, tzinfo=UTC)
UNTIL = "2029-01-01 00:00:00"

# Sources beside those of the reference. `kinds` has every sort of value; `visits` has columns called as bounds of
# windows are, and two physical sources.
SOURCES = """
CREATE LOGICAL SOURCE shipments(ts TIMESTAMP, order_id INT64, carrier VARCHAR);
CREATE PHYSICAL SOURCE FOR shipments TYPE TOPIC SET('shipments' AS `SOURCE`.TOPIC);
CREATE LOGICAL SOURCE visits(ts TIMESTAMP, start INT32, "end" INT32, "Weird Name" VARCHAR);
CREATE PHYSICAL SOURCE FOR visits TYPE FILE ON edge SET('visits.csv' AS `SOURCE`.FILE_PATH, 'CSV' AS PARSER.`TYPE`);
CREATE PHYSICAL SOURCE FOR visits TYPE TOPIC SET('visits' AS `SOURCE`.TOPIC);
CREATE LOGICAL SOURCE late(ts TIMESTAMP, v INT32);
CREATE PHYSICAL SOURCE FOR late TYPE TOPIC SET('late' AS `SOURCE`.TOPIC);
CREATE LOGICAL SOURCE kinds(
  n INT32 NOT NULL, ts TIMESTAMP, moment TIMESTAMP, day DATE, flag BOOL, other BOOL,
  i INT32, j INT32, small INT32, big INT64, u8 UINT8, u64 UINT64, x FLOAT64, y FLOAT64, unit FLOAT64, d DECIMAL(12,2),
  s VARCHAR, t VARCHAR, word VARCHAR, number VARCHAR, stamp VARCHAR, doc VARCHAR, list VARCHAR, bin BINARY,
  ints ARRAY<INT32>, more ARRAY<INT32>, names ARRAY<VARCHAR>, tags MAP<VARCHAR, INT32>,
  place STRUCT<city: VARCHAR, at: STRUCT<x: FLOAT64, y: FLOAT64>>
);
CREATE PHYSICAL SOURCE FOR kinds TYPE FILE ON edge SET('kinds.json' AS `SOURCE`.FILE_PATH, 'JSON' AS PARSER.`TYPE`);
"""

# The column that event time comes from, and how an instant is written in it.
TIMES: dict[str, tuple[str, Callable[[datetime], Any]]] = {
    **{name: ("ts", lambda at: at) for name in ("lrb", "orders", "payments", "shipments", "visits", "late", "kinds")},
    "ticks": ("at_ms", lambda at: int(at.timestamp() * 1000)),
}

_TEXTS = (
    *("", "a", "Abc", "abc", "héllo wörld", "日本語", "😀 smile", "  pad  ", "x,y,,z", "10%", "it's", "aXbXc", "A1b22"),
    *("tab\there", "line\nbreak", "back\\slash", 'quo"te', "ABC_def", "aaa"),
)
_DOCS = (
    '{"a": {"b": "deep"}, "x": 7, "y": ["p", "q"]}',
    '{"a": {"b": null}, "x": null}',
    '{"a": 1, "x": -3, "y": []}',
    '{"ünï": "é"}',
    "[1, 2, 3]",
    "not json",
    "",
)
_STAMPS = ("2026-03-29 02:30:00", "1969-12-31 23:59:59", "2024-02-29 12:00:01", "tomorrow", "2026-02-30 00:00:00", "")


def _some(source: random.Random, values: Sequence[Any], nulls: float = 0.15) -> Any:
    return None if source.random() < nulls else source.choice(values)


def _instants(source: random.Random, count: int, over: timedelta) -> list[datetime]:
    """Instants in order, some of them equal, some right on and right before a bound of a minute."""
    found = [BEGIN + over * source.random() for _ in range(count)]
    for index in range(0, count, 4):
        bound = BEGIN + timedelta(minutes=int((found[index] - BEGIN) / timedelta(minutes=1)))
        found[index] = source.choice((bound, bound - timedelta(microseconds=1), found[index - 1]))
    return sorted(found)


def _batches(source: random.Random, rows: Rows, time: Callable[[Any], datetime | None]) -> list[Rows]:
    """Batches in the order of arrival, which is at most `DISORDER` after the time of a row."""
    arrivals = [((time(row) or BEGIN) + DISORDER * source.random(), place) for place, row in enumerate(rows)]
    ordered = [rows[place] for _, place in sorted(arrivals)]
    size = -(-len(ordered) // BATCHES)
    return [ordered[start : start + size] for start in range(0, len(ordered), size)]


def _cars(source: random.Random) -> Rows:
    speeds = (math.nan, -5.5, 0.0, 12.25, 29.5, 30.0, 30.5, 38.75, 40.0, 61.0, 88.125, 120.0)
    rows = [
        {
            "ts": at,
            "vehicle": _some(source, range(1, 9)),
            "speed": _some(source, speeds),
            "highway": _some(source, (-1, 1, 2, 3)),
            "lane": _some(source, (0, 1, 2, 3, 255)),
            "direction": _some(source, (True, False)),
        }
        for at in _instants(source, 90, timedelta(minutes=18))
    ]
    # Twice the same row, and one without a time, which no window has.
    return [*rows, rows[7], rows[7], {**rows[3], "ts": None}]


def _orders(source: random.Random) -> Rows:
    return [
        {
            "ts": at,
            "id": _some(source, range(1, 31), 0.05),
            "customer": _some(source, ("ann", "Bob", "Zoë", "42", "-7", "")),
            "amount": _some(source, (Decimal("-3.50"), Decimal("0.00"), Decimal("1.25"), Decimal("99999.99"))),
            "tags": _some(source, (["x"], ["y", None], [None, "z"], ["é", "x", "x"])),
            "doc": _some(source, ('{"address": {"city": "Köln"}}', '{"address": {}}', "[]", "{")),
        }
        for at in _instants(source, 45, timedelta(hours=3))
    ]


def _payments(source: random.Random, orders: Rows) -> Rows:
    rows = []
    for order in orders:
        for _ in range(source.choice((0, 1, 1, 2))):
            after = source.choice((0, 0, 1, 20, 55, 300, 3599, 3600, 3601, 5000))
            rows.append(
                {
                    "ts": order["ts"] + timedelta(seconds=after),
                    "order_id": source.choice((order["id"], order["id"], None, 99)),
                    "paid": _some(source, (Decimal("0.00"), Decimal("1.25"), Decimal("7.75"), Decimal("-1.00"))),
                    "method": _some(source, ("card", "cash", "ann", "Zoë")),
                }
            )
    return sorted(rows, key=lambda row: row["ts"])


def _shipments(source: random.Random, orders: Rows) -> Rows:
    return [
        {
            "ts": order["ts"] + timedelta(seconds=source.choice((0, 30, 900))),
            "order_id": order["id"],
            "carrier": carrier,
        }
        for order in orders
        if (carrier := source.choice((None, None, "post", "ship", "rail"))) is not None
    ]


def _ticks(source: random.Random) -> Rows:
    return [
        {
            "at_ms": TIMES["ticks"][1](at),
            "symbol": _some(source, ("A", "B", "ü")),
            "price": _some(source, (-1.5, 0.0, 2.25, math.nan, math.inf)),
        }
        for at in _instants(source, 40, timedelta(minutes=6))
    ]


def _visits(source: random.Random) -> Rows:
    return [
        {"ts": at, "start": _some(source, (1, 2)), "end": _some(source, (3, 4)), "Weird Name": _some(source, _TEXTS)}
        for at in _instants(source, 30, timedelta(minutes=5))
    ]


def _kinds(source: random.Random) -> Rows:
    rows = []
    for number, at in enumerate(_instants(source, 48, timedelta(minutes=10))):
        moment = _some(source, (datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2024, 2, 29, 12, tzinfo=UTC)))
        rows.append(
            {
                "n": number,
                "ts": at,
                "moment": source.choice((at, moment, at + timedelta(days=source.randrange(-4000, 4000)))),
                "day": _some(source, (date(2024, 2, 29), date(2026, 1, 31), date(1969, 12, 31), date(2023, 12, 25))),
                "flag": _some(source, (True, False)),
                "other": _some(source, (True, False)),
                "i": _some(source, (-100, -7, -1, 0, 1, 2, 5, 42, 100)),
                "j": _some(source, range(1, 13)),
                "small": _some(source, range(6)),
                "big": _some(source, (-(2**63), 2**63 - 1, 0, -1, 1_700_000_000, 5_000_000_000)),
                "u8": _some(source, (0, 1, 200, 255)),
                "u64": _some(source, (0, 1, 2**63, 2**64 - 1)),
                "x": _some(source, (math.nan, math.inf, -math.inf, -0.0, 0.0, 1.5, -2.25, 1e300)),
                "y": _some(source, (-12.5, -2.5, -0.5, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 9.0, 100.125)),
                "unit": _some(source, (-1.0, -0.5, 0.0, 0.25, 1.0)),
                "d": _some(
                    source, (Decimal("-12.55"), Decimal("-2.50"), Decimal("0.00"), Decimal("2.55"), Decimal("9.99"))
                ),
                "s": _some(source, _TEXTS, 0.1),
                "t": _some(source, ("a", "X", "bc", "日", ",", " ", "ö")),
                "word": _some(source, ("Robert", "Rupert", "Ashcraft", "Tymczak", "Honeyman", "kitten", "sitting")),
                "number": _some(source, ("12", "-7", "3.75", "abc", "99999999999", "", " 5 ")),
                "stamp": _some(source, _STAMPS),
                "doc": _some(source, _DOCS),
                "list": _some(source, ("[1, 2, 3]", "[]", "{}", "[", '[{"a": 1}, null]')),
                "bin": _some(source, (b"", b"\x00\xff", b"abc", "日本".encode())),
                "ints": _some(source, ([], [3, 1, 2], [1, None, 1], [None], [-5, 7, 7, 100])),
                "more": _some(source, ([], [1, 7], [None, 2], [100, 100, 3])),
                "names": _some(source, ([], ["b", "a"], ["ö", None, "a"], ["", "x", "x"])),
                "tags": _some(source, ({}, {"k": 1}, {"k": None, "z": -2}, {"é": 3, "z": 4})),
                "place": _some(source, ({"city": "Köln", "at": {"x": 1.5, "y": -2.0}}, {"city": None, "at": None})),
            }
        )
    return rows


def _late() -> list[Rows]:
    """Each batch has rows that are too late for the windows of a minute that the batches before have ended."""
    minutes = ((0.5, 1.5, 3.2), (0.7, 2.9, 3.9, 5.5), (3.99, 4.0, 5.6, 1.0))
    return [
        [{"ts": BEGIN + timedelta(minutes=at), "v": number * 10 + place} for place, at in enumerate(batch)]
        for number, batch in enumerate(minutes)
    ]


def _made() -> dict[str, list[Rows]]:
    source = random.Random(20260101)
    orders = _orders(source)
    rows: dict[str, Rows] = {
        "lrb": _cars(source),
        "orders": orders,
        "payments": _payments(source, orders),
        "shipments": _shipments(source, orders),
        "ticks": _ticks(source),
        "visits": _visits(source),
        "kinds": _kinds(source),
    }
    found: dict[str, list[Rows]] = {}
    for name, all_rows in rows.items():
        column, _ = TIMES[name]

        def time(row: Any, column: str = column) -> datetime | None:
            value = row[column]
            return datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int) else value

        found[name] = _batches(source, all_rows, time)
    return {**found, "late": _late()}


# The batches of every source, in the order of arrival.
ARRIVING = _made()
