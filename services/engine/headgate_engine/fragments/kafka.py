"""Topics through Spark's Kafka connector: their options, their streams and ranges, and how values become rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_engine.errors import PLAN_UNSUPPORTED
from headgate_engine.executor.decoding import BAD, NO_VALUE, decoding, judging
from headgate_engine.executor.reading import MARK, schema_text
from headgate_engine.types import arrow_of, ddl, quote, struct_of

# Microseconds, where Spark's own form ends at milliseconds.
TIMESTAMP_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
# How much of a bad record is kept, in characters.
_RAW_CHARACTERS = 4_096
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_NOT_DECODED = {
    "JSON": "the record is not a JSON object of the declared columns",
    "CSV": "the record is not a line of the declared columns",
}


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


def format_of(origin: catalog.TopicOrigin) -> str:
    return origin.parser_options.get("type", "JSON").upper()


def decoded(records: DataFrame, entry: catalog.ComputeInput, *, fail: bool) -> DataFrame:
    """Rows out of records: the columns of the input, then BAD, which says why a record is none, then an empty MARK."""
    columns = struct_of(entry.schema)
    kind = format_of(entry.topic)
    if kind == "ARROW":
        rows = records.select("value").mapInArrow(
            decoding(schema_text(arrow_of(columns)), fail=fail), f"{ddl(entry.schema)}, {quote(BAD)} string"
        )
    else:
        row = _parsed(entry.schema, kind, entry.topic.parser_options, fail=fail)
        bad = f.when(f.col("value").isNull(), NO_VALUE).when(f.col("d")[BAD].isNotNull(), _NOT_DECODED[kind])
        rows = records.select(f.col("value"), row.alias("d")).select(
            *(f.col("d").getField(field.name).alias(field.name) for field in columns), bad.alias(BAD)
        )
    return rows.withColumn(MARK, f.lit(None).cast("bigint"))


def bad_records(records: DataFrame, entry: catalog.ComputeInput) -> DataFrame:
    """The records of a range that cannot be decoded, as rows of an error topic: raw, reason, place."""
    kept = records.select("topic", "partition", "offset", "value")
    columns = struct_of(entry.schema)
    kind = format_of(entry.topic)
    if kind == "ARROW":
        judged = kept.mapInArrow(
            judging(schema_text(arrow_of(columns)), 3),
            f"topic string, partition int, offset bigint, value binary, {quote(BAD)} string",
        )
    else:
        row = _parsed(entry.schema, kind, entry.topic.parser_options, fail=False)
        bad = f.when(f.col("value").isNull(), NO_VALUE).when(f.col("d")[BAD].isNotNull(), _NOT_DECODED[kind])
        judged = kept.withColumn("d", row).withColumn(BAD, bad).where(f.col(BAD).isNotNull())
    raw = f.substring(f.make_valid_utf8(f.col("value").cast("string")), 1, _RAW_CHARACTERS)
    place = f.format_string(
        f"partition %d, offset %d of {entry.topic.physical_source.replace('%', '%%')}", "partition", "offset"
    )
    return judged.select(raw.alias("raw"), f.col(BAD).alias("reason"), place.alias("place"))


def _parsed(schema: catalog.Schema, kind: str, options: Mapping[str, str], *, fail: bool) -> Column:
    """A struct with the columns and BAD, which has the text of a record that cannot be parsed."""
    columns = f"{ddl(schema)}, {quote(BAD)} string"
    settings = {"mode": "FAILFAST" if fail else "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    text = f.col("value").cast("string")
    if kind == "JSON":
        return f.from_json(text, columns, settings)
    if kind == "CSV":
        settings["sep"] = options.get("field_delimiter", ",")
        settings["quote"] = options.get("quote", '"')
        settings["nullValue"] = options.get("null_string", "")
        return f.from_csv(text, columns, settings)
    raise HeadgateError(PLAN_UNSUPPORTED, f"records of format {kind} cannot be read")


def encoded(frame: DataFrame, target: catalog.TopicTarget) -> DataFrame:
    """Rows as records of a topic: JSON, one a row."""
    kind = target.options.get("input_format", "JSON").upper()
    if kind != "JSON":
        raise HeadgateError(PLAN_UNSUPPORTED, f"a sink without an edge writes JSON, and {target.sink} is {kind}")
    settings = {"timestampFormat": TIMESTAMP_FORMAT, "ignoreNullFields": "false"}
    value = f.to_json(f.struct(*(f.col(quote(name)) for name in frame.columns)), settings).alias("value")
    key = target.options.get("key_column", "")
    if not key:
        return frame.select(value)
    return frame.select(f.col(quote(key)).cast("string").alias("key"), value)


def partitions_of(session: SparkSession, origin: catalog.TopicOrigin, bootstrap: str) -> int:
    """How many partitions a topic has, asked of its brokers."""
    jvm = session._jvm
    assert jvm is not None
    settings = jvm.java.util.HashMap()
    for name, value in client_options(origin.options, bootstrap).items():
        settings.put(name, value)
    for name in ("request.timeout.ms", "default.api.timeout.ms"):
        settings.put(name, "15000")
    admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
    try:
        topic = origin.options["topic"]
        topics = jvm.java.util.Collections.singletonList(topic)
        return int(admin.describeTopics(topics).allTopicNames().get().get(topic).partitions().size())
    finally:
        admin.close()
