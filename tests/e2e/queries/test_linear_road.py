"""The linear-road sample runs from its sources to its file, on real processes: slow highways out of a TCP server and a
file, averaged over five minutes every second.

Its statements are as their authors wrote them, but for what they leave open or what a machine that runs tests cannot
promise: the columns (`...` in the sample), the port of the TCP server, and the folder of the files.
"""

from __future__ import annotations

import csv
import json
import random
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.catalog import v1 as catalog
from tests.e2e.queries.kit import query_cluster, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
SIZE = timedelta(minutes=5)
ADVANCE = timedelta(seconds=1)
# Longest wait for each step: Spark warms up while other tests have the cores.
PATIENCE_S = 400.0

SAMPLE = """
CREATE LOGICAL SOURCE lrb(
  creationTS TIMESTAMP, vehicle INT16, speed FLOAT32, highway INT16
);

CREATE PHYSICAL SOURCE FOR lrb TYPE TCP SET(
  'localhost' as `SOURCE`.SOCKET_HOST,
  {port} as `SOURCE`.SOCKET_PORT,
  'CSV' as PARSER.`TYPE`,
  '\\n' as PARSER.TUPLE_DELIMITER,
  ',' as PARSER.FIELD_DELIMITER
);

CREATE PHYSICAL SOURCE FOR lrb TYPE File SET(
  '{folder}/input.json' as `SOURCE`.FILE_PATH,
  'JSON' as PARSER.`TYPE`
);

CREATE SINK csv_sink(
  start TIMESTAMP, end TIMESTAMP, highway INT16, avgSpeed FLOAT64
) TYPE File SET(
  '{folder}/results.csv' as `SINK`.FILE_PATH,
  'CSV' as `SINK`.INPUT_FORMAT,
  false as `SINK`.APPEND
);

SELECT start, end, highway, AVG(speed) AS avgSpeed
FROM (SELECT creationTS, highway, speed FROM lrb)
GROUP BY (highway)
WINDOW SLIDING(creationTS, SIZE 5 MINUTES, ADVANCE BY 1 SEC)
HAVING avgSpeed < FLOAT32(40)
INTO csv_sink;
"""


@dataclass(frozen=True, slots=True)
class Report:
    """What a car says. Speeds are quarters, which are the same in 32 bits and in 64."""

    at: datetime
    vehicle: int
    speed: float | None
    highway: int


def _reports(source: random.Random, count: int, since: datetime) -> list[Report]:
    """In order of time; highway 1 is slow, 2 is fast, 3 is in between."""
    found = []
    for number in range(count):
        highway = source.choice((1, 2, 3))
        speed = None if source.random() < 0.1 else {1: 20, 2: 70, 3: 39}[highway] + source.randrange(-12, 13) / 4
        found.append(Report(since + timedelta(milliseconds=1700 * number), source.randrange(-5, 500), speed, highway))
    return found


@contextmanager
def _served(reports: list[Report]) -> Iterator[int]:
    """A TCP server that sends the reports to whoever connects first, and keeps the connection open."""
    lines = "".join(
        f"{one.at.isoformat()},{one.vehicle},{'' if one.speed is None else one.speed},{one.highway}\n"
        for one in reports
    )
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.sendall(lines.encode())
                ended.wait(4 * PATIENCE_S)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            ended.set()
            # Nobody may have connected.
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def _slow_highways(reports: list[Report]) -> dict[tuple[datetime, datetime, int], float]:
    """Averages below 40 of every window of five minutes that begins on a whole second and has a row."""
    speeds: dict[tuple[datetime, int], list[float]] = defaultdict(list)
    for one in reports:
        start = one.at.replace(microsecond=0)
        while start + SIZE > one.at:
            if one.speed is not None:
                speeds[start, one.highway].append(one.speed)
            start -= ADVANCE
    means = {(start, start + SIZE, highway): sum(found) / len(found) for (start, highway), found in speeds.items()}
    return {key: mean for key, mean in means.items() if mean < 40}


def _rows_computed(fragments: list[catalog.Fragment]) -> int:
    """Rows that have reached Spark; what a source that has ended had read is not told any more."""
    return sum(one.progress.rows_in for one in fragments if one.kind == catalog.FRAGMENT_KIND_COMPUTE)


def _results(path: Path) -> list[tuple[tuple[datetime, datetime, int], float]]:
    with path.open() as file:
        return [
            ((datetime.fromisoformat(start), datetime.fromisoformat(end), int(highway)), float(mean))
            for start, end, highway, mean in csv.reader(file)
        ]


def test_slow_highways_are_those_of_the_oracle(tmp_path: Path) -> None:
    source = random.Random(11)
    by_tcp = _reports(source, 60, BEGIN)
    by_file = _reports(source, 40, BEGIN + timedelta(milliseconds=500))
    options = ("--set", "fragments.tcp_targets=localhost:*,127.0.0.1:*")
    with query_cluster(tmp_path, agents=()) as cluster, _served(by_tcp) as port:
        cluster.add_agent("a", *options)
        (cluster.files / "results.csv").write_text("what an earlier run left\n")
        with (cluster.files / "input.json").open("w") as file:
            for one in by_file:
                row = {"creationTS": one.at.isoformat(), "vehicle": one.vehicle, "speed": one.speed}
                file.write(json.dumps({**row, "highway": one.highway}) + "\n")
        cluster.sql(SAMPLE.format(port=port, folder=cluster.files))
        query = cluster.ask(catalog.ListQueriesRequest()).queries[0].name
        cluster.wait(query, "RUNNING", seconds=PATIENCE_S)
        until(
            lambda: _rows_computed(cluster.fragments(query)) >= len(by_tcp) + len(by_file),
            "all rows to be read",
            PATIENCE_S,
            lambda: str(cluster.fragments(query)),
        )
        # The TCP source never ends by itself; a soft stop lets everything out.
        cluster.sql(f"STOP QUERY {query} SOFT WITHIN {PATIENCE_S:.0f} SEC")
        cluster.wait(query, "STOPPED", seconds=PATIENCE_S)
        found = _results(cluster.files / "results.csv")
    expected = _slow_highways([*by_tcp, *by_file])
    assert {highway for _, _, highway in expected} == {1, 3}
    assert len(found) == len(expected)
    assert {key: round(mean, 9) for key, mean in found} == {key: round(mean, 9) for key, mean in expected.items()}
