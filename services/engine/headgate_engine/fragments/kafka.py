"""Topics through Spark's Kafka connector: their options, their streams and ranges."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_common.kafka_reasons import KAFKA_REFUSED, KAFKA_TOPIC_MISSING, KAFKA_UNREACHABLE
from headgate_engine.errors import EDGE_DATA_LOST
from headgate_engine.fragments.errors import causes_of
from headgate_engine.fragments.locked_keys import unlocked

_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# Between two questions for a native topic, and how long it may take until all agents know of a new one.
_LOOK_SECONDS = 0.25
_APPEARS_SECONDS = 5.0
# What stands for the beginning of a partition among Spark's offsets.
_EARLIEST = -2
# Along the causes of an error: the brokers do not take this client, or its settings cannot be used. Neither passes.
_REFUSED = re.compile(
    r"AuthenticationException|AuthorizationException|ConfigException|NoSuchFileException|AccessDeniedException|"
    r"InvalidTopicException|UnsupportedVersionException|Failed to load (?:PEM )?SSL|Invalid PEM|SSLHandshakeException"
)


def client_options(options: Mapping[str, str], bootstrap: str) -> dict[str, str]:
    """Settings of the Kafka client, out of the options of a source or sink; `bootstrap` is for native topics."""
    servers = options.get("bootstrap_servers") or bootstrap
    if not servers:
        raise HeadgateError(
            INVALID_ARGUMENT, "kafka_bootstrap: the plan has a native topic, and nothing says where it is"
        )
    found = {"bootstrap.servers": servers}
    protocol = options.get("security_protocol", "PLAINTEXT")
    if protocol != "PLAINTEXT":
        found["security.protocol"] = protocol
    mechanism = options.get("sasl_mechanism", "")
    if mechanism:
        user, password = (_quoted(options.get(name, "")) for name in ("sasl_username", "sasl_password"))
        found["sasl.mechanism"] = mechanism
        found["sasl.jaas.config"] = f'{_LOGIN[mechanism]} required username="{user}" password="{password}";'
    if options.get("ssl_ca_location"):
        found["ssl.truststore.type"] = "PEM"
        found["ssl.truststore.location"] = options["ssl_ca_location"]
    if options.get("ssl_certificate_location"):
        found["ssl.keystore.type"] = "PEM"
        found["ssl.keystore.certificate.chain"] = _text(options["ssl_certificate_location"])
        key, password = options["ssl_key_location"], options.get("ssl_key_password", "")
        found["ssl.keystore.key"] = unlocked(_text(key), password, key) if password else _text(key)
    return found


def _quoted(text: str) -> str:
    """A line break would end the text."""
    for sign, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(sign, escape)
    return text


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise HeadgateError(KAFKA_REFUSED, f"{path} cannot be read by the engine: {error.strerror}") from error
    except UnicodeDecodeError:
        # What it has instead of text is not told: it may be a key.
        raise HeadgateError(KAFKA_REFUSED, f"{path} is not a PEM file") from None


def connector_options(options: Mapping[str, str], bootstrap: str) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in client_options(options, bootstrap).items()}


def topic_stream(
    session: SparkSession, origin: catalog.TopicOrigin, bootstrap: str, start: str, records: int
) -> DataFrame:
    """The records of a topic. Where it begins is asked at the first start only; then the checkpoint knows. `start` is
    earliest, latest, a time, or offsets as `starting_offsets` makes them."""
    reader = (
        session.readStream.format("kafka")
        .options(**connector_options(origin.options, bootstrap))
        .option("subscribe", origin.options["topic"])
        .option("failOnDataLoss", "true")
    )
    if records:
        reader = reader.option("maxOffsetsPerTrigger", str(records))
    start = start or origin.options.get("start", "earliest")
    if start in ("earliest", "latest") or start.startswith("{"):
        reader = reader.option("startingOffsets", start)
    elif start.isdigit():
        reader = reader.option("startingTimestamp", str(int(start) // 1000))
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    else:
        raise HeadgateError(INVALID_ARGUMENT, f"start = {start!r}: earliest, latest or microseconds since 1970")
    return reader.load()


def starting_offsets(topic: str, start: catalog.TopicStart, partitions: int) -> str:
    """Where a stream begins, for each of its partitions, because Spark wants to be told of all: those that the topic
    got after `start` was found are read from their beginning. One that has fewer now is another topic of that name."""
    if partitions < len(start.offsets):
        raise HeadgateError(
            EDGE_DATA_LOST,
            f"topic {topic} has {partitions} partitions, and had {len(start.offsets)} when the query was deployed: it "
            "was created again",
        )
    offsets = list(start.offsets) + [_EARLIEST] * (partitions - len(start.offsets))
    return json.dumps({topic: {str(index): offset for index, offset in enumerate(offsets)}})


def topic_range(
    session: SparkSession, origin: catalog.TopicOrigin, bootstrap: str, start: str, until: str
) -> DataFrame:
    """Records between two offsets, as Spark writes them down."""
    return (
        session.read.format("kafka")
        .options(**connector_options(origin.options, bootstrap))
        .option("subscribe", origin.options["topic"])
        .option("startingOffsets", start)
        .option("endingOffsets", until)
        .option("failOnDataLoss", "true")
        .load()
    )


def partitions_of(session: SparkSession, options: Mapping[str, str], bootstrap: str, seconds: float) -> int:
    """How many partitions the topic of a source or sink has, asked of its brokers, which have `seconds` to answer.

    KAFKA_TOPIC_MISSING, KAFKA_UNREACHABLE and KAFKA_REFUSED name both: Spark would take minutes, and name none. Agents
    are asked again for a native topic that is not there, because not all of them know a new one at once."""
    clients = client_options(options, bootstrap)
    native = not options.get("bootstrap_servers")
    until = time.monotonic() + (min(seconds, _APPEARS_SECONDS) if native else 0.0)
    while True:
        try:
            return _partitions(session, options["topic"], clients, seconds)
        except HeadgateError as error:
            if error.reason != KAFKA_TOPIC_MISSING or time.monotonic() >= until:
                raise
        time.sleep(_LOOK_SECONDS)


def _partitions(session: SparkSession, topic: str, clients: Mapping[str, str], seconds: float) -> int:
    jvm = session._jvm
    assert jvm is not None
    admin: Any = None
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(client_settings(jvm, clients, seconds))
        topics = jvm.java.util.Collections.singletonList(topic)
        return int(admin.describeTopics(topics).allTopicNames().get().get(topic).partitions().size())
    except Py4JJavaError as error:
        raise problem_of(error, topic, clients["bootstrap.servers"], seconds) or error from error
    finally:
        if admin is not None:
            admin.close(jvm.java.time.Duration.ZERO)


def client_settings(jvm: Any, clients: Mapping[str, str], seconds: float) -> Any:
    """Settings of a client in Java that waits for answers for so long."""
    settings = jvm.java.util.HashMap()
    for name, value in clients.items():
        settings.put(name, value)
    for name in ("request.timeout.ms", "default.api.timeout.ms"):
        settings.put(name, str(int(seconds * 1000)))
    return settings


def problem_of(error: Py4JJavaError, topic: str, servers: str, seconds: float) -> HeadgateError | None:
    """What an error of a Kafka client means for a topic; None where that is not known."""
    chain = causes_of(error)
    causes = "\n".join(chain)
    if "UnknownTopicOrPartitionException" in causes:
        return HeadgateError(KAFKA_TOPIC_MISSING, f"there is no topic {topic} at {servers}", metadata={"topic": topic})
    if "TimeoutException" in causes:
        text = f"the brokers of topic {topic}, {servers}, did not answer within {seconds:g} s"
        return HeadgateError(KAFKA_UNREACHABLE, text)
    if "resolvable" in causes:
        return HeadgateError(KAFKA_UNREACHABLE, f"the brokers of topic {topic}: nobody knows {servers}")
    if _REFUSED.search(causes):
        text = f"the brokers of topic {topic}, {servers}, cannot be used as the options say: {_root(chain)}"
        return HeadgateError(KAFKA_REFUSED, text)
    return None


def _root(causes: list[str]) -> str:
    """The innermost of them in one line, without the package of its kind."""
    return re.sub(r"^(?:\w+\.)+(?=\w)", "", " ".join(causes[-1].split()))
