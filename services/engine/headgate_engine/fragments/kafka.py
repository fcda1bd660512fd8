"""Topics through Spark's Kafka connector: their options, their streams and ranges."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_engine.errors import KAFKA_TOPIC_MISSING, KAFKA_UNREACHABLE, PLAN_UNSUPPORTED

_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# Between two questions for a native topic.
_LOOK_SECONDS = 0.25


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
        found["ssl.keystore.key"] = _text(options["ssl_key_location"])
        if options.get("ssl_key_password"):
            found["ssl.key.password"] = options["ssl_key_password"]
    return found


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError as error:
        raise HeadgateError(PLAN_UNSUPPORTED, f"{path} cannot be read by the engine: {error.strerror}") from error


def connector_options(options: Mapping[str, str], bootstrap: str) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in client_options(options, bootstrap).items()}


def topic_stream(
    session: SparkSession, origin: catalog.TopicOrigin, bootstrap: str, start: str, records: int
) -> DataFrame:
    """The records of a topic. Where it begins is asked at the first start only; then the checkpoint knows."""
    reader = (
        session.readStream.format("kafka")
        .options(**connector_options(origin.options, bootstrap))
        .option("subscribe", origin.options["topic"])
        .option("failOnDataLoss", "true")
    )
    if records:
        reader = reader.option("maxOffsetsPerTrigger", str(records))
    start = start or origin.options.get("start", "earliest")
    if start in ("earliest", "latest"):
        reader = reader.option("startingOffsets", start)
    elif start.isdigit():
        reader = reader.option("startingTimestamp", str(int(start) // 1000))
        reader = reader.option("startingOffsetsByTimestampStrategy", "latest")
    else:
        raise HeadgateError(INVALID_ARGUMENT, f"start = {start!r}: earliest, latest or microseconds since 1970")
    return reader.load()


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

    KAFKA_TOPIC_MISSING and KAFKA_UNREACHABLE name both: Spark would take minutes, and name none. Agents are asked for a
    native topic for as long, because not all of them know a new one at once."""
    clients = client_options(options, bootstrap)
    native = not options.get("bootstrap_servers")
    until = time.monotonic() + (seconds if native else 0.0)
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
    settings = jvm.java.util.HashMap()
    for name, value in clients.items():
        settings.put(name, value)
    for name in ("request.timeout.ms", "default.api.timeout.ms"):
        settings.put(name, str(int(seconds * 1000)))
    admin: Any = None
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        topics = jvm.java.util.Collections.singletonList(topic)
        return int(admin.describeTopics(topics).allTopicNames().get().get(topic).partitions().size())
    except Py4JJavaError as error:
        causes = _causes(error)
        servers = clients["bootstrap.servers"]
        if "UnknownTopicOrPartitionException" in causes:
            text = f"there is no topic {topic} at {servers}"
            raise HeadgateError(KAFKA_TOPIC_MISSING, text, metadata={"topic": topic}) from error
        if "TimeoutException" in causes:
            text = f"the brokers of topic {topic}, {servers}, did not answer within {seconds:g} s"
            raise HeadgateError(KAFKA_UNREACHABLE, text) from error
        if "resolvable" in causes:
            raise HeadgateError(KAFKA_UNREACHABLE, f"the brokers of topic {topic}: nobody knows {servers}") from error
        raise
    finally:
        if admin is not None:
            admin.close(jvm.java.time.Duration.ZERO)


def _causes(error: Py4JJavaError) -> str:
    """The kinds and messages along the causes of a Java exception."""
    found: list[str] = []
    throwable: Any = error.java_exception
    while throwable is not None and len(found) < 20:
        found.append(throwable.toString())
        throwable = throwable.getCause()
    return "\n".join(found)
