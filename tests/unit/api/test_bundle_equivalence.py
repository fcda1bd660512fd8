"""A bundle does what it would do if each of its queries were planned inside its transaction, when its turn comes."""

from __future__ import annotations

import asyncio
import random
import re
from functools import cache, partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from headgate.catalog import v1 as catalog
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.api.mutations import Mutations
from headgate_coordinator.api.planning import Planning
from headgate_coordinator.api.statements import StatementService
from headgate_coordinator.catalog import bundles, operations, planner_view, schema
from headgate_coordinator.catalog.bundles import Step
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.operations import Rules
from headgate_coordinator.catalog.queries import PlannedQuery
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.sql.limits import StatementLimits, make_room_for_recursion
from headgate_coordinator.sql.planner import plan_query
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.types.schema import SchemaLimits
from tests.examples import examples
from tests.unit.api.kit import Client, run_inline

# Not for the first time during the test, which puts the limit back.
make_room_for_recursion()
RULES = Rules(schema=SchemaLimits(), deployment_deadline_us=1, drain_deadline_us=1, refuse_cycles=False)
SETTINGS = PlannerSettings()
FILE = "SET ('/data/{0}.csv' AS \"{1}\".FILE_PATH)"
STATEMENTS = [
    *(f"CREATE QUERY {name} AS SELECT highway, speed FROM lrb INTO {to}" for name in "xyz" for to in ("out", "s2")),
    "CREATE QUERY IF NOT EXISTS x AS SELECT highway, speed FROM lrb INTO out",
    "CREATE QUERY y AS SELECT highway, speed FROM l2 INTO s2",
    "CREATE QUERY z AS WITH spare AS (SELECT highway FROM l2) SELECT highway, speed FROM lrb INTO out",
    "CREATE QUERY z AS SELECT nothing FROM lrb INTO out",
    "STOP QUERY x",
    *(f"DROP QUERY {name}" for name in "xyz"),
    "DROP QUERY IF EXISTS x",
    f"CREATE SINK s2 (highway INT32, speed FLOAT64) TYPE FILE ON b {FILE.format('s2', 'SINK')}",
    "CREATE SINK IF NOT EXISTS s2 (highway INT32, speed FLOAT64) TYPE VOID",
    "DROP SINK s2",
    "DROP SINK out",
    f"CREATE SINK out (highway INT32, speed FLOAT64) TYPE FILE {FILE.format('out', 'SINK')}",
    "CREATE LOGICAL SOURCE l2 (highway INT32, speed FLOAT64)",
    f"CREATE PHYSICAL SOURCE p2 FOR l2 TYPE FILE ON b {FILE.format('p2', 'SOURCE')}",
    f"CREATE PHYSICAL SOURCE p3 FOR lrb TYPE FILE ON b {FILE.format('p3', 'SOURCE')}",
    "DROP PHYSICAL SOURCE p2",
    "DROP LOGICAL SOURCE l2",
    "DROP AGENT b",
    "DROP AGENT b FORCE",
]
# Bundles that are good so far, because most that chance makes are not.
BEGINNINGS = [
    [],
    [STATEMENTS[0]],
    [text for text in STATEMENTS if text.startswith(("CREATE LOGICAL", "CREATE PHYSICAL SOURCE p2", "CREATE SINK s2"))],
]
BEGINNINGS.append([*BEGINNINGS[2], STATEMENTS[7], STATEMENTS[0]])


class Leads:
    def require_term(self) -> int:
        return 1


async def _prepared() -> bytes:
    """Two agents with little room, a source and a sink."""
    database = InlineDatabase()
    client = await Client(database).lead()
    await client.cluster(slots=7)
    await client(catalog.CreateAgentRequest(name="b", address="127.0.0.1:7411", slots=3))
    await client.activate("b")
    # A coordinator that ends gives up the term, which the writes below are under.
    image = database.image()
    await client.close()
    database.close()
    return image


@cache
def prepared() -> bytes:
    return asyncio.run(_prepared())


def planned_inside(tx: Tx, steps: list[Step]) -> list[catalog.StatementResult]:
    """What a bundle means."""
    results = []
    for step in steps:
        try:
            planned = None
            if step.query is not None:
                query = planner_view.with_sink(step.query, step.request.sink)  # type: ignore[attr-defined]
                named = planner_view.sources_named(query)
                view = planner_view.view_of(tx, query, named, planner_view.load_topology(tx))
                plan = plan_query(query, view, SETTINGS)
                planned = PlannedQuery(query.name or "", plan, query.options.deadline_us, bool(view.links()))
            results.append(bundles.perform_planned(tx, step, RULES, planned))
        except HeadgateError as error:
            raise bundles.blamed(error, step.item, bundles.shown(step)) from error
    operations.settle(tx, RULES)
    return results


async def outcome(image: bytes, request: catalog.ApplyBundleRequest, *, inside: bool) -> str:
    """What a bundle answers and leaves behind, uids and times aside."""
    database = InlineDatabase(image)
    store = InlineStore(database, clock=SystemClock(), ids=RandomIds(random.Random(1)))
    planning = Planning(store, run=run_inline, limits=StatementLimits(), settings=SETTINGS)
    steps = bundles.steps_of(request.items, planning.parse_now)
    try:
        if inside:
            results = await store.write(partial(planned_inside, steps=steps), 1)
        else:
            service = StatementService(store, Mutations(store, Leads(), RULES, 16), planning)
            results = list((await service.apply_bundle(request, Call())).results)
    except HeadgateError as error:
        return _bare((error.reason.name, error.message, error.metadata))
    finally:
        image = database.image()
        await store.close()
        database.close()
    left = InlineDatabase(image)
    plans = left.connection.execute(select(schema.queries.c.name, schema.queries.c.plan).order_by("name")).all()
    slots = left.connection.execute(select(schema.agents.c.name, schema.agents.c.slots_used)).all()
    told = [(name, str(catalog.QueryPlan.FromString(plan))) for name, plan in plans]
    left.close()
    return _bare([[str(result) for result in results], told, sorted(map(tuple, slots))])


def _bare(told: Any) -> str:
    text = re.sub(r"\b(query|sink|source|logical-source|agent|fragment)-[0-9a-z]{20}\b", "uid", str(told))
    return re.sub(r"(seconds|nanos): \d+", "", text)


@pytest.mark.slow
@settings(max_examples=examples(300), deadline=None)
@given(st.sampled_from(BEGINNINGS), st.lists(st.sampled_from(STATEMENTS), min_size=1, max_size=5))
def test_a_bundle_does_what_planning_inside_its_transaction_would(first: list[str], then: list[str]) -> None:
    request = catalog.ApplyBundleRequest(items=[catalog.BundleItem(statement=text) for text in (*first, *then)])
    expected = asyncio.run(outcome(prepared(), request, inside=True))
    assert asyncio.run(outcome(prepared(), request, inside=False)) == expected
