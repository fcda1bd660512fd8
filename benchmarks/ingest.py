"""How fast a FILE source turns files into Arrow batches, next to pyarrow reading the same file.

The source runs as an agent runs it: blocks off the event loop, exact types, malformed rows looked for, a filter and a
projection pushed down, positions made. Its edge is one that drops what it gets, so the log has no part in it yet. Each
peer reads the whole file into the same types with pyarrow's own reader and its default threads. Both are measured in
turns, so that a noisy machine slows both; the ratio is that of the medians for CSV. How the cost grows is seen from a
file of a quarter of the size, and what malformed rows cost from one with one in every thousand.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from headgate.catalog import v1 as catalog
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.edges import ErrorRow, Stored
from headgate_agent.fragments.sources.build import Surroundings, build_source
from headgate_agent.fragments.sources.source import run_source
from headgate_agent.fragments.types import arrow_schema, columns_of
from headgate_agent.work import Threads
from headgate_common.clock import SystemClock

ROWS = 400_000
ROUNDS = 5
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
        ratios = {}
        for label, path, parser, peer in cases:
            ours, theirs = [], []
            for _ in range(ROUNDS):
                taken, edge = _ours(path, {"type": parser})
                assert edge.rows + edge.errors in (ROWS, ROWS // 4), edge.rows
                ours.append(taken)
                theirs.append(_timed(lambda: peer(path)))  # noqa: B023
            size = path.stat().st_size / 1e6
            mine, other = statistics.median(ours), statistics.median(theirs)
            ratios[label] = other / mine
            print(f"{label:<26} {size:>6.1f} {size / mine:>10.1f} {size / other:>13.1f} {ratios[label]:>6.2f}")
    print(
        json.dumps(
            {
                "name": "ingest",
                "ratio": round(ratios["CSV"], 3),
                "goal": f">= {GOAL}",
                **{f"ratio of {label}": round(ratio, 3) for label, ratio in ratios.items() if label != "CSV"},
                "rounds": ROUNDS,
                "edge": "dropped",
            }
        )
    )


if __name__ == "__main__":
    main()
