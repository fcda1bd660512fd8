"""Queries that cannot start: what will never work ends FAILED in seconds, with a reason; what may pass waits, and says
for whom. One cluster for all of them, whose deployment deadline is far away.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headgate.catalog import v1 as catalog
from tests.e2e.queries.kit import QueryCluster, query_cluster, until

pytestmark = pytest.mark.timeout(600)

# Seconds; far below the deployment deadline, and far above what it takes on a quiet machine.
SOON = 60.0
COLUMNS = "(id INT64 NOT NULL, v INT64)"
GENERATOR = "TYPE GENERATOR ON a SET(5 AS `SOURCE`.rate)"
VOID = "TYPE VOID"
REALTIME = " WITH (mode = 'realtime')"
AT_LEAST_ONCE = " WITH (delivery = 'at_least_once')"
# What is found out before an engine is asked.
LATEST = " WITH (start = 'latest')"
EDGES = " WITH (edges = 'kafka', bootstrap_servers = '{nobody}')"
EDGES_TLS = f"{EDGES[:-1]}, security_protocol = 'SSL', ssl_ca_location = '/no/such/ca.pem')"


@dataclass(frozen=True)
class Case:
    """A query of its name, from a source to a sink; what it says when it waits or has failed."""

    name: str
    says: tuple[str, ...]
    source: str = GENERATOR
    sink: str = VOID
    settings: str = ""

    def statements(self, nobody: str) -> list[str]:
        port = nobody.rpartition(":")[2]
        return [
            f"CREATE LOGICAL SOURCE {self.name} {COLUMNS}",
            f"CREATE PHYSICAL SOURCE FOR {self.name} {self.source.format(nobody=nobody, port=port)}",
            f"CREATE SINK {self.name} (id INT64, v INT64) {self.sink.format(nobody=nobody)}",
            f"CREATE QUERY {self.name} AS SELECT id, v FROM {self.name} INTO {self.name}"
            f"{self.settings.format(nobody=nobody)}",
        ]


def topic(name: str, more: str = "") -> str:
    return f"TYPE TOPIC SET('{name}' AS `SOURCE`.topic{more})"


def file(path: str) -> str:
    return f"TYPE FILE ON a SET('{path}' AS `SOURCE`.file_path, 'CSV' AS PARSER.`TYPE`)"


def tcp(port: str, more: str = "") -> str:
    return f"TYPE TCP ON a SET('127.0.0.1' AS `SOURCE`.socket_host, {port} AS `SOURCE`.socket_port{more})"


def kafka(word: str, more: str = "") -> str:
    return f"TYPE KAFKA SET('{{nobody}}' AS `{word}`.bootstrap_servers, 't' AS `{word}`.topic{more})"


def tls(word: str) -> str:
    return f", 'SSL' AS `{word}`.security_protocol, '/no/such/ca.pem' AS `{word}`.ssl_ca_location"


def into(name: str) -> str:
    return f"TYPE TOPIC SET('{name}' AS `SINK`.topic)"


FINAL = (
    Case("topic_source", ("SOURCE_MISSING", "no topic nowhere"), topic("nowhere")),
    Case(
        "topic_over_kafka",
        ("KAFKA_TOPIC_MISSING", "no topic nowhere"),
        topic("nowhere", ", 'kafka' AS `SOURCE`.transport"),
    ),
    Case("topic_sink", ("SINK_MISSING", "no topic 'nowhere'"), sink=into("nowhere")),
    Case("topic_realtime", ("KAFKA_TOPIC_MISSING", "nowhere"), topic("nowhere"), into("narrow"), REALTIME),
    Case("slots", ("TOO_FEW_SLOTS", "needs 8 task slots"), topic("wide"), into("narrow"), REALTIME),
    Case("kafka_tls", ("KAFKA_REFUSED", "/no/such/ca.pem"), kafka("SOURCE", tls("SOURCE"))),
    Case("latest_topic", ("SOURCE_MISSING", "no topic nowhere"), topic("nowhere"), settings=LATEST),
    Case(
        "latest_over_kafka",
        ("SOURCE_MISSING", "no topic nowhere"),
        topic("nowhere", ", 'kafka' AS `SOURCE`.transport"),
        settings=LATEST,
    ),
    Case("latest_tls", ("KAFKA_REFUSED", "ssl.ca.location"), kafka("SOURCE", tls("SOURCE")), settings=LATEST),
    Case("kafka_sink_tls", ("SINK_REFUSED", "ssl.ca.location"), sink=kafka("SINK", tls("SINK"))),
    # Agents and the engine find it out at the same time: EDGE_REFUSED or KAFKA_REFUSED.
    Case("kafka_edges_tls", ("_REFUSED", "__headgate.edge."), settings=EDGES_TLS),
    Case("file_missing", ("SOURCE_MISSING", "nowhere.csv"), file("nowhere.csv")),
    Case("file_pattern", ("SOURCE_MISSING", "nowhere*.csv"), file("nowhere*.csv")),
    Case("file_outside", ("TARGET_FORBIDDEN", "/etc/passwd"), file("/etc/passwd")),
    Case("tcp_target", ("TARGET_FORBIDDEN", "127.0.0.1:22"), tcp("22")),
    Case(
        "tcp_once",
        ("SOURCE_UNREACHABLE", "{nobody}: Connection refused"),
        tcp("{port}", ", false AS `SOURCE`.reconnect"),
    ),
    Case(
        "file_sink",
        ("SINK_MISSING", "no/such"),
        sink="TYPE FILE ON a SET('no/such/out.csv' AS `SINK`.file_path)",
    ),
)
PASSING = (
    Case("kafka_away", ("asks the brokers of topic t, {nobody}",), kafka("SOURCE")),
    Case("latest_away", ("asks the brokers of topic t, {nobody}",), kafka("SOURCE"), settings=LATEST),
    Case("kafka_sink_away", ("topic t of Kafka at {nobody}",), sink=kafka("SINK")),
    Case("kafka_direct_away", ("asks the brokers of topic t, {nobody}",), sink=kafka("SINK"), settings=AT_LEAST_ONCE),
    Case("kafka_edges_away", ("__headgate.edge.", "{nobody}"), settings=EDGES),
    Case("kafka_realtime_away", ("asks for its topics",), kafka("SOURCE"), into("narrow"), REALTIME),
)


@pytest.fixture(scope="module")
def nobody() -> Iterator[str]:
    """An address that is taken, and where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, nobody: str, spark_kafka_jars: list[Path]
) -> Iterator[QueryCluster]:
    """Every query is created when the engine is warm."""
    with query_cluster(
        tmp_path_factory.mktemp("cannot"),
        engine_options=("--set", "timings.brokers=3s"),
        agent_options=("--set", f"fragments.tcp_targets={nobody}"),
    ) as made:
        warm = Case("warm", ())
        for statement in ("CREATE TOPIC wide PARTITIONS 8", "CREATE TOPIC narrow", *warm.statements(nobody)):
            made.sql(statement)
        made.wait("warm", "RUNNING", seconds=300)
        yield made


@pytest.fixture(scope="module")
def created(cluster: QueryCluster, nobody: str) -> float:
    for case in (*FINAL, *PASSING):
        for statement in case.statements(nobody):
            cluster.sql(statement, SOON)
    return time.monotonic()


@pytest.mark.parametrize("case", FINAL, ids=lambda case: case.name)
def test_what_will_never_work_ends_failed_in_seconds_with_its_reason(
    cluster: QueryCluster, created: float, nobody: str, case: Case
) -> None:
    left = max(1.0, created + SOON - time.monotonic())
    query = cluster.wait(case.name, "FAILED", seconds=left)
    print(f"{query.failure.reason}: {query.failure.last_error}")
    for word in case.says:
        assert word.format(nobody=nobody) in query.failure.last_error
    assert "\n" not in query.failure.message


@pytest.mark.parametrize("case", PASSING, ids=lambda case: case.name)
def test_what_may_pass_says_within_seconds_whom_it_waits_for(
    cluster: QueryCluster, created: float, nobody: str, case: Case
) -> None:
    def told() -> bool:
        query = cluster.query(case.name)
        assert query.state == catalog.QUERY_STATE_DEPLOYING
        return all(word.format(nobody=nobody) in query.waiting.message for word in case.says)

    until(
        told,
        f"{case.name} to say so",
        max(1.0, created + SOON - time.monotonic()),
        lambda: str(cluster.query(case.name)),
    )


@pytest.mark.parametrize("case", PASSING, ids=lambda case: case.name)
def test_a_query_whose_cluster_is_gone_can_be_dropped(cluster: QueryCluster, created: float, case: Case) -> None:
    cluster.sql(f"DROP QUERY {case.name}")

    def gone() -> bool:
        queries = cluster.ask(catalog.ListQueriesRequest(page_size=100)).queries
        return case.name not in {query.name for query in queries}

    until(gone, f"{case.name} to be gone", SOON, lambda: str(cluster.query(case.name)))
