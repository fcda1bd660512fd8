"""Built-in sources: found by name, read from every agent that is there, and nobody's to create, feed or drop."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator import errors
from headgate_coordinator.catalog.descriptors import BUILT_IN_NAMES
from tests.unit.api.kit import Client

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "sql" / "built-in.md").read_text()
DASHBOARD = "SELECT start, end, SUM(rows_read) AS total FROM {} WINDOW TUMBLING(size = 5s) INTO dashboard"
OVERLOAD = """
    SELECT agent, AVG(cpu) AS avg_cpu
    FROM {}
    WINDOW SLIDING(size = 1 MINUTE, advance = 10 SECONDS)
    GROUP BY agent
    HAVING avg_cpu > 0.9
    INTO overload
"""

BEATS = "SELECT number FROM heartbeats INTO beats"


async def execute(client: Client, statement: str) -> catalog.ExecuteStatementResponse:
    response: catalog.ExecuteStatementResponse = await client(catalog.ExecuteStatementRequest(statement=statement))
    return response


async def cluster(client: Client, **agents: str) -> None:
    """Active agents, by their groups, without a slot to spare; one with slots for the rest of a query; sinks."""
    for port, (name, group) in enumerate(agents.items(), start=7410):
        slots = 4 if name == "a" else 0
        await client(catalog.CreateAgentRequest(name=name, address=f"127.0.0.1:{port}", slots=slots, group=group))
        await client.activate(name)
    await execute(
        client,
        """
        CREATE SINK dashboard (start TIMESTAMP, "end" TIMESTAMP, total INT64) TYPE VOID;
        CREATE SINK overload (agent VARCHAR, avg_cpu FLOAT64) TYPE VOID;
        CREATE SINK beats (number INT64) TYPE VOID;
        """,
    )


async def planned(client: Client, statement: str) -> catalog.QueryPlan:
    response = await client(catalog.ExplainQueryRequest(statement=statement))
    plan: catalog.QueryPlan = response.plan
    return plan


def feeds(plan: catalog.QueryPlan) -> list[str]:
    return [fragment.source.physical_source for fragment in plan.fragments if fragment.WhichOneof("body") == "source"]


@pytest.mark.parametrize(
    ("statement", "source"),
    [
        (DASHBOARD, "agent_statistics"),
        (DASHBOARD, "worker_statistics"),
        (OVERLOAD, "agent_resources"),
        (OVERLOAD, "worker_resources"),
    ],
)
async def test_the_queries_of_the_documents_read_every_agent(client: Client, statement: str, source: str) -> None:
    await cluster(client, a="", b="")
    plan = await planned(client, statement.format(source))
    read = source.replace("worker", "agent")
    assert feeds(plan) == [f"{read}@a", f"{read}@b"]
    assert not plan.unplaced and not plan.bounded
    assert {use.name for use in plan.uses if use.kind == "agent"} == {"a", "b"}
    assert {use.kind for use in plan.uses} == {"agent", "sink"}


async def test_a_query_over_them_is_accepted_and_refers_to_no_source_of_the_catalog(client: Client) -> None:
    await cluster(client, a="", b="")
    await execute(client, f"CREATE QUERY q AS {DASHBOARD.format('agent_statistics')}")
    query = (await client(catalog.GetQueryRequest(name="q"))).query
    assert query.fragment_count == 4 and not query.physical_sources
    found = (await client(catalog.ListFragmentsRequest(query="q"))).fragments
    # What agents say of themselves takes no slot: here b has none to give.
    assert [(f.agent, f.slots) for f in found if f.kind == catalog.FRAGMENT_KIND_SOURCE] == [("a", 0), ("b", 0)]


async def test_agents_that_do_not_answer_or_cannot_lead_an_edge_are_left_out(client: Client) -> None:
    await cluster(client, a="", b="")
    await client(catalog.CreateAgentRequest(name="silent", address="127.0.0.1:7450", slots=4))
    roles = [catalog.AGENT_ROLE_FRAGMENTS]
    await client(catalog.CreateAgentRequest(name="logless", address="127.0.0.1:7451", slots=4, roles=roles))
    await client.activate("logless")
    plan = await planned(client, BEATS)
    assert feeds(plan) == ["heartbeats@a", "heartbeats@b"]


async def test_a_query_reads_the_agents_of_one_group(client: Client) -> None:
    await cluster(client, a="", b="", c="east")
    assert feeds(await planned(client, DASHBOARD.format("agent_statistics"))) == [
        "agent_statistics@a",
        "agent_statistics@b",
    ]
    await execute(client, "CREATE SINK east (number INT64) TYPE FILE ON c SET('/data/east.csv' AS `SINK`.file_path)")
    assert feeds(await planned(client, "SELECT number FROM heartbeats INTO east")) == ["heartbeats@c"]


async def test_without_an_agent_nothing_feeds_them(client: Client) -> None:
    await execute(client, "CREATE SINK beats (number INT64) TYPE VOID")
    error = await client.refused(catalog.CreateQueryRequest(statement=BEATS), errors.NO_PHYSICAL_SOURCE)
    assert "--roles log,fragments" in str(error.details)


async def test_a_misspelt_name_is_answered_with_the_right_one(client: Client) -> None:
    await cluster(client, a="")
    request = catalog.CreateQueryRequest(statement=DASHBOARD.format("agent_statistic"))
    error = await client.refused(request, errors.LOGICAL_SOURCE_NOT_FOUND)
    assert "agent_statistics" in str(error.details)


async def test_the_examples_of_the_page_are_planned(client: Client) -> None:
    creation, *queries = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    await client(catalog.CreateAgentRequest(name="edge", address="127.0.0.1:7410", slots=4))
    await client.activate("edge")
    await execute(client, creation)
    assert [feeds(await planned(client, query)) for query in queries] == [
        ["agent_statistics@edge"],
        ["agent_resources@edge"],
        ["heartbeats@edge"],
    ]


@pytest.mark.parametrize("name", sorted(BUILT_IN_NAMES))
async def test_their_names_are_reserved(client: Client, name: str) -> None:
    await cluster(client, a="")
    schema = catalog.Schema(fields=[catalog.Field(name="x", type="INT32")])
    for request in (
        catalog.CreateLogicalSourceRequest(name=name.upper(), schema=schema),
        catalog.CreatePhysicalSourceRequest(
            logical_source=name, type=catalog.SOURCE_TYPE_GENERATOR, options={"rows": "1"}
        ),
        catalog.DropLogicalSourceRequest(name=name, allow_missing=True),
    ):
        error = await client.refused(request, errors.NAME_RESERVED)
        assert f"{name} is a built-in source" in error.message
    await client.refused(
        catalog.ExecuteStatementRequest(statement=f"CREATE LOGICAL SOURCE IF NOT EXISTS {name} (x INT32)"),
        errors.NAME_RESERVED,
    )


async def test_no_source_of_their_type_can_be_created(client: Client) -> None:
    await client.cluster()
    request = catalog.CreatePhysicalSourceRequest(
        logical_source="lrb", type=catalog.SOURCE_TYPE_AGENT, options={"built_in": "heartbeats"}
    )
    await client.refused(request, errors.SOURCE_TYPE_UNKNOWN)
    text = "CREATE PHYSICAL SOURCE FOR lrb TYPE AGENT"
    await client.refused(catalog.ExecuteStatementRequest(statement=text), errors.SOURCE_TYPE_UNKNOWN)


async def test_they_are_described_by_name_and_in_no_list(client: Client) -> None:
    (result,) = (await execute(client, "DESCRIBE worker_resources")).results
    assert result.resources[0].logical_source.name == "agent_resources"
    assert ["cpu", "FLOAT64", "NO"] in [list(row.values) for row in result.table.rows]
    assert not (await client(catalog.ListLogicalSourcesRequest())).logical_sources
    with pytest.raises(HeadgateError):
        await client(catalog.GetPhysicalSourceRequest(name="heartbeats"))


async def test_what_feeds_them_is_shown_to_whoever_asks_for_it(client: Client) -> None:
    await cluster(client, a="", b="", c="east")
    await client(catalog.CreateAgentRequest(name="silent", address="127.0.0.1:7450", slots=4))
    for name in ("heartbeats", "HEARTBEATS"):
        (result,) = (await execute(client, f"SHOW PHYSICAL SOURCES FOR {name}")).results
        assert [list(row.values[:4]) for row in result.table.rows] == [
            [f"heartbeats@{agent}", "heartbeats", "AGENT", agent] for agent in "abc"
        ]
    (result,) = (await execute(client, "SHOW PHYSICAL SOURCES FOR worker_resources WHERE agent = 'b'")).results
    assert [row.values[0] for row in result.table.rows] == ["agent_resources@b"]
    assert not (await client(catalog.ListPhysicalSourcesRequest())).physical_sources, "nobody created them"


async def test_what_feeds_them_is_listed_by_pages_and_filters_like_other_sources(client: Client) -> None:
    await cluster(client, a="", b="", c="east")
    request = catalog.ListPhysicalSourcesRequest(logical_source="heartbeats", page_size=2)
    first = await client(request)
    assert [source.agent for source in first.physical_sources] == ["a", "b"]
    request.page_token = first.next_page_token
    second = await client(request)
    assert [source.agent for source in second.physical_sources] == ["c"] and not second.next_page_token
    request = catalog.ListPhysicalSourcesRequest(logical_source="heartbeats", agent="B")
    assert [source.name for source in (await client(request)).physical_sources] == ["heartbeats@b"]
    request = catalog.ListPhysicalSourcesRequest(logical_source="heartbeats", type=catalog.SOURCE_TYPE_FILE)
    assert not (await client(request)).physical_sources
