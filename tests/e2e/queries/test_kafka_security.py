"""Sources, sinks and edges on a Kafka cluster that wants passwords or certificates and gives each user few rights: all
of them are let in with what the docs ask for, those who are not say so, and nobody tells a secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.e2e.queries.kit import QueryCluster, json_lines, query_cluster, until
from tests.e2e.queries.topics import committed
from tests.servers.secure_kafka import SecureKafka

pytestmark = [
    *(pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(900)),
    pytest.mark.usefixtures("spark_kafka_jars"),
]

COLUMNS = "(id INT64 NOT NULL, v INT64)"
ROWS = [{"id": number, "v": number * number} for number in range(50)]
# Queries from Kafka to a topic of their own name there.
ON_KAFKA = ("exact", "loose", "instant")
LOOSE = "WITH (delivery = at_least_once)"
WRONG = "another-password"
# Where secrets are kept.
KEPT = ("catalog.db", "a/fragments")
SOON = 120.0
# A realtime run holds a task slot. Spark's own loggers say more than they do otherwise.
ENGINE_OPTIONS = ("--master", "local[3]", "--set", "reserved_slots=2", "--set", "spark.log_level=INFO")
# What each part needs, as docs/sources-and-sinks.md and docs/modes.md have it.
RIGHTS = (
    ("TOPIC", "in", ("READ", "DESCRIBE")),
    ("TOPIC", "exact", ("READ", "WRITE", "DESCRIBE")),
    ("TOPIC", "loose", ("WRITE", "DESCRIBE")),
    ("TOPIC", "instant", ("WRITE", "DESCRIBE")),
    ("TOPIC", "__headgate.edge.", ("CREATE", "DELETE", "DESCRIBE", "READ", "WRITE")),
    ("TRANSACTIONAL_ID", "headgate.", ("WRITE", "DESCRIBE")),
    ("GROUP", "headgate.", ("READ", "DELETE")),
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, secure_kafka: SecureKafka) -> Iterator[QueryCluster]:
    for kind, prefix, operations in RIGHTS:
        secure_kafka.allow(kind, prefix, *operations)
    names = ("in", "forbidden", *ON_KAFKA)
    admin = AdminClient({"bootstrap.servers": secure_kafka.bootstrap})
    for made in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        made.result(30)
    with query_cluster(tmp_path_factory.mktemp("secure"), engine_options=ENGINE_OPTIONS) as made:
        yield made


def send(kafka: SecureKafka) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for row in ROWS:
        producer.produce("in", json.dumps(row).encode())
    assert producer.flush(30) == 0


def options(given: Mapping[str, str]) -> str:
    """As SQL has them: a backslash begins an escape there."""
    return ", ".join(f"{name} = '{value.replace(chr(92), chr(92) * 2)}'" for name, value in given.items())


def create(
    cluster: QueryCluster, name: str, source: Mapping[str, str] | str, sink: Mapping[str, str] | str, settings: str
) -> str:
    """A query of that name; answers its SELECT. Sources and sinks with options are on Kafka."""
    if not isinstance(source, str):
        source = f"TYPE KAFKA WITH ({options(source)}, parser.type = 'JSON')"
    if not isinstance(sink, str):
        sink = f"TYPE KAFKA WITH ({options(sink)})"
    query = f"SELECT id, v FROM {name} INTO {name} {settings}"
    for statement in (
        f"CREATE LOGICAL SOURCE {name} {COLUMNS}",
        f"CREATE PHYSICAL SOURCE FOR {name} {source}",
        f"CREATE SINK {name} (id INT64, v INT64) {sink}",
        f"CREATE QUERY {name} AS {query}",
    ):
        cluster.sql(statement)
    return query


def from_file(cluster: QueryCluster, name: str) -> tuple[str, str]:
    """A source and a sink."""
    source, sink = cluster.files / "in.csv", cluster.files / f"{name}.json"
    source.write_text("".join(f"{row['id']},{row['v']}\n" for row in ROWS))
    return (
        f"TYPE FILE ON a SET('{source}' AS `SOURCE`.file_path)",
        f"TYPE FILE ON a SET('{sink}' AS `SINK`.file_path, 'JSON' AS `SINK`.input_format)",
    )


def edges(given: Mapping[str, str]) -> str:
    return f"WITH (edges = 'kafka', {options(given)})"


@pytest.fixture(scope="module")
def created(cluster: QueryCluster, secure_kafka: SecureKafka) -> None:
    """Queries with all parts, each of which logs in in another way."""
    at = secure_kafka.options
    for name, source, sink, settings in (
        ("exact", at("SASL_PLAINTEXT", "PLAIN"), at("SASL_SSL", "SCRAM-SHA-512"), ""),
        (
            "loose",
            at("SSL", locked=True),
            at("SASL_PLAINTEXT", "SCRAM-SHA-256"),
            "start = 'latest', delivery = at_least_once",
        ),
        ("instant", at("SASL_SSL", "PLAIN"), at("SSL"), "mode = realtime"),
    ):
        settings = f"WITH ({settings})" if settings else ""
        create(cluster, name, source | {"topic": "in"}, sink | {"topic": name}, settings)
    create(cluster, "edged", *from_file(cluster, "edged"), edges(at("SASL_SSL", "SCRAM-SHA-256")))
    for query in ON_KAFKA:
        cluster.wait(query, "RUNNING", seconds=300)


@pytest.mark.usefixtures("created")
def test_every_part_is_let_in_with_the_rights_that_the_docs_ask_for(
    cluster: QueryCluster, secure_kafka: SecureKafka
) -> None:
    send(secure_kafka)
    cluster.wait("edged", "TERMINATED", seconds=300)
    assert json_lines(cluster.files / "edged.json") == ROWS

    def there(query: str) -> bool:
        cluster.wait(query, "RUNNING")
        return committed(secure_kafka.bootstrap, query) == ROWS

    for query in ON_KAFKA:
        until(lambda query=query: there(query), f"rows of {query}", SOON)  # type: ignore[misc]


def test_whoever_is_not_let_in_is_told_so_without_the_password(
    cluster: QueryCluster, secure_kafka: SecureKafka
) -> None:
    wrong = secure_kafka.options("SASL_PLAINTEXT", "SCRAM-SHA-512") | {"sasl_password": WRONG}
    right = secure_kafka.options("SASL_PLAINTEXT", "SCRAM-SHA-512")
    at_key = secure_kafka.options("SSL", locked=True) | {"ssl_key_password": WRONG}
    file, void = from_file(cluster, "none")[0], "TYPE VOID"
    cases = {
        "wrong_source": (wrong | {"topic": "in"}, void, "", "KAFKA_REFUSED"),
        "wrong_latest": (wrong | {"topic": "in"}, void, "WITH (start = 'latest')", "KAFKA_REFUSED"),
        "wrong_sink": (file, wrong | {"topic": "exact"}, "", "SINK_REFUSED"),
        "wrong_loose": (right | {"topic": "in"}, wrong | {"topic": "loose"}, LOOSE, "KAFKA_REFUSED"),
        # Whichever end of an edge comes first.
        "wrong_edges": (file, void, edges(wrong), "_REFUSED"),
        "wrong_key": (at_key | {"topic": "in"}, void, "", "KAFKA_REFUSED"),
        "without_rights": (right | {"topic": "forbidden"}, void, "", "KAFKA_REFUSED"),
    }
    for name, (source, sink, settings, _) in cases.items():
        create(cluster, name, source, sink, settings)
    for name, case in cases.items():
        failure = cluster.wait(name, "FAILED", seconds=SOON).failure
        assert case[-1] in failure.last_error, failure
        assert WRONG not in str(failure)


@pytest.mark.usefixtures("created")
def test_no_secret_is_told_or_written_but_where_it_is_kept(cluster: QueryCluster, secure_kafka: SecureKafka) -> None:
    """The catalog keeps them, and each agent those of the fragments that it has, in a file for its user alone."""
    told = [told_by(cluster, "export"), told_by(cluster, "export", "--format", "json")]
    told += [told_by(cluster, "get", kind, "--output", "json") for kind in ("sink", "physical-source", "query")]
    told.append(told_by(cluster, "describe", "query", "edged"))
    select = f"SELECT id, v FROM exact INTO exact {edges(secure_kafka.options('SASL_SSL', 'PLAIN'))}"
    told.append(told_by(cluster, "explain", select))
    assert all("[redacted]" in one for one in told[:2]), "the options are there, but for their secrets"
    for secret in secrets_of(secure_kafka):
        assert not [one for one in told if secret in one]
        for path in (path for path in cluster.folder.rglob("*") if path.is_file() and not path.is_symlink()):
            if secret.encode() not in path.read_bytes():
                continue
            kept = path.relative_to(cluster.folder).as_posix()
            assert kept.startswith(KEPT), f"{kept} has a secret"
            assert path.stat().st_mode & 0o077 == 0, f"{kept} can be read by others"


def secrets_of(kafka: SecureKafka) -> list[str]:
    """Passwords, as they are and as a text in quotes has them, and a line of the key of the certificate."""
    passwords = [*kafka.passwords.values(), kafka.key_password, WRONG]
    return [*passwords, *(json.dumps(one)[1:-1] for one in passwords), kafka.key.read_text().splitlines()[1]]


def told_by(cluster: QueryCluster, *arguments: str) -> str:
    """What the command prints."""
    done = subprocess.run(
        [Path(sys.executable).parent / "headgate", *arguments],
        env={**os.environ, "HEADGATE_COORDINATOR": cluster.coordinator.address},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout + done.stderr
