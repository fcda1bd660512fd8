"""A client that knows nothing but the server's reflection creates a cluster and a query, and can read its errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.api.kit import Server, running_agent, running_coordinator, wait_until
from tests.servers.grpcurl import Grpcurl

pytestmark = pytest.mark.slow

CATALOG = "headgate.catalog.v1"
COLUMNS = {"fields": [{"name": "highway", "type": "INT32"}, {"name": "speed", "type": "FLOAT64"}]}


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Server]:
    with running_coordinator(tmp_path) as server:
        yield server


def call(grpcurl: Grpcurl, server: Server, method: str, request: object) -> Any:
    done = grpcurl.call(server.address, f"{CATALOG}.{method}", request)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_everything_is_created_from_nothing_but_reflection(
    coordinator: Server, grpcurl: Grpcurl, tmp_path: Path
) -> None:
    services = grpcurl.run("-plaintext", coordinator.address, "list").stdout.split()
    assert {f"{CATALOG}.{name}Service" for name in ("Agent", "Source", "Sink", "Query", "Statement", "Watch")} <= set(
        services
    )
    described = grpcurl.run("-plaintext", coordinator.address, "describe", f"{CATALOG}.CreateSinkRequest").stdout
    assert "SinkType type = 4" in described
    call(grpcurl, coordinator, "AgentService/CreateAgent", {"name": "spare", "address": "spare:7410", "slots": 2})
    with running_agent(tmp_path, "edge", coordinator.address) as agent:
        declared = call(grpcurl, coordinator, "AgentService/GetAgent", {"name": "edge"})["agent"]
        assert declared["address"] == agent.address
        schema = {"name": "traffic", "schema": COLUMNS}
        call(grpcurl, coordinator, "SourceService/CreateLogicalSource", schema)
        source = {
            "name": "p",
            "logical_source": "traffic",
            "agent": "edge",
            "type": "SOURCE_TYPE_FILE",
            "options": {"file_path": "/data/in.csv"},
        }
        call(grpcurl, coordinator, "SourceService/CreatePhysicalSource", source)
        sink = {
            "name": "out",
            "schema": COLUMNS,
            "agent": "edge",
            "type": "SINK_TYPE_FILE",
            "options": {"file_path": "/data/out.csv"},
        }
        call(grpcurl, coordinator, "SinkService/CreateSink", sink)
        wait_until(
            lambda: (
                call(grpcurl, coordinator, "AgentService/GetAgent", {"name": "edge"})["agent"]["state"]
                == "AGENT_STATE_ACTIVE"
            )
        )
        query = {"name": "q", "statement": "SELECT highway, speed FROM traffic WHERE speed < 40", "sink": "out"}
        created = call(grpcurl, coordinator, "QueryService/CreateQuery", query)["query"]
        assert created["state"] == "QUERY_STATE_PENDING"
        wait_until(
            lambda: (
                call(grpcurl, coordinator, "QueryService/GetQuery", {"name": "q"})["query"]["state"]
                == "QUERY_STATE_RUNNING"
            )
        )
        fragments = call(grpcurl, coordinator, "QueryService/ListFragments", {"query": "q"})["fragments"]
        assert {fragment["agent"] for fragment in fragments} == {"edge"}


def test_reasons_positions_and_references_are_readable(coordinator: Server, grpcurl: Grpcurl) -> None:
    """What grpcurl prints is what a person sees: no base64, no unknown types."""
    schema = {"name": "traffic", "schema": COLUMNS}
    call(grpcurl, coordinator, "SourceService/CreateLogicalSource", schema)
    kafka = {
        "name": "p",
        "logical_source": "traffic",
        "type": "SOURCE_TYPE_KAFKA",
        "options": {"bootstrap_servers": "b:9092", "topic": "t"},
        "parser_options": {"type": "JSON"},
    }
    call(grpcurl, coordinator, "SourceService/CreatePhysicalSource", kafka)

    def refused(method: str, request: object) -> str:
        done = grpcurl.call(coordinator.address, f"{CATALOG}.{method}", request)
        assert done.returncode != 0
        assert "@value" not in done.stderr
        assert "base64" not in done.stderr.lower()
        return done.stderr

    statement = refused("StatementService/ExecuteStatement", {"statement": "SHOW SINKS;\nDROP SNIK x"})
    assert "Code: InvalidArgument" in statement
    assert '"reason": "PARSE_ERROR"' in statement
    assert '"line": 2' in statement
    assert '"column": 6' in statement
    assert "DROP SNIK x\\n     ^" in statement
    in_use = refused("SourceService/DropLogicalSource", {"name": "traffic"})
    assert "Code: FailedPrecondition" in in_use
    assert '"reason": "LOGICAL_SOURCE_IN_USE"' in in_use
    assert "is in use by 1 physical source: p (KAFKA)" in in_use
    assert '"subject": "p"' in in_use
    bundle = refused("StatementService/ApplyBundle", {"items": [{"statement": "DROP SINK a"}]})
    assert '"reason": "SINK_NOT_FOUND"' in bundle
    assert '"item": "0"' in bundle
    assert "headgate.catalog.v1.StatementFailure" in bundle
    rules = refused("SinkService/CreateSink", {"name": "s"})
    assert '"reason": "INVALID_ARGUMENT"' in rules
    assert '"field": "schema"' in rules


def test_health_and_metrics_are_served(coordinator: Server, grpcurl: Grpcurl) -> None:
    service = {"service": f"{CATALOG}.QueryService"}
    wait_until(
        lambda: (
            json.loads(grpcurl.call(coordinator.address, "grpc.health.v1.Health/Check", service).stdout)
            == {"status": "SERVING"}
        )
    )
    assert coordinator.get("/health")[0] == 200
    call(grpcurl, coordinator, "AgentService/CreateAgent", {"name": "a", "address": "h:1"})
    _, metrics = coordinator.get("/metrics")
    for line in (
        'headgate_agents{state="UNREACHABLE"} 1.0',
        'headgate_queries{state="RUNNING"} 0.0',
        "headgate_reconcile_backlog",
        "headgate_reconcile_age_seconds",
        "headgate_poll_round_trip_seconds",
        "headgate_catalog_commits_total",
        "headgate_catalog_retries_total",
        "headgate_leading 1.0",
        'headgate_rpc_total{method="headgate.catalog.v1.AgentService/CreateAgent"} 1.0',
    ):
        assert line in metrics, line
