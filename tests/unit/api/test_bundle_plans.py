"""The queries of a bundle are planned outside of its transaction, and nobody can tell but by the time others wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest
from sqlalchemy import select, update

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT
from headgate_coordinator import errors
from headgate_coordinator.catalog import schema, sessions
from headgate_coordinator.catalog.inline import InlineDatabase
from headgate_coordinator.catalog.store import LEADER_KEY, LEADER_KIND
from headgate_coordinator.config import CoordinatorConfig, Timings
from tests.unit.api.kit import QUERY, Client, with_limits

T = TypeVar("T")

# Fragments of QUERY, each of which takes a slot.
SLOTS = 3
OUT = "CREATE SINK out (highway INT32, speed FLOAT64) TYPE FILE SET ('/data/out.csv' AS \"SINK\".FILE_PATH)"


def bundle(*statements: str, **fields: Any) -> catalog.ApplyBundleRequest:
    items = [catalog.BundleItem(statement=statement) for statement in statements]
    return catalog.ApplyBundleRequest(items=items, **fields)


def create(name: str) -> str:
    return f"CREATE QUERY {name} AS {QUERY}"


class Planner:
    """Runs the planner's work inline. With `before`, awaits that before each plan.

    Of a bundle the first two are to parse it and to find the names in its queries; the rest are its plans.
    """

    def __init__(self) -> None:
        self.before: Callable[[], Awaitable[None]] | None = None
        self.plans = 0
        self._runs = 0

    async def __call__(self, work: Callable[[], T]) -> T:
        self._runs += 1
        if self.before is not None and self._runs > 2:
            self.plans += 1
            await self.before()
        return work()

    def begin(self, before: Callable[[], Awaitable[None]]) -> None:
        """The next call is a bundle."""
        self.before = before
        self.plans = self._runs = 0


@pytest.fixture
def planner() -> Planner:
    return Planner()


@pytest.fixture
async def planned(planner: Planner) -> AsyncIterator[Client]:
    """A leading coordinator that plans by `planner`, with a source, a sink, and an agent with room for two queries."""
    database = InlineDatabase()
    made = await Client(database, with_limits(plan_attempts=3), run_planner=planner).lead()
    await made.cluster(slots=2 * SLOTS)
    yield made
    await made.close()
    database.close()


async def plan_of(client: Client, name: str) -> catalog.QueryPlan:
    found = select(schema.queries.c.plan).where(schema.queries.c.name == name)
    return catalog.QueryPlan.FromString(await client.store.read(lambda tx: tx.connection.execute(found).scalar_one()))


async def used_slots(client: Client) -> int:
    used: int = (await client(catalog.GetAgentRequest(name="a"))).agent.slots_used
    return used


@pytest.mark.parametrize("validate_only", [False, True])
async def test_other_writes_go_on_while_a_bundle_is_planned(
    planned: Client, planner: Planner, validate_only: bool
) -> None:
    written: list[str] = []

    async def write() -> None:
        name = f"meanwhile_{len(written)}"
        await planned.dispatch(catalog.ExecuteStatementRequest(statement=f"CREATE SINK {name} (x INT32) TYPE VOID"))
        written.append(name)

    async def guarded() -> None:
        # The write below has work for the planner of its own.
        before, planner.before = planner.before, None
        await write()
        planner.before = before

    planner.begin(guarded)
    response = await planned(bundle(create("one"), create("two"), validate_only=validate_only))
    planner.before = None
    assert [result.verb for result in response.results] == ["CREATE QUERY"] * 2
    assert written == ["meanwhile_0", "meanwhile_1"]
    there = {sink.name for sink in (await planned(catalog.ListSinksRequest())).sinks}
    assert there == {"out", *written}
    assert len((await planned(catalog.ListQueriesRequest())).queries) == (0 if validate_only else 2)


async def test_the_leader_renews_while_a_bundle_is_planned(planner: Planner) -> None:
    timings = Timings(poll_timeout_min=3600.0, poll_timeout_max=3600.0, command_timeout=3600.0, leader_renew=0.01)
    database = InlineDatabase()
    client = await Client(database, CoordinatorConfig(timings=timings), run_planner=planner).lead()
    await client.cluster()
    term = client.coordinator.leadership.term

    def renewals(tx: Any) -> int:
        grant = sessions.get_grant(tx, LEADER_KIND, LEADER_KEY)
        assert grant is not None
        session = sessions.get_session(tx, grant.session)
        assert session is not None
        return session.renewals

    async def until_renewed() -> None:
        seen = await client.store.read(renewals)
        async with asyncio.timeout(30):
            while True:
                await asyncio.sleep(0.01)
                if await client.store.read(renewals) >= seen + 2:
                    return

    planner.begin(until_renewed)
    await client(bundle(create("one"), create("two"), create("three")))
    assert planner.plans == 3
    assert client.coordinator.leadership.term == term
    await client.close()
    database.close()


async def test_a_change_between_planning_and_commit_makes_it_plan_again(planned: Client, planner: Planner) -> None:
    made: list[catalog.Sink] = []

    async def replace_sink() -> None:
        planner.before = None
        await planned.dispatch(catalog.DropSinkRequest(name="out"))
        response = await planned.dispatch(catalog.ExecuteStatementRequest(statement=OUT))
        made.append(response.results[0].resources[0].sink)
        planner.before = nothing

    async def nothing() -> None:
        pass

    planner.begin(replace_sink)
    await planned(bundle(create("one"), create("two")))
    # Both before the change and both after it.
    assert planner.plans == 4
    for name in ("one", "two"):
        (sink,) = [use for use in (await plan_of(planned, name)).uses if use.kind == "sink"]
        assert (sink.uid, sink.revision) == (made[0].uid, made[0].revision)
    assert await used_slots(planned) == 2 * SLOTS


async def test_slots_that_go_meanwhile_are_not_given_twice(planned: Client, planner: Planner) -> None:
    """The second plan was good when it was made."""

    async def take() -> None:
        planner.before = None
        await planned.dispatch(catalog.CreateQueryRequest(name="other", statement=QUERY))

    planner.begin(take)
    error = await _fails(planned, bundle(create("one"), create("two")), errors.INSUFFICIENT_CAPACITY)
    assert error.metadata["item"] == "1"
    assert [query.name for query in (await planned(catalog.ListQueriesRequest())).queries] == ["other"]
    assert await used_slots(planned) == SLOTS


async def test_a_bundle_under_constant_change_ends_with_plan_outdated(planned: Client, planner: Planner) -> None:
    async def replace_sink() -> None:
        before, planner.before = planner.before, None
        await planned.dispatch(catalog.DropSinkRequest(name="out"))
        await planned.dispatch(catalog.ExecuteStatementRequest(statement=OUT))
        planner.before = before

    planner.begin(replace_sink)
    error = await _fails(planned, bundle("CREATE SINK v (x INT32) TYPE VOID", create("one")), errors.PLAN_OUTDATED)
    assert planner.plans == planned.config.limits.plan_attempts
    assert error.metadata["item"] == "1"
    assert "changed under the plan 3 times, last because sink out" in error.message
    assert [sink.name for sink in (await planned(catalog.ListSinksRequest())).sinks] == ["out"]
    assert not (await planned(catalog.ListQueriesRequest())).queries


async def _fails(client: Client, request: Any, reason: Any) -> Any:
    with pytest.raises(Exception) as caught:
        await client(request)
    error: Any = caught.value
    assert error.reason.name == reason.name, str(error)
    return error


async def test_what_does_not_concern_the_plans_makes_none_anew(planned: Client, planner: Planner) -> None:
    async def other_sink() -> None:
        planner.before = None
        await planned.dispatch(catalog.ExecuteStatementRequest(statement="CREATE SINK v (x INT32) TYPE VOID"))
        planner.before = count

    async def count() -> None:
        pass

    planner.begin(other_sink)
    await planned(bundle(create("one"), create("two")))
    assert planner.plans == 2


async def test_queries_of_a_bundle_share_the_slots_that_are_free(planned: Client) -> None:
    error = await planned.refused(bundle(create("one"), create("two"), create("three")), errors.INSUFFICIENT_CAPACITY)
    assert error.metadata["item"] == "2"
    await planned(bundle(create("one"), create("two")))
    assert await used_slots(planned) == 2 * SLOTS


async def test_a_query_that_is_skipped_takes_no_slots(planned: Client) -> None:
    again = create("one").replace("QUERY", "QUERY IF NOT EXISTS", 1)
    response = await planned(bundle(create("one"), again, again, create("two")))
    assert [result.skipped for result in response.results] == [False, True, True, False]
    assert await used_slots(planned) == 2 * SLOTS


async def test_the_first_error_is_told_whether_it_is_of_a_plan_or_of_a_step(planned: Client) -> None:
    bad = "CREATE QUERY bad AS SELECT nothing FROM lrb INTO out"
    for statements, item, reason in (
        ((create("one"), "DROP SINK out", bad), 1, errors.SINK_IN_USE),
        ((create("one"), "DROP PHYSICAL SOURCE p", bad), 1, errors.PHYSICAL_SOURCE_IN_USE),
        ((create("one"), "DROP AGENT a", bad), 1, errors.AGENT_IN_USE),
        ((create("one"), bad, "DROP SINK ghost"), 1, errors.BIND_ERROR),
        ((create("one"), "DROP SINK ghost", bad), 1, errors.SINK_NOT_FOUND),
        ((create("one"), create("one"), bad), 1, errors.ALREADY_EXISTS),
        ((create("one"), "DROP QUERY one", create("one")), 2, errors.QUERY_NAME_LOCKED),
        ((create("one"), create("two"), create("three"), bad), 2, errors.INSUFFICIENT_CAPACITY),
    ):
        error = await planned.refused(bundle(*statements), reason)
        assert error.metadata["item"] == str(item), statements


async def test_a_query_made_in_a_bundle_can_be_stopped_and_dropped_in_it(planned: Client) -> None:
    response = await planned(bundle(create("one"), "STOP QUERY one", "DROP QUERY one", create("two")))
    states = [result.resources[0].query.desired_state for result in response.results]
    assert states == [
        catalog.DESIRED_STATE_RUNNING,
        catalog.DESIRED_STATE_STOPPED,
        catalog.DESIRED_STATE_DROPPED,
        catalog.DESIRED_STATE_RUNNING,
    ]


async def test_a_source_that_no_plan_reads_can_be_dropped_after_its_query(planned: Client, planner: Planner) -> None:
    """It is named, so it counts as in use until the query is planned."""

    async def count() -> None:
        pass

    unread = "CREATE QUERY one AS WITH spare AS (SELECT highway FROM l2) SELECT highway, speed FROM lrb INTO out"
    planner.begin(count)
    await planned(
        bundle(
            "CREATE LOGICAL SOURCE l2 (highway INT32)",
            "CREATE PHYSICAL SOURCE p2 FOR l2 TYPE GENERATOR ON a",
            unread,
            "DROP PHYSICAL SOURCE p2",
            "DROP LOGICAL SOURCE l2",
            create("two"),
        )
    )
    assert planner.plans == 2
    assert len((await planned(catalog.ListQueriesRequest())).queries) == 2


async def test_plans_know_what_the_bundle_creates(planned: Client, planner: Planner) -> None:
    async def write() -> None:
        planner.before = None
        await planned.dispatch(catalog.ExecuteStatementRequest(statement="CREATE SINK v (x INT32) TYPE VOID"))

    planner.begin(write)
    response = await planned(
        bundle(
            "CREATE LOGICAL SOURCE l2 (x INT32)",
            "CREATE PHYSICAL SOURCE p2 FOR l2 TYPE GENERATOR ON a",
            "CREATE SINK s2 (x INT32) TYPE VOID",
            "CREATE QUERY one AS SELECT x FROM l2 INTO s2",
        )
    )
    made = {
        resource.WhichOneof("resource"): getattr(resource, resource.WhichOneof("resource") or "")
        for result in response.results
        for resource in result.resources
    }
    for use in (await plan_of(planned, "one")).uses:
        if use.kind != "agent":
            assert (use.uid, use.name) == (made[use.kind].uid, made[use.kind].name)
            assert use.revision == made[use.kind].revision == response.revision


async def test_a_dropped_and_created_sink_is_the_new_one_to_queries_after_it(planned: Client) -> None:
    response = await planned(bundle("DROP SINK out", OUT, create("one")))
    (use,) = [use for use in (await plan_of(planned, "one")).uses if use.kind == "sink"]
    assert use.uid == response.results[1].resources[0].sink.uid


async def test_a_query_after_a_new_link_is_planned_with_it(planned: Client, planner: Planner) -> None:
    async def count() -> None:
        pass

    request = bundle(create("one"))
    request.items.add(create_agent=catalog.CreateAgentRequest(name="b", address="127.0.0.1:7411", slots=1))
    request.items.add(create_network_link=catalog.CreateNetworkLinkRequest(from_agent="a", to_agent="b"))
    request.items.add(statement=create("two"))
    planner.begin(count)
    await planned(request)
    assert planner.plans == 2


async def test_a_sink_that_belongs_to_another_agent_after_all_is_planned_again(
    planned: Client, planner: Planner
) -> None:
    """It has the uid that it was planned with, and names no agent: it belongs to the only one that runs fragments."""

    async def roles(**of: str) -> None:
        def operation(tx: Any) -> None:
            for name, role in of.items():
                found = schema.agents.c.name == name
                tx.connection.execute(update(schema.agents).where(found).values(roles=f'["{role}"]'))

        await planned.store.write(operation)

    async def swap() -> None:
        planner.before = count
        await roles(a="LOG", b="FRAGMENTS")

    async def count() -> None:
        pass

    await planned(catalog.CreateAgentRequest(name="b", address="127.0.0.1:7411", slots=9))
    await planned.activate("b")
    await roles(b="LOG")
    planner.begin(swap)
    sink = "CREATE SINK s2 (highway INT32, speed FLOAT64) TYPE FILE SET ('/data/s2.csv' AS \"SINK\".FILE_PATH)"
    request = bundle(sink, "CREATE QUERY one AS SELECT highway, speed FROM lrb INTO s2")
    # Of the plan that was made anew: the source cannot follow.
    error = await _fails(planned, request, errors.PLACEMENT_ERROR)
    assert "agent a, where the source p is, runs no fragments" in error.message
    assert planner.plans == 2


async def test_a_rehearsal_plans_and_explains_against_earlier_statements(planned: Client, planner: Planner) -> None:
    before = await planned.contents()

    async def count() -> None:
        pass

    planner.begin(count)
    response = await planned(
        catalog.ExecuteStatementRequest(
            statement=f"""
            CREATE SINK s2 (highway INT32, speed FLOAT64) TYPE VOID;
            EXPLAIN SELECT highway, speed FROM lrb INTO s2;
            {create("one")}; {create("two")}; SHOW QUERIES; {create("three")}
            """,
            validate_only=True,
        )
    )
    assert planner.plans == 4
    assert [row.values[0] for row in response.results[4].table.rows] == ["one", "two"]
    assert any("s2" in row.values[0] for row in response.results[1].table.rows)
    assert (response.failure.index, response.failure.reason) == (5, "INSUFFICIENT_CAPACITY")
    assert await planned.contents() == before


async def test_a_bundle_has_a_bounded_number_of_changes(client: Client) -> None:
    drops = ";".join(f"DROP SINK IF EXISTS s{number}" for number in range(501))
    error = await client.refused(bundle(drops, drops), INVALID_ARGUMENT)
    assert "1,002 changes" in error.message
