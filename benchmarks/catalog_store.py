"""What the store costs beside a transaction per request, and how the cost of a write grows with the catalog.

The peer is what a service without the store would do: the same operation and the same rows of history by SQLAlchemy on
one connection, one durable transaction after the other. The store does it for 64 concurrent writers, with everything
its contract promises (isolation of failures, order, the feed); writers that wait share a commit. `ratio` is the worse
store's throughput over its peer's.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

from sqlalchemy import Engine, create_engine, make_url

sys.path.insert(0, str(Path(__file__).parents[1]))

from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog import changes
from headgate_coordinator.catalog.connect import connect
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from tests.integration.catalog.kit import create, names
from tests.servers.postgres import running_postgres

GOAL = ">= 1.0"
WRITERS = 64
PEER_TRANSACTIONS = 800
WRITES = 3200
SMALL, LARGE = 100, 30_000
PROBES = 300


def transaction_per_request(engine: Engine, begin: Sequence[str]) -> float:
    """Transactions per second of the peer."""
    ids = RandomIds()
    with engine.connect() as connection:
        began = time.perf_counter()
        for number in range(1, PEER_TRANSACTIONS + 1):
            for statement in begin:
                connection.exec_driver_sql(statement)
            last, _ = changes.head(connection)
            tx = Tx(connection, 0, last + 1, ids)
            create(f"peer-{number}")(tx)
            _, rows = changes.encode(last + 1, 0, tx.changes)
            changes.append(connection, last + 1, rows)
            connection.commit()
        return PEER_TRANSACTIONS / (time.perf_counter() - began)


def sqlite_peer(url: str) -> float:
    def connect_durably() -> sqlite3.Connection:
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
            connection.execute(f"PRAGMA {setting}")
        return connection

    engine = create_engine("sqlite://", creator=connect_durably)
    return transaction_per_request(engine, ["BEGIN IMMEDIATE"])


def postgres_peer(url: str) -> float:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="SERIALIZABLE")
    try:
        return transaction_per_request(engine, ["LOCK TABLE revision IN EXCLUSIVE MODE"])
    finally:
        engine.dispose()


async def concurrent_writes(store: Store, prefix: str) -> tuple[float, float]:
    """Operations per second of the store with 64 writers, and the 99th percentile of their latency in milliseconds."""
    latencies: list[float] = []

    async def writer(number: int) -> None:
        for turn in range(WRITES // WRITERS):
            began = time.perf_counter()
            await store.write(create(f"{prefix}-{number}-{turn}"))
            latencies.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(writer(number) for number in range(WRITERS)))
    rate = WRITES / (time.perf_counter() - began)
    return rate, percentile(latencies, 99)


def percentile(seconds: list[float], share: int) -> float:
    return statistics.quantiles(seconds, n=100)[share - 1] * 1000


async def probe(store: Store, prefix: str) -> float:
    """The 99th percentile of a single write, nobody else writing, in milliseconds."""
    latencies = []
    for number in range(PROBES):
        began = time.perf_counter()
        await store.write(create(f"{prefix}-{number}"))
        latencies.append(time.perf_counter() - began)
    return percentile(latencies, 99)


async def fill(store: Store, upto: int) -> None:
    present = len(await store.read(names))
    for start in range(present, upto, 500):
        await asyncio.gather(
            *(store.write(create(f"fill-{number}")) for number in range(start, min(start + 500, upto)))
        )


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = await connect(url, clock=SystemClock(), ids=RandomIds())
    try:
        yield store
    finally:
        await store.close()


async def measure(name: str, fresh: Callable[[], str], peer: Callable[[str], float]) -> dict[str, float]:
    url = fresh()
    async with opened(url):
        pass
    peer_rate = await asyncio.to_thread(peer, url)
    async with opened(fresh()) as store:
        rate, p99 = await concurrent_writes(store, "busy")
    async with opened(fresh()) as store:
        await fill(store, SMALL)
        small = await probe(store, "small")
        await fill(store, LARGE)
        large = await probe(store, "large")
    found = {
        "peer_per_second": round(peer_rate),
        "store_per_second": round(rate),
        "ratio": round(rate / peer_rate, 2),
        "p99_ms_64_writers": round(p99, 2),
        f"p99_ms_at_{SMALL}": round(small, 2),
        f"p99_ms_at_{LARGE}": round(large, 2),
        "growth": round(large / small, 2),
    }
    print(f"{name:10}" + "".join(f"{value:>22}" for value in found.values()))
    return found


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder, ExitStack() as stack:
        # Durable, as in production: the kit's default keeps data in the page cache.
        durable = {"fsync": "on", "full_page_writes": "on"}
        server = stack.enter_context(running_postgres(Path(folder) / "postgres.log", durable))
        files = count()
        headings = ("peer/s", "store/s", "ratio", "p99 ms, 64 writers", f"p99 ms at {SMALL}", f"p99 ms at {LARGE}")
        print(f"{'store':10}" + "".join(f"{heading:>22}" for heading in (*headings, "growth")))

        def fresh_sqlite() -> str:
            return f"sqlite:///{folder}/{next(files)}.sqlite"

        def fresh_postgres() -> str:
            return stack.enter_context(server.fresh_database())

        figures = {
            "sqlite": asyncio.run(measure("sqlite", fresh_sqlite, sqlite_peer)),
            "postgres": asyncio.run(measure("postgres", fresh_postgres, postgres_peer)),
        }
    ratio = min(each["ratio"] for each in figures.values())
    print(json.dumps({"name": "catalog_store", "ratio": ratio, "goal": GOAL, **figures}))


if __name__ == "__main__":
    main()
