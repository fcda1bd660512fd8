"""CreateQuery with 30,000 objects in the catalog against one with 100: what a query costs must not depend on the rest.

Each call goes through the dispatcher, is planned (a filter and a projection from a file on one agent to a file on the
same: three fragments) and committed durably. The small and the large catalog are asked in turn, so that both see the
same noise; each query is deleted again before the next. `ratio` is the p99 of the large over that of the small catalog,
of the worse of the two stores.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))

from sqlalchemy import func, select, update

from headgate.catalog import v1 as catalog
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call, Dispatcher
from headgate_common.ids import RandomIds
from headgate_coordinator.api.mutations import Mutations
from headgate_coordinator.api.planning import Planning
from headgate_coordinator.api.queries import QueryService
from headgate_coordinator.catalog import bundles, fragments, query_states, schema, sessions
from headgate_coordinator.catalog.connect import connect
from headgate_coordinator.catalog.drafts import Drafts, Unplanned
from headgate_coordinator.catalog.operations import OPERATIONS, Rules
from headgate_coordinator.catalog.store import LEADER_KEY, LEADER_KIND, Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.cluster.progress import Progress
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.types.schema import SchemaLimits
from tests.servers.postgres import running_postgres

T = TypeVar("T")

GOAL = "<= 1.5"
SIZES = (100, 30_000)
SAMPLES = 400
WARM_UP = 40
# Of every hundred objects: one agent, its logical sources, physical sources and sinks, and queries of three fragments.
SOURCES_PER_AGENT = 25
QUERIES_PER_AGENT = 6
PATH = "/headgate.catalog.v1.QueryService/CreateQuery"
RULES = Rules(SchemaLimits(), deployment_deadline_us=120_000_000, drain_deadline_us=60_000_000, refuse_cycles=False)
COLUMNS = "highway INT32, lane INT32, speed FLOAT64, plate VARCHAR, ts TIMESTAMP"


class FixedTerm:
    """Leads, in a term that is in the catalog."""

    def __init__(self, term: int) -> None:
        self._term = term

    def require_term(self) -> int:
        return self._term


@dataclass(frozen=True, slots=True)
class Catalog:
    """A store with `objects` resources, and the service on it."""

    store: Store
    dispatcher: Dispatcher
    planning: Planning
    agents: int


@asynccontextmanager
async def opened(url: str, size: int) -> AsyncIterator[Catalog]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(2) as planners:

        def run(work: Callable[[], T]) -> asyncio.Future[T]:
            return loop.run_in_executor(planners, work)

        store = await connect(url, clock=SystemClock(), ids=RandomIds())
        term = await store.write(_lead)
        planning = Planning(store, run=run, limits=StatementLimits(), settings=PlannerSettings())
        service = QueryService(store, Mutations(store, FixedTerm(term), RULES, 16), planning, Progress(store, limit=1))
        made = Catalog(store, Dispatcher([service]), planning, max(1, size // 100))
        try:
            await fill(made)
            yield made
        finally:
            await store.close()


def _lead(tx: Tx) -> int:
    session = sessions.open_session(tx, "benchmark", "localhost:0", 3600.0)
    return sessions.acquire(tx, LEADER_KIND, LEADER_KEY, session.uid)


async def fill(made: Catalog) -> None:
    """Creates everything by the operations that requests use, an agent's share in one transaction."""
    for number in range(made.agents):
        agent = f"agent_{number}"
        text = "".join(_statements(agent, source) for source in range(SOURCES_PER_AGENT))
        steps = bundles.steps_of([catalog.BundleItem(statement=text)], made.planning.parse_now)
        await made.store.write(partial(_join, agent))
        drafts = await made.planning.drafts(bundles.queries_of(steps), attempts=1)
        try:
            await made.store.write(partial(_share, steps, drafts))
        except Unplanned as unplanned:
            await made.store.write(partial(_share, steps, await made.planning.plan_bundle(unplanned)))


def _join(agent: str, tx: Tx) -> None:
    request = catalog.CreateAgentRequest(name=agent, address=f"{agent}:7410", slots=1_000)
    OPERATIONS[type(request)].apply(tx, request, RULES)
    tx.connection.execute(update(schema.agents).where(schema.agents.c.name == agent).values(state="ACTIVE"))


def _share(steps: list[bundles.Step], drafts: Drafts, tx: Tx) -> None:
    bundles.apply_bundle(tx, steps, RULES, drafts)


def _statements(agent: str, number: int) -> str:
    name = f"{agent}_{number}"
    return f"""
        CREATE LOGICAL SOURCE source_{name} ({COLUMNS});
        CREATE PHYSICAL SOURCE p_{name} FOR source_{name} TYPE FILE ON {agent}
            SET ('/data/{name}.csv' AS "SOURCE".FILE_PATH);
        CREATE SINK sink_{name} (highway INT32, speed FLOAT64) TYPE FILE ON {agent}
            SET ('/data/{name}.out' AS "SINK".FILE_PATH, 'CSV' AS "SINK".INPUT_FORMAT);
    """ + (f"CREATE QUERY query_{name} AS {_select(name)};" if number < QUERIES_PER_AGENT else "")


def _select(name: str) -> str:
    return f"SELECT highway, speed FROM source_{name} WHERE speed < 40 INTO sink_{name}"


async def objects(made: Catalog) -> int:
    tables = ("agents", "logical_sources", "physical_sources", "sinks", "queries", "fragments")

    def count(tx: Tx) -> int:
        return sum(
            tx.connection.execute(select(func.count()).select_from(schema.metadata.tables[name])).scalar_one()
            for name in tables
        )

    return await made.store.read(count)


async def create_one(made: Catalog, chance: random.Random) -> float:
    """Milliseconds that one CreateQuery took; the query is gone afterwards."""
    name = f"agent_{chance.randrange(made.agents)}_{chance.randrange(SOURCES_PER_AGENT)}"
    statement = f"SELECT highway, speed FROM source_{name} WHERE speed > 120 AND lane = 2 INTO sink_{name}"
    request = catalog.CreateQueryRequest(name="measured", statement=statement)
    began = time.perf_counter()
    response: Any = await made.dispatcher.unary(PATH, request, Call())
    took = time.perf_counter() - began
    await made.store.write(lambda tx: _forget(tx, response.query.uid))
    return took * 1000


def _forget(tx: Tx, uid: str) -> None:
    """Takes the measured query through the end of its life, as the reconciler would."""
    query = query_states.open_query(tx, uid)
    assert query is not None
    query.set_state("STOPPING", "measured")
    changes = fragments.Changes(tx)
    for fragment in fragments.fragments_of(tx, uid):
        changes.gone(fragment, "measured")
    changes.flush()
    query.set_state("STOPPED", "measured")
    fragments.delete_query(tx, uid)


async def measure(urls: list[str]) -> list[dict[str, float]]:
    """For each of the sizes: objects, p50 and p99."""
    chance = random.Random(1)
    async with opened(urls[0], SIZES[0]) as small, opened(urls[1], SIZES[1]) as large:
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(WARM_UP + SAMPLES):
            for made, taken in zip((small, large), times, strict=True):
                took = await create_one(made, chance)
                if number >= WARM_UP:
                    taken.append(took)
        found = []
        for made, taken in zip((small, large), times, strict=True):
            cuts = statistics.quantiles(taken, n=100)
            found.append({"objects": await objects(made), "p50_ms": cuts[49], "p99_ms": cuts[98]})
        return found


def run() -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        stores = {"sqlite": asyncio.run(measure([f"sqlite:///{folder}/{size}.db" for size in SIZES]))}
        with (
            running_postgres(Path(folder) / "postgres.log") as server,
            server.fresh_database() as one,
            server.fresh_database() as other,
        ):
            stores["postgres"] = asyncio.run(measure([one, other]))
    ratios = {name: large["p99_ms"] / small["p99_ms"] for name, (small, large) in stores.items()}
    print(f"{'store':10}{'objects':>10}{'p50 ms':>10}{'p99 ms':>10}")
    for name, found in stores.items():
        for row in found:
            print(f"{name:10}{row['objects']:>10.0f}{row['p50_ms']:>10.1f}{row['p99_ms']:>10.1f}")
    figures: dict[str, object] = {"name": "create_query", "ratio": round(max(ratios.values()), 3), "goal": GOAL}
    for name, found in stores.items():
        figures[f"{name}_ratio"] = round(ratios[name], 3)
        for row in found:
            size = "small" if row is found[0] else "large"
            figures[f"{name}_{size}"] = {key: round(value, 2) for key, value in row.items()}
    return figures


def main() -> None:
    print(json.dumps(run()))


if __name__ == "__main__":
    main()
