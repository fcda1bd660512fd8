"""An export says, in an order that can be followed, exactly what would make the same catalog again."""

from __future__ import annotations

import json

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_cli.exports import as_json, as_sql, needed_agents, ordered, statement_of
from headgate_coordinator.sql.parse import parse_statements
from headgate_coordinator.sql.statements import QueryStatement, RequestStatement

SCHEMA = catalog.Schema(
    fields=[
        catalog.Field(name="creationTS", type="TIMESTAMP", not_null=True),
        catalog.Field(name="select", type="DECIMAL(10,2)"),
        catalog.Field(name="two words", type="ARRAY<INT64>"),
    ]
)
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)


def parsed(item: catalog.BundleItem) -> object:
    statement = parse_statements(statement_of(item))[0]
    assert isinstance(statement, RequestStatement)
    return statement.request


def resources() -> list[catalog.Resource]:
    """As GetSnapshot answers them: ordered by kind, then name."""
    return [
        catalog.Resource(agent=catalog.Agent(name="b", address="h:2", slots=3, has_engine=True, peers=["a"])),
        catalog.Resource(network_link=catalog.NetworkLink(from_agent="b", to_agent="a")),
        catalog.Resource(logical_source=catalog.LogicalSource(name="cars", schema=SCHEMA)),
        catalog.Resource(topic=log.Topic(name="Orders.v1", partitions=3, group="default")),
        catalog.Resource(topic=log.Topic(name="edge-1", partitions=3, internal=True)),
        catalog.Resource(
            physical_source=catalog.PhysicalSource(
                name="gate-1",
                logical_source="cars",
                agent="b",
                type=catalog.SOURCE_TYPE_FILE,
                options={"file_path": "in.json"},
                parser_options={"type": "JSON"},
            )
        ),
        catalog.Resource(sink=catalog.Sink(name="out", schema=SCHEMA, agent="b", type=catalog.SINK_TYPE_VOID)),
        *(
            catalog.Resource(
                query=catalog.Query(
                    name=f"q{index}",
                    statement="SELECT creationTS FROM cars INTO out",
                    sinks=["out"],
                    state=state,
                    desired_state=desired,
                )
            )
            for index, (state, desired) in enumerate(
                [
                    (catalog.QUERY_STATE_RUNNING, catalog.DESIRED_STATE_RUNNING),
                    (catalog.QUERY_STATE_FAILED, catalog.DESIRED_STATE_RUNNING),
                    (catalog.QUERY_STATE_STOPPING, catalog.DESIRED_STATE_STOPPED),
                ]
            )
        ),
    ]


def test_nothing_is_named_before_it_is_there_and_ended_queries_are_left_out() -> None:
    items = ordered(resources(), with_agents=True)
    assert [item.WhichOneof("item") for item in items] == [
        "statement",
        "statement",
        "create_topic",
        "create_logical_source",
        "create_physical_source",
        "create_sink",
        "create_query",
    ]
    assert items[0].statement.startswith("CREATE AGENT IF NOT EXISTS b AT 'h:2'")
    assert items[1].statement == "CREATE NETWORK LINK IF NOT EXISTS FROM b TO a"


def test_agents_can_be_left_out_and_are_named_then() -> None:
    items = ordered(resources(), with_agents=False)
    assert items[0].statement.startswith("CREATE NETWORK LINK")
    assert "CREATE AGENT" not in as_sql(items, 4)
    assert needed_agents(resources()) == ["a", "b"]
    assert "-- Start these agents first, queries need them ACTIVE: a, b.\n" in as_sql(items, 4, ["a", "b"])


def test_json_is_the_request_of_apply_bundle() -> None:
    items = ordered(resources(), with_agents=True)
    read = json_format.ParseDict(json.loads(as_json(items)), catalog.ApplyBundleRequest())
    assert list(read.items) == items


def test_sql_is_one_statement_for_each_resource() -> None:
    items = ordered(resources(), with_agents=True)
    assert len(parse_statements(as_sql(items, 4))) == len(items)


@given(
    name=st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True).filter(lambda name: name not in (".", "..")),
    group=TEXTS,
    retention=st.none() | st.integers(0, 10**15),
    size=st.none() | st.integers(0, 10**15),
    durability=st.sampled_from(log.Durability.values()),
)
def test_a_topic_is_said_exactly(
    name: str, group: str, retention: int | None, size: int | None, durability: log.Durability.ValueType
) -> None:
    settings = log.TopicSettings(durability=durability, retention_bytes=size, segment_bytes=4096)
    if retention is not None:
        settings.retention.FromMicroseconds(retention)
    request = log.CreateTopicRequest(name=name, partitions=7, settings=settings, group=group)
    assert parsed(catalog.BundleItem(create_topic=request)) == request


@given(address=TEXTS, zone=TEXTS, labels=st.dictionaries(TEXTS.filter(bool), TEXTS, max_size=3))
def test_an_agent_is_said_exactly(address: str, zone: str, labels: dict[str, str]) -> None:
    request = catalog.CreateAgentRequest(
        name="a-1",
        address=address,
        slots=4,
        zone=zone,
        group="blue",
        labels=labels,
        roles=[catalog.AGENT_ROLE_LOG, catalog.AGENT_ROLE_FRAGMENTS],
        without_engine=True,
    )
    assert parsed(catalog.BundleItem(create_agent=request)) == request


@given(path=TEXTS.filter(lambda value: bool(value.strip())))
def test_a_sink_and_its_options_are_said_exactly(path: str) -> None:
    request = catalog.CreateSinkRequest(
        name="out",
        schema=SCHEMA,
        agent="a",
        type=catalog.SINK_TYPE_FILE,
        options={"file_path": path, "input_format": "JSON"},
    )
    assert parsed(catalog.BundleItem(create_sink=request)) == request


def test_a_physical_source_keeps_the_options_of_its_parser_apart() -> None:
    request = catalog.CreatePhysicalSourceRequest(
        name="p",
        logical_source="cars",
        agent="a",
        type=catalog.SOURCE_TYPE_FILE,
        options={"file_path": "in.csv"},
        parser_options={"type": "CSV", "field_delimiter": ";", "tuple_delimiter": "\n"},
    )
    assert parsed(catalog.BundleItem(create_physical_source=request)) == request


@pytest.mark.parametrize(
    ("statement", "sink"),
    [
        ("SELECT a FROM cars INTO out", "out"),
        ("SELECT a FROM cars", "out"),
        ("SELECT 'INTO' AS a FROM cars -- INTO\nWITH (deadline = '5s')", "out"),
        ("CREATE QUERY q AS SELECT a FROM cars INTO out", "out"),
    ],
)
def test_a_query_keeps_its_name_and_its_sink(statement: str, sink: str) -> None:
    item = catalog.BundleItem(create_query=catalog.CreateQueryRequest(name="q", statement=statement, sink=sink))
    read = parse_statements(statement_of(item))[0]
    assert isinstance(read, QueryStatement)
    assert (read.name, read.sink) == ("q", "out")
