"""How fast a FILE source brings files into a topic, next to pyarrow reading the same file.

The topic is the edge of a running query, led by a real agent: what counts as there has been synced to its write-ahead
log. Time runs from the moment a file appears in the folder that the source follows until its last row can be read from
the topic. Spark is held still meanwhile, so that the query at the other end does not take the processor away from the
source. The peer reads the whole file into the same types with pyarrow's own reader and its default threads.

Beside it, without an agent, how fast the source alone makes batches, exact types, malformed rows looked for, a filter
and a projection pushed down, with an edge that drops what it gets: for CSV, JSON and Parquet, a quarter of the size,
and one malformed row in every thousand. Both sides take turns, so that a noisy machine slows both; the medians
count. `ratio` is that of CSV into the topic.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import processes
from streams import Stand, stand, wait_until_ready

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate.log.v1 import edge_service_pb2_grpc
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.edges import ErrorRow, Stored
from headgate_agent.fragments.sources.build import Surroundings, build_source
from headgate_agent.fragments.sources.source import run_source
from headgate_agent.fragments.types import arrow_schema, columns_of
from headgate_agent.work import Threads
from headgate_common.clock import SystemClock

QUICK = bool(os.environ.get("QUICK"))
ROWS = 100_000 if QUICK else 400_000
ROUNDS = 2 if QUICK else 5
WAIT_SECONDS = 120.0
LOOK_SECONDS = 0.005
# Between two rounds, so that engine and agent hear of each other.
BREATH_SECONDS = 2.0
GOAL = 0.5
COLUMNS = (
    ("ts", "TIMESTAMP"),
    ("vehicle", "INT32"),
    ("speed", "FLOAT32"),
    ("highway", "INT16"),
    ("price", "DECIMAL(10,2)"),
    ("name", "VARCHAR(20)"),
)
SCHEMA = catalog.Schema(fields=[catalog.Field(name=name, type=type_) for name, type_ in COLUMNS])


class Dropped:
    """An edge that counts rows and forgets them."""

    waiting = ""

    def __init__(self) -> None:
        self.rows = self.errors = 0

    async def stored(self) -> Stored | None:
        return None

    async def append(
        self, batches: Sequence[pa.RecordBatch], position: bytes, *, errors: Sequence[ErrorRow] = (), end: bool = False
    ) -> None:
        self.rows += sum(batch.num_rows for batch in batches)
        self.errors += len(errors)


def _ours(path: Path, parser: dict[str, str]) -> tuple[float, Dropped]:
    fragment = catalog.SourceFragment(
        type=catalog.SOURCE_TYPE_FILE,
        options={"file_path": str(path)},
        parser_options={**parser, "on_error": "skip"},
        schema=SCHEMA,
        columns=[name for name, _ in COLUMNS],
    )
    # True of every row: it is evaluated, and nothing is lost.
    comparison = fragment.predicate.comparison
    comparison.operator = catalog.COMPARISON_OPERATOR_GREATER_OR_EQUAL
    comparison.left.column, comparison.right.value, comparison.type = "vehicle", "0", "INT32"
    threads, edge = Threads(2), Dropped()
    around = Surroundings(FragmentConfig(file_roots=(path.parent,)), SystemClock(), threads, random.Random(1))
    before = time.perf_counter()
    asyncio.run(run_source(build_source(fragment, around), edge, asyncio.Event()))
    taken = time.perf_counter() - before
    threads.close()
    return taken, edge


def _timed(read: Callable[[], object]) -> float:
    before = time.perf_counter()
    read()
    return time.perf_counter() - before


def _line(number: int) -> tuple[str, ...]:
    return (
        f"2026-01-01T{number // 3600 % 24:02d}:{number // 60 % 60:02d}:{number % 60:02d}.{number % 1000:03d}Z",
        str(number),
        f"{number % 1200 / 10}",
        str(number % 300),
        f"{number % 100_000}.{number % 100:02d}",
        f"driver {number % 5000}",
    )


def _csv(path: Path, rows: int, bad_every: int = 0) -> Path:
    with path.open("w") as file:
        for number in range(rows):
            values = _line(number)
            file.write(",".join(values if not bad_every or number % bad_every else ("never", *values[1:])) + "\n")
    return path


def _json(path: Path, rows: int) -> Path:
    with path.open("w") as file:
        for number in range(rows):
            ts, vehicle, speed, highway, price, name = _line(number)
            file.write(
                f'{{"ts":"{ts}","vehicle":{vehicle},"speed":{speed},"highway":{highway},"price":{price},"name":"{name}"}}\n'
            )
    return path


class EdgeTopic:
    """The edge of a query that follows the CSV files of a folder."""

    def __init__(self, on: Stand, folder: Path) -> None:
        self._folder = folder
        self._engine = on.cluster.engines[0]
        columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
        sql = on.cluster.sql
        sql(f"CREATE LOGICAL SOURCE rows ({columns})")
        sql(
            f"CREATE PHYSICAL SOURCE FOR rows TYPE FILE ON a WITH (file_path = '{folder}/*.csv', follow = true, "
            "poll_interval = '10 ms', parser.type = 'CSV')"
        )
        sql(f"CREATE SINK nowhere ({columns}) TYPE VOID")
        wait_until_ready(self._engine)
        sql("CREATE QUERY rows AS SELECT * FROM rows WHERE vehicle >= 0 INTO nowhere")
        on.cluster.wait("rows", "RUNNING", seconds=WAIT_SECONDS)
        options = [("grpc.max_receive_message_length", 64 << 20)]
        channel = grpc.insecure_channel(on.cluster.agents["a"].address, options=options)
        self._edges = edge_service_pb2_grpc.EdgeServiceStub(channel)
        listed = on.cluster.ask(log.ListTopicsRequest(include_internal=True)).topics
        self._uid = self._uid_of([topic.uid for topic in listed])

    def _uid_of(self, uids: list[str]) -> str:
        """The topic that a first file arrives in; others are the edge behind Spark and those of error rows."""
        before = {uid: self._state(uid).high_watermark for uid in uids}
        with self.alone():
            _csv(self._folder / "0.csv", 1_000)
            deadline = time.monotonic() + WAIT_SECONDS
            while time.monotonic() < deadline:
                for uid in uids:
                    if self._state(uid).high_watermark > before[uid]:
                        return uid
                time.sleep(LOOK_SECONDS)
        raise SystemExit("nothing arrived in an edge")

    def _state(self, uid: str) -> log.EdgePartition:
        return self._edges.GetEdge(log.GetEdgeRequest(topic_uid=uid), timeout=10).partitions[0]

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Holds Spark still: it reads the edge as soon as there is something in it, and machines have few cores."""
        held = processes.tree(self._engine.pid)
        _signal(held, signal.SIGSTOP)
        try:
            yield
        finally:
            _signal(held, signal.SIGCONT)

    def bring(self, path: Path, rows: int) -> float:
        """Seconds until all rows of a file are in the topic."""
        start = self._state(self._uid).high_watermark
        # A whole file at once, and a new one: the same file under another name is known, and not read again.
        made = path.with_suffix(".new")
        shutil.copyfile(path, made)
        began = time.perf_counter()
        made.rename(self._folder / f"{time.monotonic_ns():020d}.csv")
        return self._arrived(start, rows) - began

    def _arrived(self, start: int, rows: int) -> float:
        """When the last row was there. Rows are counted when the topic has come to rest."""
        deadline = time.monotonic() + WAIT_SECONDS
        end, when = start, time.perf_counter()
        while time.monotonic() < deadline:
            now = self._state(self._uid).high_watermark
            if now > end:
                end, when = now, time.perf_counter()
            elif end > start and time.perf_counter() - when > 0.3 and self._rows(start, end) == rows:
                return when
            time.sleep(LOOK_SECONDS)
        raise SystemExit(f"{self._rows(start, end)} of {rows} rows arrived")

    def _rows(self, start: int, end: int) -> int:
        request = log.ReadEdgeRequest(topic_uid=self._uid, from_offset=start, until_offset=end)
        answers = self._edges.ReadEdge(request, timeout=30)
        return sum(batch.num_rows for part in answers for value in part.batches for batch in pa.ipc.open_stream(value))


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        # Spark's Python processes come and go.
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def into_topic(csv: Path, small: Path, peer: Callable[[Path], object]) -> dict[str, float]:
    """Files into the edge of a query; the ratio by label."""
    ratios = {}
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as folder,
        stand(Path(folder), agent=("--set", "fragments.edge_max_lag=4GiB"), kafka=False) as on,
    ):
        incoming = on.cluster.files / "incoming"
        incoming.mkdir()
        edge = EdgeTopic(on, incoming)
        for label, path, rows in (("CSV into topic", csv, ROWS), ("a quarter into topic", small, ROWS // 4)):
            local = on.cluster.files / path.name
            local.write_bytes(path.read_bytes())
            ours, theirs = [], []
            for number in range(ROUNDS + 1):
                with edge.alone():
                    mine = edge.bring(local, rows)
                    other = _timed(lambda: peer(local))  # noqa: B023
                # The first is to warm up.
                if number:
                    ours.append(mine)
                    theirs.append(other)
                time.sleep(BREATH_SECONDS)
            ratios[label] = told(label, path, ours, theirs)
    return ratios


def told(label: str, path: Path, ours: list[float], theirs: list[float]) -> float:
    size = path.stat().st_size / 1e6
    mine, other = statistics.median(ours), statistics.median(theirs)
    print(f"{label:<26} {size:>6.1f} {size / mine:>10.1f} {size / other:>13.1f} {other / mine:>6.2f}", flush=True)
    return other / mine


def main() -> None:
    arrow = arrow_schema(columns_of(SCHEMA))
    types = {field.name: field.type for field in arrow}

    def csv_peer(path: Path) -> object:
        return pyarrow.csv.read_csv(
            path,
            read_options=pyarrow.csv.ReadOptions(column_names=list(types)),
            convert_options=pyarrow.csv.ConvertOptions(column_types=types),
        )

    def json_peer(path: Path) -> object:
        return pyarrow.json.read_json(path, parse_options=pyarrow.json.ParseOptions(explicit_schema=arrow))

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        csv, small = _csv(root / "rows.csv", ROWS), _csv(root / "few.csv", ROWS // 4)
        bad, lines = _csv(root / "bad.csv", ROWS // 4, bad_every=1_000), _json(root / "rows.json", ROWS // 4)
        parquet = root / "rows.parquet"
        pyarrow.parquet.write_table(csv_peer(csv), parquet)
        cases: list[tuple[str, Path, str, Callable[[Path], object]]] = [
            ("CSV", csv, "CSV", csv_peer),
            ("CSV, a quarter", small, "CSV", csv_peer),
            ("CSV, 1 in 1,000 malformed", bad, "CSV", lambda path: csv_peer(small)),
            ("JSON", lines, "JSON", json_peer),
            ("Parquet", parquet, "PARQUET", pyarrow.parquet.read_table),
        ]
        print(f"{'file':<26} {'MB':>6} {'ours MB/s':>10} {'pyarrow MB/s':>13} {'ratio':>6}")
        ratios = into_topic(csv, small, csv_peer)
        for label, path, parser, peer in cases:
            ours, theirs = [], []
            for number in range(ROUNDS + 1):
                taken, edge = _ours(path, {"type": parser})
                assert edge.rows + edge.errors in (ROWS, ROWS // 4), edge.rows
                other = _timed(lambda: peer(path))  # noqa: B023
                if number:
                    ours.append(taken)
                    theirs.append(other)
            ratios[label] = told(label, path, ours, theirs)
    print(
        json.dumps(
            {
                "name": "ingest",
                "ratio": round(ratios["CSV into topic"], 3),
                "goal": f">= {GOAL}",
                **{
                    f"ratio of {label}": round(ratio, 3) for label, ratio in ratios.items() if label != "CSV into topic"
                },
                "rounds": ROUNDS,
            }
        )
    )


if __name__ == "__main__":
    main()
