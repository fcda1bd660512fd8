"""Whatever is sent: a typed error, nothing stored, and the server goes on answering."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from tests.e2e.api.kit import Client, Server, running_coordinator

pytestmark = pytest.mark.slow

SCHEMA = catalog.Schema(fields=[catalog.Field(name="x", type="INT32")])
MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def coordinator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_coordinator(
        tmp_path_factory.mktemp("hostile"), "", "--set", "server.limits.message_size=4MiB"
    ) as server:
        yield server


@pytest.fixture
def client(coordinator: Server) -> Iterator[Client]:
    made = Client(coordinator.address)
    yield made
    made.close()


def refused(client: Client, request: Any, reason: str) -> HeadgateError:
    """The call is refused with that reason, without effect, and the server answers the next."""
    before = client(catalog.GetSnapshotRequest())
    with pytest.raises(HeadgateError) as caught:
        client(request)
    assert caught.value.reason.name == reason, str(caught.value)
    assert len(caught.value.message) < 4096
    assert client(catalog.GetSnapshotRequest()) == before
    return caught.value


def test_an_oversized_message_is_refused(client: Client) -> None:
    for size in (5 * MEBIBYTE, 40 * MEBIBYTE):
        request = catalog.ExecuteStatementRequest(statement="SHOW SINKS -- " + "x" * size)
        refused(client, request, "MESSAGE_TOO_LARGE")


def test_a_statement_that_is_too_long_or_too_deep_is_refused(client: Client) -> None:
    long = catalog.ExecuteStatementRequest(statement="SHOW SINKS -- " + "x" * (2 * MEBIBYTE))
    refused(client, long, "STATEMENT_TOO_LARGE")
    deep = "SELECT " + "(" * 50_000 + "1" + ")" * 50_000 + " FROM l INTO s"
    refused(client, catalog.CreateQueryRequest(statement=deep), "STATEMENT_TOO_LARGE")
    many = catalog.ExecuteStatementRequest(statement="SHOW SINKS;" * 10_000)
    refused(client, many, "STATEMENT_TOO_LARGE")


def test_invalid_utf8_is_refused(client: Client) -> None:
    body = catalog.GetSinkRequest(name="abc").SerializeToString().replace(b"abc", b"\xff\xfe\xfd")
    with pytest.raises(HeadgateError) as caught:
        client.raw("/headgate.catalog.v1.SinkService/GetSink", body)
    assert caught.value.reason.name == "INVALID_ARGUMENT"


def test_bytes_that_are_no_message_are_refused(client: Client) -> None:
    for body in (b"\xff" * 100, b"\x0a\xff\xff\xff\xff\x0f", b"\x07"):
        with pytest.raises(HeadgateError) as caught:
            client.raw("/headgate.catalog.v1.SinkService/CreateSink", body)
        assert caught.value.reason.name == "INVALID_ARGUMENT"


def test_nul_characters_are_refused_wherever_they_stand(client: Client) -> None:
    for request in (
        catalog.CreateAgentRequest(name="a", address="h:1", zone="z\0"),
        catalog.CreateAgentRequest(name="a", address="h:1", labels={"k": "v\0"}),
        catalog.CreateAgentRequest(name="a\0", address="h:1"),
        catalog.CreateSinkRequest(name="s", schema=SCHEMA, type=catalog.SINK_TYPE_VOID, request_id="r\0"),
        catalog.CreateSinkRequest(name="s", schema=SCHEMA, type=catalog.SINK_TYPE_FILE, options={"file_path": "/a\0b"}),
        catalog.CreateLogicalSourceRequest(
            name="l", schema=catalog.Schema(fields=[catalog.Field(name="x\0", type="INT32")])
        ),
        catalog.ExecuteStatementRequest(statement="SHOW SINKS\0"),
        catalog.ListSinksRequest(name_prefix="a\0"),
        catalog.ApplyBundleRequest(items=[catalog.BundleItem(statement="DROP SINK a\0")]),
    ):
        refused(client, request, "INVALID_ARGUMENT")


def test_ten_thousand_columns_are_refused(client: Client) -> None:
    wide = catalog.Schema(fields=[catalog.Field(name=f"c{number}", type="INT32") for number in range(10_000)])
    refused(client, catalog.CreateLogicalSourceRequest(name="wide", schema=wide), "INVALID_SCHEMA")
    columns = ", ".join(f"c{number} INT32" for number in range(10_000))
    statement = f"CREATE LOGICAL SOURCE wide ({columns})"
    refused(client, catalog.ExecuteStatementRequest(statement=statement), "INVALID_SCHEMA")
    nested = "ARRAY<" * 1_000 + "INT32" + ">" * 1_000
    deep = catalog.Schema(fields=[catalog.Field(name="x", type=nested)])
    refused(client, catalog.CreateLogicalSourceRequest(name="deep", schema=deep), "INVALID_ARGUMENT")


def test_negative_and_enormous_sizes_are_refused(client: Client) -> None:
    for request in (
        catalog.ListSinksRequest(page_size=-1),
        catalog.ListSinksRequest(page_size=1_000_000),
        catalog.CreateAgentRequest(name="a", address="h:1", slots=4_000_000_000),
        catalog.ApplyBundleRequest(items=[catalog.BundleItem(statement="DROP SINK a")] * 1_001),
    ):
        refused(client, request, "INVALID_ARGUMENT")
    deadline = catalog.CreateQueryRequest(statement="SELECT 1")
    deadline.deployment_deadline.seconds = -5
    refused(client, deadline, "INVALID_ARGUMENT")


def test_numbers_that_an_enum_does_not_have_are_refused_by_the_path_of_their_field(client: Client) -> None:
    nonsense: Any = 999
    item = catalog.BundleItem(drop_query=catalog.DropQueryRequest(name="q", mode=nonsense))
    for request, path in (
        (catalog.ListQueriesRequest(state=nonsense), "state"),
        (catalog.ListSinksRequest(type=nonsense), "type"),
        (catalog.StopQueryRequest(name="q", mode=nonsense), "mode"),
        (catalog.GetSnapshotRequest(kinds=[catalog.RESOURCE_KIND_SINK, nonsense]), "kinds[1]"),
        (catalog.ApplyBundleRequest(items=[item]), "items[0].drop_query.mode"),
    ):
        error = refused(client, request, "INVALID_ARGUMENT")
        assert error.metadata["field"] == path


def test_forged_page_tokens_are_refused(client: Client) -> None:
    for name in ("t1", "t2"):
        client(catalog.CreateSinkRequest(name=name, schema=SCHEMA, type=catalog.SINK_TYPE_VOID))
    token = client(catalog.ListSinksRequest(page_size=1)).next_page_token
    assert token
    for forged in (token + "A", token[1:], "A" * 2048, "../../etc/passwd", "' OR 1=1 --"):
        refused(client, catalog.ListSinksRequest(page_size=1, page_token=forged), "INVALID_PAGE_TOKEN")
    refused(client, catalog.ListAgentsRequest(page_token=token), "INVALID_PAGE_TOKEN")
    refused(client, catalog.ListSinksRequest(page_token="x" * 3000), "INVALID_ARGUMENT")


def test_a_replayed_request_id_with_another_body_is_refused(client: Client) -> None:
    first = catalog.CreateSinkRequest(name="once", schema=SCHEMA, type=catalog.SINK_TYPE_VOID, request_id="replay")
    answer = client(first)
    assert client(first) == answer
    first.name = "twice"
    refused(client, first, "REQUEST_ID_CONFLICT")
    refused(client, catalog.DropSinkRequest(name="once", request_id="replay"), "REQUEST_ID_CONFLICT")


def test_names_that_are_not_names_are_refused(client: Client) -> None:
    for name in ("../x", "a b", "é", "a" * 64, "1a", "'; DROP TABLE agents; --", "-a", "\u202e"):
        request = catalog.CreateSinkRequest(name=name, schema=SCHEMA, type=catalog.SINK_TYPE_VOID)
        refused(client, request, "INVALID_NAME")


def test_a_pattern_cannot_make_the_server_slow(client: Client) -> None:
    client(catalog.CreateSinkRequest(name="a" * 63, schema=SCHEMA, type=catalog.SINK_TYPE_VOID))
    pattern = "%a" * 200 + "b"
    shown = client(catalog.ExecuteStatementRequest(statement=f"SHOW SINKS LIKE '{pattern}'"))
    assert not shown.results[0].table.rows


def test_memory_stays_bounded(client: Client, coordinator: Server) -> None:
    """A hundred large refusals leave the process no larger than a few have."""

    def resident() -> int:
        status = Path(f"/proc/{coordinator.process.pid}/status").read_text()
        (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
        return int(line.split()[1]) * 1024

    request = catalog.ExecuteStatementRequest(statement="SHOW SINKS -- " + "x" * (5 * MEBIBYTE))
    wide = catalog.CreateLogicalSourceRequest(
        name="wide", schema=catalog.Schema(fields=[catalog.Field(name=f"c{n}", type="INT32") for n in range(10_000)])
    )

    def provoke(times: int) -> None:
        for _ in range(times):
            for hostile in (request, wide):
                with pytest.raises(HeadgateError):
                    client(hostile)

    provoke(10)
    before = resident()
    provoke(50)
    assert resident() - before < 64 * MEBIBYTE
