"""Three queries whose results are known: a windowed aggregation, a join within a time range, and a union of two sources
of which one ends early. A feeder appends rows to the files they read; oracles compute what must come out, from the same
files and without Spark."""

from __future__ import annotations

import csv
import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.e2e.queries.kit import QueryCluster, json_lines

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = timedelta(seconds=5)
WITHIN = timedelta(seconds=2)
KEYS = 7

_COLUMNS = "(id INT64 NOT NULL, ts TIMESTAMP NOT NULL, k INT32 NOT NULL, v INT64 NOT NULL)"


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
    feeds: dict[str, Feed] = field(default_factory=dict)

    QUERIES = ("windowed", "joined", "united")

    def create(self) -> None:
        files = self.cluster.files
        source = random.Random(self.seed)
        self.feeds = {name: Feed(files / f"{name}.csv", source) for name in ("left", "right", "short", "long")}
        # All of it is there from the start: it ends while the other goes on.
        self.feeds["short"].append(200)
        left, right = self.left_agent, self.right_agent
        parts = [f"CREATE LOGICAL SOURCE {name} {_COLUMNS}" for name in ("lefts", "rights", "both")]
        parts += [self._file("lefts", left, "left"), self._file("rights", right, "right")]
        parts += [self._file("both", left, "short", follow=False), self._file("both", right, "long")]
        parts += [
            self._sink("windowed", left, "start TIMESTAMP, k INT32, n INT64, total INT64"),
            self._sink("joined", right, "l INT64, r INT64"),
            self._sink("united", left, "start TIMESTAMP, n INT64, total INT64"),
            "CREATE QUERY windowed AS SELECT start, k, COUNT(*) AS n, SUM(v) AS total FROM lefts GROUP BY k "
            "WINDOW TUMBLING(ts, SIZE 5 SEC) INTO windowed",
            "CREATE QUERY joined AS SELECT l.id AS l, r.id AS r FROM lefts l JOIN rights r ON l.k = r.k "
            "AND r.ts BETWEEN l.ts AND l.ts + INTERVAL 2 SECOND INTO joined",
            "CREATE QUERY united AS SELECT start, COUNT(*) AS n, SUM(v) AS total FROM both "
            "WINDOW TUMBLING(ts, SIZE 5 SEC) INTO united",
        ]
        for part in parts:
            self.cluster.sql(part)

    def feed(self, count: int) -> None:
        for name in ("left", "right", "long"):
            self.feeds[name].append(count)

    def _file(self, logical: str, agent: str, name: str, *, follow: bool = True) -> str:
        follows = ", true AS `SOURCE`.follow, '100 ms' AS `SOURCE`.poll_interval" if follow else ""
        path = self.cluster.files / f"{name}.csv"
        return f"CREATE PHYSICAL SOURCE FOR {logical} TYPE FILE ON {agent} SET('{path}' AS `SOURCE`.file_path{follows})"

    def _sink(self, name: str, agent: str, columns: str) -> str:
        path = self.cluster.files / f"{name}.json"
        return (
            f"CREATE SINK {name} ({columns}) TYPE FILE ON {agent} "
            f"SET('{path}' AS `SINK`.file_path, 'JSON' AS `SINK`.input_format)"
        )

    def found(self, query: str) -> Counter[tuple[Any, ...]]:
        return counted(json_lines(self.cluster.files / f"{query}.json"))

    def expected(self, query: str) -> Counter[tuple[Any, ...]]:
        rows = {name: rows_of(feed.path) for name, feed in self.feeds.items()}
        if query == "windowed":
            return counted(windowed(rows["left"]))
        if query == "joined":
            return counted(joined(rows["left"], rows["right"]))
        return counted(united([*rows["short"], *rows["long"]]))

    def check(self) -> None:
        """Every query has given exactly what it should: no row twice, none lost, none dropped as late."""
        for query in self.QUERIES:
            found, expected = self.found(query), self.expected(query)
            lost, extra = expected - found, found - expected
            assert not lost and not extra, f"{query}: lost {_some(lost)}, too many {_some(extra)}"


def _some(rows: Counter[tuple[Any, ...]]) -> str:
    return f"{rows.total()} rows such as {sorted(rows, key=str)[:5]}"


def counted(rows: Iterable[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)


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
    by_key: dict[int, list[Row]] = defaultdict(list)
    for right in rights:
        by_key[right.k].append(right)
    return [
        {"l": left.id, "r": right.id}
        for left in lefts
        for right in by_key[left.k]
        if left.ts <= right.ts <= left.ts + WITHIN
    ]


def _start(ts: datetime) -> datetime:
    return BEGIN + (ts - BEGIN) // WINDOW * WINDOW


def text(ts: datetime) -> str:
    return ts.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
