"""1,000 queries of 3 fragments to RUNNING against 100: what a query costs the coordinator must not grow with the rest.

The catalog is SQLite on disk with durable commits; ten agents answer over gRPC from another process. The queries are in
the catalog, PENDING, when the leader begins; the clock stops when all are RUNNING. Sizes are measured in turn. `ratio`
is the larger one's cost per query over the smaller one's: the worse of processor time of the coordinator and wall time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sqlalchemy import func, select

from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds
from headgate_common.transport import GrpcTransport
from headgate_coordinator.catalog import agent_rows
from headgate_coordinator.catalog.connect import connect
from headgate_coordinator.catalog.schema import queries
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.cluster.control import Control
from headgate_coordinator.cluster.leadership import Leadership
from headgate_coordinator.config import Limits, Timings
from tests.integration.cluster.kit import choose_agent, create_query, plan_of

GOAL = "<= 1.3"
SIZES = (100, 1_000)
ROUNDS = 3
AGENTS = 10
SLOTS = 10_000
DEADLINE = 300.0


@contextmanager
def agents_elsewhere(count: int, coordinator: str = "-") -> Iterator[list[tuple[str, str]]]:
    """Agents in another process: their names and addresses."""
    host = Path(__file__).with_name("agent_host.py")
    process = subprocess.Popen(
        [sys.executable, str(host), str(count), coordinator], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        yield [(name, address) for name, address in json.loads(process.stdout.readline())]
    finally:
        process.stdin.close()
        process.wait(30)


def seed(tx: Tx, agents: list[tuple[str, str]], count: int) -> None:
    for name, address in agents:
        uid = agent_rows.insert_agent(
            tx,
            name=name,
            address=address,
            slots=SLOTS,
            zone="",
            group="",
            labels={},
            roles=("FRAGMENTS", "LOG"),
            has_engine=True,
        )
        tx.record("AGENT", name, uid, None, agent_rows.agent_by_uid(tx, uid))
    names = [name for name, _ in agents]
    for number in range(count):
        where = [names[(number + step) % len(names)] for step in range(3)]
        create_query(tx, plan_of(*where), f"query_{number}", deadline=600.0)


async def in_state(store: Store, state: str) -> int:
    return await store.read(
        lambda tx: tx.connection.execute(select(func.count()).where(queries.c.state == state)).scalar_one()
    )


async def deploy(url: str, count: int) -> tuple[float, float]:
    """Milliseconds of processor and of wall time per query."""
    with agents_elsewhere(AGENTS) as agents:
        store = await connect(url, clock=SystemClock(), ids=RandomIds())
        transport = GrpcTransport()
        await store.write(lambda tx: seed(tx, agents, count))
        timings, source = Timings(), random.Random(1)
        control = Control(
            store,
            transport=transport,
            clock=SystemClock(),
            source=source,
            timings=timings,
            limits=Limits(),
            choose_agent=choose_agent,
        )
        leadership = Leadership(
            store,
            clock=SystemClock(),
            source=source,
            timings=timings,
            holder="benchmark",
            address="",
            lead=control.run,
            sole=True,
        )
        began, used = time.perf_counter(), time.process_time()
        leading = asyncio.create_task(leadership.run())
        async with asyncio.timeout(DEADLINE):
            while await in_state(store, "RUNNING") < count:  # noqa: ASYNC110 - asked as a client would ask
                await asyncio.sleep(0.1)
        cost = (time.process_time() - used) / count * 1000, (time.perf_counter() - began) / count * 1000
        leading.cancel()
        await asyncio.wait((leading,))
        await transport.close()
        await store.close()
        return cost


def run() -> dict[str, object]:
    taken: dict[int, list[tuple[float, float]]] = {size: [] for size in SIZES}
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        # The first deployment in a process pays for what is loaded and compiled once.
        asyncio.run(deploy(f"sqlite:///{folder}/warm-up.db", 20))
        for number in range(ROUNDS):
            for size in SIZES:
                taken[size].append(asyncio.run(deploy(f"sqlite:///{folder}/{number}-{size}.db", size)))
    print(f"{'queries':>8}{'processor ms/query':>20}{'wall ms/query':>16}")
    cost = {}
    for size, found in taken.items():
        cost[size] = [statistics.median(column) for column in zip(*found, strict=True)]
        print(f"{size:>8}{cost[size][0]:>20.2f}{cost[size][1]:>16.2f}")
    small, large = (cost[size] for size in SIZES)
    processor, wall = large[0] / small[0], large[1] / small[1]
    return {
        "name": "reconcile",
        "ratio": round(max(processor, wall), 3),
        "goal": GOAL,
        "processor_ratio": round(processor, 3),
        "wall_ratio": round(wall, 3),
        "processor_ms_per_query": {str(size): round(cost[size][0], 3) for size in SIZES},
        "wall_ms_per_query": {str(size): round(cost[size][1], 3) for size in SIZES},
    }


def main() -> int:
    logging.basicConfig(level=logging.ERROR)
    print(json.dumps(run()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
