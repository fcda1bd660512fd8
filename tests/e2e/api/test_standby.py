"""Two coordinators on one Postgres: the one that does not lead answers reads and says who does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import sink_service_pb2_grpc
from headgate_common.errors import HeadgateError
from tests.e2e.api.kit import Client, running_coordinator
from tests.servers.process import ServerDied

pytestmark = pytest.mark.slow

SINK = catalog.CreateSinkRequest(
    name="s", schema=catalog.Schema(fields=[catalog.Field(name="x", type="INT32")]), type=catalog.SINK_TYPE_VOID
)


def test_a_standby_answers_reads_and_names_the_leader(tmp_path: Path, postgres_url: str) -> None:
    with (
        running_coordinator(tmp_path, postgres_url, name="first") as first,
        running_coordinator(tmp_path, postgres_url, name="second") as second,
    ):
        leader, standby = Client(first.address), Client(second.address)
        leader(SINK)
        assert standby(catalog.GetSinkRequest(name="s")).sink.name == "s"
        assert standby(catalog.ExecuteStatementRequest(statement="SHOW SINKS")).results
        with pytest.raises(HeadgateError) as caught:
            standby(catalog.DropSinkRequest(name="s"))
        assert caught.value.reason.name == "NOT_LEADER"
        assert caught.value.metadata["leader"] == first.address
        stub = sink_service_pb2_grpc.SinkServiceStub(standby.channel)
        with pytest.raises(grpc.RpcError) as raw:
            stub.DropSink(catalog.DropSinkRequest(name="s"), timeout=30)
        error: Any = raw.value
        trailers = dict(error.trailing_metadata())
        assert trailers["headgate-leader"] == first.address
        assert second.ready()
        leader.close()
        standby.close()


def test_a_second_coordinator_on_an_sqlite_file_is_refused(tmp_path: Path) -> None:
    with (
        running_coordinator(tmp_path, name="first"),
        pytest.raises(ServerDied, match="another coordinator uses the catalog"),
        running_coordinator(tmp_path, name="second"),
    ):
        pass


def test_it_drains_and_gives_the_leadership_up(tmp_path: Path, postgres_url: str) -> None:
    """After an orderly stop nobody waits for a session to end: the next term begins at once."""
    with running_coordinator(tmp_path, postgres_url, "--set", "timings.leader_ttl=1h", name="first") as first:
        client = Client(first.address)
        client(SINK)
        client.close()
    assert "drained" in (tmp_path / "first.log").read_text()
    with running_coordinator(tmp_path, postgres_url, name="second") as second:
        client = Client(second.address)
        assert client(catalog.DropSinkRequest(name="s")).sink.name == "s"
        client.close()
