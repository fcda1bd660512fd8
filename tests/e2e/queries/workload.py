"""Queries whose results are known: a windowed aggregation, a join within a time range and a union of two sources of
which one ends early, from files to files. A feeder appends rows to the files; oracles compute what must come out, from
the same rows and without Spark."""

from __future__ import annotations

import csv
import random
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.e2e.queries.at_least_once import at_least_once
from tests.e2e.queries.kit import QueryCluster, json_lines

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = timedelta(seconds=5)
WITHIN = timedelta(seconds=2)
KEYS = 7

COLUMNS = "(id INT64 NOT NULL, ts TIMESTAMP NOT NULL, k INT32 NOT NULL, v INT64 NOT NULL)"


@dataclass(frozen=True, slots=True)
class Row:
    id: int
    ts: datetime
    k: int
    v: int


@dataclass
class Feed:
    """A file that grows. Event time moves 50 ms a row, and no row is out of order: none may be dropped as late."""

    path: Path
    source: random.Random
    rows: int = 0

    def __post_init__(self) -> None:
        self.path.touch()

    def append(self, count: int) -> None:
        with self.path.open("a") as file:
            for _ in range(count):
                ts = BEGIN + timedelta(milliseconds=50 * self.rows)
                key, value = self.source.randrange(KEYS), self.source.randrange(1000)
                file.write(f"{self.rows},{ts.isoformat()},{key},{value}\n")
                self.rows += 1


def rows_of(path: Path) -> list[Row]:
    with path.open() as file:
        return [Row(int(i), datetime.fromisoformat(ts), int(k), int(v)) for i, ts, k, v in csv.reader(file)]


@dataclass
class Workload:
    """`agents` are where the left and the right source are, and the sinks."""

    cluster: QueryCluster
    seed: int = 1
    left_agent: str = "a"
    right_agent: str = "b"
    # Without it all rows are there from the start, and every source ends.
    follow: bool = True
    # Keeps the names of its sources, sinks and queries apart from those of another one.
    prefix: str = ""
    # `WITH (...)` of every query, and whether it lets rows come again after a crash.
    options: str = ""
    again: bool = False
    feeds: dict[str, Feed] = field(default_factory=dict)

    @property
    def queries(self) -> tuple[str, ...]:
        return (f"{self.prefix}windowed", f"{self.prefix}joined", f"{self.prefix}united")

    def create(self) -> None:
        files, own = self.cluster.files, self.prefix
        source = random.Random(self.seed)
        self.feeds = {name: Feed(files / f"{own}{name}.csv", source) for name in ("left", "right", "short", "long")}
        # All of it is there from the start: it ends while the other goes on.
        self.feeds["short"].append(200)
        if not self.follow:
            self.feed(500)
        left, right = self.left_agent, self.right_agent
        parts = [f"CREATE LOGICAL SOURCE {own}{name} {COLUMNS}" for name in ("lefts", "rights", "both")]
        parts += [self._file("lefts", left, "left"), self._file("rights", right, "right")]
        parts += [self._file("both", left, "short", follow=False), self._file("both", right, "long")]
        parts += [
            self._sink("windowed", left, "start TIMESTAMP, k INT32, n INT64, total INT64"),
            self._sink("joined", right, "l INT64, r INT64"),
            self._sink("united", left, "start TIMESTAMP, n INT64, total INT64"),
            f"CREATE QUERY {own}windowed AS SELECT start, k, COUNT(*) AS n, SUM(v) AS total FROM {own}lefts GROUP BY k "
            f"WINDOW TUMBLING(ts, SIZE 5 SEC) INTO {own}windowed {self.options}",
            f"CREATE QUERY {own}joined AS SELECT l.id AS l, r.id AS r FROM {own}lefts l JOIN {own}rights r "
            f"ON l.k = r.k AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 2 SECOND INTO {own}joined {self.options}",
            f"CREATE QUERY {own}united AS SELECT start, COUNT(*) AS n, SUM(v) AS total FROM {own}both "
            f"WINDOW TUMBLING(ts, SIZE 5 SEC) INTO {own}united {self.options}",
        ]
        for part in parts:
            self.cluster.sql(part)

    def feed(self, count: int) -> None:
        for name in ("left", "right", "long"):
            self.feeds[name].append(count)

    def settle(self, seconds: float) -> None:
        """Nothing to wait for: files are read to their ends before a soft stop is over."""

    def _file(self, logical: str, agent: str, name: str, *, follow: bool = True) -> str:
        follow = follow and self.follow
        follows = ", true AS `SOURCE`.follow, '100 ms' AS `SOURCE`.poll_interval" if follow else ""
        return (
            f"CREATE PHYSICAL SOURCE FOR {self.prefix}{logical} TYPE FILE ON {agent} "
            f"SET('{self.feeds[name].path}' AS `SOURCE`.file_path{follows})"
        )

    def _sink(self, name: str, agent: str, columns: str) -> str:
        path = self.cluster.files / f"{self.prefix}{name}.json"
        return (
            f"CREATE SINK {self.prefix}{name} ({columns}) TYPE FILE ON {agent} "
            f"SET('{path}' AS `SINK`.file_path, 'JSON' AS `SINK`.input_format)"
        )

    def found(self, query: str) -> list[tuple[Any, ...]]:
        return values(json_lines(self.cluster.files / f"{query}.json"))

    def expected(self, query: str) -> Counter[tuple[Any, ...]]:
        rows = {name: rows_of(feed.path) for name, feed in self.feeds.items()}
        if query == f"{self.prefix}windowed":
            return counted(windowed(rows["left"]))
        if query == f"{self.prefix}joined":
            return counted(joined(rows["left"], rows["right"]))
        return counted(united([*rows["short"], *rows["long"]]))

    def check(self) -> None:
        """Every query has given exactly what it should: no row twice unless it may, none lost, none dropped as late."""
        for query in self.queries:
            found, expected = self.found(query), self.expected(query)
            if self.again:
                at_least_once(query, found, expected, self.cluster.runs(query))
            else:
                same(query, Counter(found), expected)


def same(query: str, found: Counter[tuple[Any, ...]], expected: Counter[tuple[Any, ...]]) -> None:
    lost, extra = expected - found, found - expected
    assert not lost and not extra, f"{query}: lost {some_of(lost)}, too many {some_of(extra)}"


def some_of(rows: Counter[tuple[Any, ...]]) -> str:
    return f"{rows.total()} rows such as {sorted(rows, key=str)[:5]}"


def values(rows: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in rows]


def counted(rows: Iterable[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(values(rows))


def windowed(rows: Iterable[Row]) -> list[dict[str, Any]]:
    groups: dict[tuple[datetime, int], list[int]] = defaultdict(list)
    for row in rows:
        groups[_start(row.ts), row.k].append(row.v)
    return [{"start": text(start), "k": k, "n": len(v), "total": sum(v)} for (start, k), v in groups.items()]


def united(rows: Iterable[Row]) -> list[dict[str, Any]]:
    groups: dict[datetime, list[int]] = defaultdict(list)
    for row in rows:
        groups[_start(row.ts)].append(row.v)
    return [{"start": text(start), "n": len(v), "total": sum(v)} for start, v in groups.items()]


def joined(lefts: Iterable[Row], rights: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows of a feed are in the order of time."""
    by_key: dict[int, list[Row]] = defaultdict(list)
    for right in rights:
        by_key[right.k].append(right)
    found = []
    for left in lefts:
        same_key = by_key[left.k]
        first = bisect_left(same_key, left.ts, key=lambda row: row.ts)
        last = bisect_right(same_key, left.ts + WITHIN, key=lambda row: row.ts)
        found += [{"l": left.id, "r": right.id} for right in same_key[first:last]]
    return found


def _start(ts: datetime) -> datetime:
    return BEGIN + (ts - BEGIN) // WINDOW * WINDOW


def text(ts: datetime) -> str:
    return ts.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
