"""Sources and sinks: valid ones are stored, secrets are never shown, and what is in use stays."""

from __future__ import annotations

import json
from functools import partial

import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator import errors
from headgate_coordinator.catalog import operations, schema, sinks, sources
from headgate_coordinator.catalog.operations import OPERATIONS
from headgate_coordinator.catalog.tx import Tx
from tests.unit.entities.kit import Catalog, schema_of
from tests.unit.entities.refusals import refused

SECRET = "open sesame"
KAFKA = {
    "bootstrap_servers": "broker:9092",
    "topic": "orders",
    "security_protocol": "SASL_SSL",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "me",
    "sasl_password": SECRET,
}


async def test_a_logical_source_has_canonical_types(made: Catalog) -> None:
    source = await made.logical("LRB", highway="int", speed="double")
    assert source.name == "lrb"
    assert [field.type for field in source.schema.fields] == ["INT32", "FLOAT64"]
    read = await made.read(lambda tx: sources.get_logical_source(tx, catalog.GetLogicalSourceRequest(name="Lrb")))
    assert read == source


async def test_a_logical_source_without_columns_or_with_bad_ones_is_refused(made: Catalog) -> None:
    create = catalog.CreateLogicalSourceRequest
    await refused(made, create(name="a", schema=catalog.Schema()), errors.EMPTY_SCHEMA)
    await refused(made, create(name="a", schema=schema_of(x="BLUE")), errors.INVALID_SCHEMA)
    await refused(made, create(name="a", schema=schema_of(x="INT32", X="INT32")), errors.INVALID_SCHEMA)
    await refused(made, create(name="1a", schema=schema_of()), errors.INVALID_NAME)
    await made.logical("a")
    await refused(made, create(name="A", schema=schema_of()), errors.ALREADY_EXISTS)


async def test_a_logical_source_stays_while_physical_ones_feed_it(made: Catalog) -> None:
    for name in ("a", "b"):
        await made.agent(name)
    logical = await made.logical()
    await made.physical(agent="a", name="p1")
    await made.physical(agent="b", name="p2")
    drop = catalog.DropLogicalSourceRequest(name="lrb")
    error = await refused(made, drop, errors.LOGICAL_SOURCE_IN_USE)
    assert "2 physical sources: p1 (FILE), p2 (FILE)" in error.message
    await made.apply(catalog.DropPhysicalSourceRequest(name="p1"))
    await made.apply(catalog.DropPhysicalSourceRequest(name="p2"))
    assert (await made.apply(drop)).uid == logical.uid
    assert (await made.history())[-1].changes[0].after is None


async def test_a_long_list_of_references_is_cut_and_counted(made: Catalog) -> None:
    await made.logical()
    for number in range(25):
        await made.agent(f"a{number:02}")
        await made.physical(agent=f"a{number:02}", name=f"p{number:02}")
    error = await refused(made, catalog.DropLogicalSourceRequest(name="lrb"), errors.LOGICAL_SOURCE_IN_USE)
    assert error.metadata["count"] == "25"
    assert "p19 (FILE) and 5 more" in error.message
    assert "p20" not in error.message


async def test_a_node_local_source_takes_the_only_agent_and_asks_where_there_are_more(made: Catalog) -> None:
    await made.logical()
    request = catalog.CreatePhysicalSourceRequest(
        logical_source="lrb", type=catalog.SOURCE_TYPE_FILE, options={"file_path": "/x.csv"}
    )
    error = await refused(made, request, errors.AGENT_AMBIGUOUS)
    assert "there is none" in error.message
    await made.agent("a")
    await made.agent("topics", roles=[catalog.AGENT_ROLE_LOG])
    source = await made.apply(request)
    assert source.agent == "a"
    assert source.name == source.uid
    await made.agent("b")
    error = await refused(made, request, errors.AGENT_AMBIGUOUS)
    assert error.metadata["agents"] == "a,b"


async def test_what_a_physical_source_refers_to_must_exist(made: Catalog) -> None:
    await made.agent("a")
    await made.logical()
    create = catalog.CreatePhysicalSourceRequest(
        logical_source="ghost", agent="a", type=catalog.SOURCE_TYPE_FILE, options={"file_path": "/x.csv"}
    )
    await refused(made, create, errors.LOGICAL_SOURCE_NOT_FOUND)
    create.logical_source, create.agent = "lrb", "ghost"
    await refused(made, create, errors.AGENT_NOT_FOUND)
    create.agent = "a"
    create.options["colour"] = "blue"
    await refused(made, create, errors.INVALID_CONFIG)
    create.options.clear()
    await refused(made, create, errors.INVALID_CONFIG)


async def test_one_source_of_a_type_feeds_a_logical_source_on_an_agent(made: Catalog) -> None:
    await made.agent("a")
    await made.logical()
    await made.physical(agent="a", name="p")
    again = catalog.CreatePhysicalSourceRequest(
        logical_source="lrb", agent="a", type=catalog.SOURCE_TYPE_FILE, options={"file_path": "/other.csv"}
    )
    error = await refused(made, again, errors.ALREADY_EXISTS)
    assert error.metadata["name"] == "p"
    assert "on agent a" in error.message
    await made.logical("other")
    again.logical_source = "other"
    await made.apply(again)


async def test_uniqueness_is_checked_at_the_end_of_the_transaction(made: Catalog) -> None:
    """A replacement may come before the drop of what it replaces, but not without it."""
    await made.agent("a")
    await made.logical()
    await made.physical(agent="a", name="old")
    create = catalog.CreatePhysicalSourceRequest(
        name="new", logical_source="lrb", agent="a", type=catalog.SOURCE_TYPE_FILE, options={"file_path": "/n.csv"}
    )

    def replace(tx: Tx) -> None:
        for request in (create, catalog.DropPhysicalSourceRequest(name="old")):
            OPERATIONS[type(request)].apply(tx, request, made.rules)
        operations.settle(tx, made.rules)

    await made.write(replace)
    assert [row.name for row in await made.rows(schema.physical_sources)] == ["new"]
    (row,) = await made.rows(schema.physical_sources)
    assert row.locus == row.agent_uid


async def test_a_kafka_source_needs_no_agent_and_is_unique_by_topic(made: Catalog) -> None:
    await made.agent("a")
    await made.logical()
    create = catalog.CreatePhysicalSourceRequest(
        logical_source="lrb", type=catalog.SOURCE_TYPE_KAFKA, options=KAFKA, parser_options={"type": "JSON"}
    )
    assert (await made.apply(create)).agent == ""
    await refused(made, create, errors.ALREADY_EXISTS)
    create.options["topic"] = "returns"
    await made.apply(create)
    create.options["topic"], create.agent = "more", "a"
    await refused(made, create, errors.INVALID_CONFIG)


async def test_secrets_are_stored_and_never_told(made: Catalog) -> None:
    await made.logical()
    request = catalog.CreatePhysicalSourceRequest(
        name="p", logical_source="lrb", type=catalog.SOURCE_TYPE_KAFKA, options=KAFKA, parser_options={"type": "JSON"}
    )
    created = await made.apply(request)
    sink_options = dict(KAFKA)
    sink = await made.apply(
        catalog.CreateSinkRequest(name="s", schema=schema_of(), type=catalog.SINK_TYPE_KAFKA, options=sink_options)
    )
    assert created.options["sasl_password"] == sink.options["sasl_password"] == "[redacted]"
    (row,) = await made.rows(schema.physical_sources)
    assert json.loads(row.options)["sasl_password"] == SECRET
    told = [
        await made.read(lambda tx: sources.get_physical_source(tx, catalog.GetPhysicalSourceRequest(name="p"))),
        await made.read(lambda tx: sources.list_physical_sources(tx, catalog.ListPhysicalSourcesRequest())),
        await made.read(lambda tx: sinks.get_sink(tx, catalog.GetSinkRequest(name="s"))),
        await made.read(lambda tx: sinks.list_sinks(tx, catalog.ListSinksRequest())),
        await made.apply(catalog.DropPhysicalSourceRequest(name="p")),
        await made.apply(catalog.DropSinkRequest(name="s")),
    ]
    for row in await made.rows(schema.changes):
        assert SECRET.encode() not in (row.before or b"") + (row.after or b"")
    for message in told:
        assert SECRET.encode() not in message.SerializeToString()


async def test_sources_and_sinks_stay_while_queries_use_them_ended_ones_included(made: Catalog) -> None:
    await made.agent("a", slots=2)
    await made.logical()
    await made.physical(agent="a", name="p")
    await made.sink("s", agent="a")
    await made.query("q1", ["a"], sources=["p"], sinks=["s"])
    await made.query("q2", ["a"], sources=["p"], sinks=["s"])
    await made.end_query("q2", "FAILED")
    for request, reason in (
        (catalog.DropPhysicalSourceRequest(name="p"), errors.PHYSICAL_SOURCE_IN_USE),
        (catalog.DropSinkRequest(name="s"), errors.SINK_IN_USE),
    ):
        error = await refused(made, request, reason)
        assert "2 queries: q1 (PENDING), q2 (FAILED)" in error.message
        (detail,) = error.details
        assert [(v.type, v.subject, v.description) for v in detail.violations] == [  # type: ignore[attr-defined]
            ("query", "q1", "PENDING"),
            ("query", "q2", "FAILED"),
        ]


async def test_sinks_are_validated_created_and_dropped(made: Catalog) -> None:
    await made.agent("a")
    create = catalog.CreateSinkRequest(name="S", schema=schema_of(), agent="a", type=catalog.SINK_TYPE_FILE)
    await refused(made, create, errors.INVALID_CONFIG)
    create.options["file_path"] = "/out.csv"
    sink = await made.apply(create)
    assert (sink.name, sink.agent) == ("s", "a")
    await refused(made, create, errors.ALREADY_EXISTS)
    await refused(made, catalog.DropSinkRequest(name="s", uid="sink-x"), errors.UID_MISMATCH)
    await refused(made, catalog.DropSinkRequest(name="t"), errors.SINK_NOT_FOUND)
    assert await made.apply(catalog.DropSinkRequest(name="t", allow_missing=True)) is None
    assert (await made.apply(catalog.DropSinkRequest(name="s"))).uid == sink.uid
    void = await made.sink("v", type_=catalog.SINK_TYPE_VOID)
    assert void.agent == ""


async def test_lists_filter_by_type_agent_logical_source_and_prefix(made: Catalog) -> None:
    for name in ("a", "b"):
        await made.agent(name)
    await made.logical("l_1")
    await made.logical("lx1")
    await made.physical("l_1", "a", "p1")
    await made.physical("l_1", "b", "p2")
    await made.physical("lx1", "a", "p3")
    await made.sink("s1", "a")
    await made.sink("s2", type_=catalog.SINK_TYPE_VOID)

    async def physical(**filters: object) -> list[str]:
        request = catalog.ListPhysicalSourcesRequest(**filters)  # type: ignore[arg-type]
        found = await made.read(lambda tx: sources.list_physical_sources(tx, request))
        return [source.name for source in found.physical_sources]

    async def sink_names(**filters: object) -> list[str]:
        request = catalog.ListSinksRequest(**filters)  # type: ignore[arg-type]
        return [sink.name for sink in (await made.read(lambda tx: sinks.list_sinks(tx, request))).sinks]

    assert await physical(logical_source="L_1") == ["p1", "p2"]
    assert await physical(agent="a") == ["p1", "p3"]
    assert await physical(type=catalog.SOURCE_TYPE_TCP) == []
    assert await sink_names(type=catalog.SINK_TYPE_VOID) == ["s2"]
    assert await sink_names(agent="a") == ["s1"]
    prefix = catalog.ListLogicalSourcesRequest(name_prefix="L_")
    found = await made.read(lambda tx: sources.list_logical_sources(tx, prefix))
    assert [source.name for source in found.logical_sources] == ["l_1"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
async def test_pages_hold_every_row_once_in_order(made: Catalog, size: int) -> None:
    names = sorted(f"s{number}" for number in range(7))
    for name in reversed(names):
        await made.sink(name, type_=catalog.SINK_TYPE_VOID)
    seen: list[str] = []
    request = catalog.ListSinksRequest(page_size=size)
    while True:
        found = await made.read(lambda tx: sinks.list_sinks(tx, request))
        seen += [sink.name for sink in found.sinks]
        if not found.next_page_token:
            break
        request.page_token = found.next_page_token
    assert seen == names


async def test_a_page_token_is_good_for_its_own_call_only(made: Catalog) -> None:
    for name in ("a", "b", "c"):
        await made.sink(name, type_=catalog.SINK_TYPE_VOID)
        await made.logical(name)
    token = (await made.read(lambda tx: sinks.list_sinks(tx, catalog.ListSinksRequest(page_size=1)))).next_page_token
    other_size = catalog.ListSinksRequest(page_size=2, page_token=token)
    assert [s.name for s in (await made.read(lambda tx: sinks.list_sinks(tx, other_size))).sinks] == ["b", "c"]
    for forged in (
        catalog.ListSinksRequest(page_token=token, name_prefix="a"),
        catalog.ListSinksRequest(page_token=token[:-2] + "xx"),
        catalog.ListSinksRequest(page_token="A" * 2048),
        catalog.ListSinksRequest(page_token="%%%"),
        catalog.ListSinksRequest(page_token="é"),
        catalog.ListLogicalSourcesRequest(page_token=token),
    ):
        with pytest.raises(HeadgateError) as caught:
            await made.read(partial(_list, forged))
        assert caught.value.reason is errors.INVALID_PAGE_TOKEN


def _list(request: catalog.ListSinksRequest | catalog.ListLogicalSourcesRequest, tx: Tx) -> object:
    if isinstance(request, catalog.ListSinksRequest):
        return sinks.list_sinks(tx, request)
    return sources.list_logical_sources(tx, request)
