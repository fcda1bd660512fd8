"""How fast a FILE source brings files into a topic, next to pyarrow reading the same file.

The topic is the edge of a running query, led by a real agent: what counts as there has been synced to its write-ahead
log. Time runs from the moment a file appears in the folder that the source follows until its last row can be read from
the topic. Spark is held still meanwhile, so that the query at the other end does not take the processor away from the
source; before each file it reads what came before, so that rounds do not depend on each other: an edge that is never
read goes into segments as a whole. The file is on the disk before it appears, as the peer's is: otherwise syncs of the
write-ahead log wait behind what the benchmark itself has written, the longer the larger the file is. The peer reads the
whole file into the same types with pyarrow's own reader and its default threads.

Beside it, without an agent, how fast the source alone makes batches, exact types, malformed rows looked for, a filter
and a projection pushed down, with an edge that drops what it gets: for CSV, JSON and Parquet, a quarter of the size,
and one malformed row in every thousand. Both sides take turns, so that a noisy machine slows both; the medians
count. `ratio` is that of CSV into the topic. For the reader: the same ratio of processor time, of all threads and with
the kernel's, which a shared machine blurs less; and what the disk alone would allow, if the rows of the file were
written in as many pieces and each was synced before the next.
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
from dataclasses import dataclass
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
ROWS = 100_000 if QUICK else 1_600_000
ROUNDS = int(os.environ.get("ROUNDS") or (2 if QUICK else 5))
WAIT_SECONDS = 120.0
LOOK_SECONDS = 0.005
# At least so much is between two rounds, so that engine and agent hear of each other.
BREATH_SECONDS = 2.0
# Of the time that the quickest round took, in which nobody looks whether a file has arrived.
QUIET = 0.8
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


@dataclass(frozen=True, slots=True)
class Cost:
    """What a file took: seconds, and those that processors worked for it."""

    seconds: float
    processor: float


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


def _ours(path: Path, parser: dict[str, str]) -> tuple[Cost, Dropped]:
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
    taken = _timed(lambda: asyncio.run(run_source(build_source(fragment, around), edge, asyncio.Event())))
    threads.close()
    return taken, edge


def _timed(read: Callable[[], object]) -> Cost:
    worked, before = time.process_time(), time.perf_counter()
    read()
    return Cost(time.perf_counter() - before, time.process_time() - worked)


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
        self._agent = on.cluster.agents["a"].pid
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

    def bring(self, path: Path, rows: int, quiet: float = 0.0) -> Cost:
        """Until all rows of a file are in the topic. Nobody looks within the first `quiet` seconds: each look takes the
        processor away from what is measured."""
        start = self._state(self._uid).high_watermark
        # A whole file at once, and a new one: the same file under another name is known, and not read again.
        made = path.with_suffix(".new")
        shutil.copyfile(path, made)
        with made.open("rb") as file:
            os.fsync(file.fileno())
        worked, began = processes.processor_seconds(self._agent), time.perf_counter()
        made.rename(self._folder / f"{time.monotonic_ns():020d}.csv")
        time.sleep(quiet)
        when, until = self._arrived(start, rows)
        return Cost(when - began, until - worked)

    def caught_up(self) -> None:
        """Returns when the query has read what is in the topic, or does not come to an end with it."""
        time.sleep(BREATH_SECONDS)
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            state = self._state(self._uid)
            if state.log_start >= state.high_watermark:
                return
            time.sleep(10 * LOOK_SECONDS)
        print("  the query has not read all that came before", flush=True)

    def _arrived(self, start: int, rows: int) -> tuple[float, float]:
        """When the last row was there, and how long the agent had worked by then. Rows are counted when the topic has
        come to rest."""
        deadline = time.monotonic() + WAIT_SECONDS
        end, when, worked = start, time.perf_counter(), 0.0
        while time.monotonic() < deadline:
            now = self._state(self._uid).high_watermark
            if now > end:
                end, when, worked = now, time.perf_counter(), processes.processor_seconds(self._agent)
            elif end > start and time.perf_counter() - when > 0.3 and self._rows(start, end) == rows:
                return when, worked
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


def into_topic(csv: Path, small: Path, peer: Callable[[Path], pa.Table]) -> dict[str, float]:
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
            quickest = 0.0
            for number in range(ROUNDS + 1):
                edge.caught_up()
                with edge.alone():
                    mine = edge.bring(local, rows, quickest * QUIET)
                    other = _timed(lambda: peer(local))  # noqa: B023
                quickest = min(mine.seconds, quickest or mine.seconds)
                # The first is to warm up.
                if number:
                    ours.append(mine)
                    theirs.append(other)
            ratios[label] = told(label, path, ours, theirs)
        rows_bytes, pieces = peer(csv).nbytes, -(-csv.stat().st_size // FragmentConfig().block_bytes)
        alone = [_synced(on.cluster.files / "alone", rows_bytes // pieces, pieces) for _ in range(ROUNDS)]
        size = csv.stat().st_size / 1e6
        print(f"  its rows, only synced    {size:>6.1f} {size / statistics.median(alone):>10.1f}", flush=True)
    return ratios


def _synced(path: Path, size: int, pieces: int) -> float:
    """Seconds that the disk takes for as many bytes in as many appends, each synced before the next."""
    piece = os.urandom(size)
    with path.open("wb", buffering=0) as file:
        began = time.perf_counter()
        for _ in range(pieces):
            file.write(piece)
            os.fdatasync(file.fileno())
        return time.perf_counter() - began


def told(label: str, path: Path, ours: list[Cost], theirs: list[Cost]) -> float:
    size = path.stat().st_size / 1e6
    mine, other = (statistics.median(cost.seconds for cost in side) for side in (ours, theirs))
    worked, working = (statistics.median(cost.processor for cost in side) for side in (ours, theirs))
    print(
        f"{label:<26} {size:>6.1f} {size / mine:>10.1f} {size / other:>13.1f} {other / mine:>6.2f}"
        f" {working / worked:>13.2f}",
        flush=True,
    )
    return other / mine


def main() -> None:
    arrow = arrow_schema(columns_of(SCHEMA))
    types = {field.name: field.type for field in arrow}

    def csv_peer(path: Path) -> pa.Table:
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
        print(f"{'file':<26} {'MB':>6} {'ours MB/s':>10} {'pyarrow MB/s':>13} {'ratio':>6} {'of processors':>13}")
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
