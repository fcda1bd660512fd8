"""KAFKA sources and sinks that name no brokers get the configured ones, and others are left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.parse import parse_statements
from headgate_coordinator.sql.statements import RequestStatement
from tests.unit.entities.kit import RULES, Catalog

SCHEMA = catalog.Schema(fields=[catalog.Field(name="a", type="INT32")])


def source(**options: str) -> catalog.CreatePhysicalSourceRequest:
    return catalog.CreatePhysicalSourceRequest(
        name="p",
        logical_source="l",
        type=catalog.SOURCE_TYPE_KAFKA,
        options={"topic": "t", **options},
        parser_options={"type": "JSON"},
    )


def sink(**options: str) -> catalog.CreateSinkRequest:
    return catalog.CreateSinkRequest(
        name="s", schema=SCHEMA, type=catalog.SINK_TYPE_KAFKA, options={"topic": "t", **options}
    )


@pytest.fixture
async def configured() -> Catalog:
    made = Catalog(replace(RULES, kafka_brokers="one:1,two:2"))
    await made.apply(catalog.CreateLogicalSourceRequest(name="l", schema=SCHEMA))
    return made


async def test_the_configured_brokers_stand_in_where_none_are_named(configured: Catalog) -> None:
    request = source()
    assert (await configured.apply(request)).options["bootstrap_servers"] == "one:1,two:2"
    assert (await configured.apply(sink())).options["bootstrap_servers"] == "one:1,two:2"
    assert "bootstrap_servers" not in request.options


@pytest.mark.parametrize("name", ["bootstrap_servers", "BOOTSTRAP", "bootstrap.servers"])
async def test_brokers_that_are_named_win(configured: Catalog, name: str) -> None:
    assert (await configured.apply(source(**{name: "own:3"}))).options["bootstrap_servers"] == "own:3"
    assert (await configured.apply(sink(**{name: "own:3"}))).options["bootstrap_servers"] == "own:3"


async def test_other_types_are_left_alone(configured: Catalog) -> None:
    made = await configured.apply(catalog.CreateSinkRequest(name="v", schema=SCHEMA, type=catalog.SINK_TYPE_VOID))
    assert "bootstrap_servers" not in made.options


async def test_without_a_default_brokers_have_to_be_named() -> None:
    with pytest.raises(HeadgateError, match="BOOTSTRAP_SERVERS"):
        await Catalog().apply(sink())


def test_a_statement_need_not_name_brokers_either() -> None:
    text = "CREATE SINK s (a INT32) TYPE Kafka SET('t' AS `SINK`.topic)"
    (made,) = parse_statements(text, StatementLimits(kafka_brokers="one:1"))
    assert isinstance(made, RequestStatement)
    assert made.request == sink(bootstrap_servers="one:1")
    with pytest.raises(HeadgateError, match="BOOTSTRAP_SERVERS"):
        parse_statements(text)
