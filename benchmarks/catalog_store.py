"""What the store costs beside a transaction per request, and how the cost of a write grows with the catalog.

The peer is what a service without the store would do: the same operation and the same rows of history by SQLAlchemy on
one connection, one durable transaction after the other. The store does it for 64 concurrent writers, with everything
its contract promises (isolation of failures, order, the feed); writers that wait share a commit. `ratio` is the worse
store's throughput over its peer's. `of_driver` is the same over hand-written SQL on the bare driver, which shows what
SQLAlchemy costs: where a flush of the disk is nearly free, sharing commits may not make up for it.
Growth is given at the median too: a 99th percentile of few writes says more about the machine's load.
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

import psycopg
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
LOCK = "LOCK TABLE revision IN EXCLUSIVE MODE"


def bare_driver(execute: Callable[[str, tuple[object, ...]], object], begin: Sequence[str], mark: str) -> float:
    """Transactions per second of the same rows in hand-written SQL."""
    source = f"INSERT INTO logical_sources (uid, name, schema, time, revision) VALUES ({', '.join([mark] * 5)})"
    columns = "revision, ordinal, time, kind, name, uid, before, after"
    change = f"INSERT INTO changes ({columns}) VALUES ({', '.join([mark] * 8)})"
    began = time.perf_counter()
    for number in range(1, PEER_TRANSACTIONS + 1):
        name = f"bare-{number}"
        for statement in begin:
            execute(statement, ())
        execute(f"SELECT uid FROM logical_sources WHERE name = {mark}", (name,))
        execute(source, (name, name, b"", 0, number))
        execute(change, (number, 0, 0, "LOGICAL_SOURCE", name, name, None, b"x" * 64))
        execute(f"UPDATE revision SET value = {mark} WHERE id = 1", (number,))
        execute("COMMIT", ())
    return PEER_TRANSACTIONS / (time.perf_counter() - began)


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


def durable_sqlite(url: str) -> sqlite3.Connection:
    connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
    for setting in ("journal_mode = WAL", "synchronous = FULL", "foreign_keys = ON"):
        connection.execute(f"PRAGMA {setting}")
    return connection


def sqlite_peer(url: str) -> float:
    engine = create_engine("sqlite://", creator=lambda: durable_sqlite(url))
    return transaction_per_request(engine, ["BEGIN IMMEDIATE"])


def sqlite_driver(url: str) -> float:
    connection = durable_sqlite(url)
    try:
        return bare_driver(connection.execute, ["BEGIN IMMEDIATE"], "?")
    finally:
        connection.close()


def postgres_peer(url: str) -> float:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"), isolation_level="SERIALIZABLE")
    try:
        return transaction_per_request(engine, [LOCK])
    finally:
        engine.dispose()


def postgres_driver(url: str) -> float:
    with psycopg.connect(url, autocommit=True) as connection:
        begin = ["BEGIN ISOLATION LEVEL SERIALIZABLE", LOCK]
        return bare_driver(lambda statement, values: connection.execute(statement.encode(), values), begin, "%s")


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


async def probe(store: Store, prefix: str) -> tuple[float, float]:
    """Median and 99th percentile of a single write, nobody else writing, in milliseconds."""
    latencies = []
    for number in range(PROBES):
        began = time.perf_counter()
        await store.write(create(f"{prefix}-{number}"))
        latencies.append(time.perf_counter() - began)
    return percentile(latencies, 50), percentile(latencies, 99)


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


async def migrated(url: str) -> str:
    async with opened(url):
        return url


async def measure(
    name: str, fresh: Callable[[], str], peer: Callable[[str], float], driver: Callable[[str], float]
) -> dict[str, float]:
    peer_rate = await asyncio.to_thread(peer, await migrated(fresh()))
    driver_rate = await asyncio.to_thread(driver, await migrated(fresh()))
    async with opened(fresh()) as store:
        rate, p99 = await concurrent_writes(store, "busy")
    async with opened(fresh()) as store:
        await fill(store, SMALL)
        small = await probe(store, "small")
        await fill(store, LARGE)
        large = await probe(store, "large")
    found = {
        "driver_per_second": round(driver_rate),
        "peer_per_second": round(peer_rate),
        "store_per_second": round(rate),
        "ratio": round(rate / peer_rate, 2),
        "of_driver": round(rate / driver_rate, 2),
        "p99_ms_64_writers": round(p99, 2),
        f"p50_ms_at_{SMALL}": round(small[0], 2),
        f"p50_ms_at_{LARGE}": round(large[0], 2),
        "growth_p50": round(large[0] / small[0], 2),
        "growth_p99": round(large[1] / small[1], 2),
    }
    for figure, value in found.items():
        print(f"{name:12}{figure:24}{value:>12}")
    return found


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder, ExitStack() as stack:
        # Durable, as in production: the kit's default keeps data in the page cache.
        durable = {"fsync": "on", "full_page_writes": "on"}
        server = stack.enter_context(running_postgres(Path(folder) / "postgres.log", durable))
        files = count()

        def fresh_sqlite() -> str:
            return f"sqlite:///{folder}/{next(files)}.sqlite"

        def fresh_postgres() -> str:
            return stack.enter_context(server.fresh_database())

        figures = {
            "sqlite": asyncio.run(measure("sqlite", fresh_sqlite, sqlite_peer, sqlite_driver)),
            "postgres": asyncio.run(measure("postgres", fresh_postgres, postgres_peer, postgres_driver)),
        }
    ratio = min(each["ratio"] for each in figures.values())
    print(json.dumps({"name": "catalog_store", "ratio": ratio, "goal": GOAL, **figures}))


if __name__ == "__main__":
    main()
