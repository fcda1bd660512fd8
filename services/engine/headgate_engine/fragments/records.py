"""Records of topics and rows: how values become rows, which cannot, and how rows become values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_engine.errors import PLAN_UNSUPPORTED
from headgate_engine.executor.decoding import BAD, NO_VALUE, decoding, judging
from headgate_engine.executor.reading import schema_text
from headgate_engine.executor.required import ELEMENTS, VALUES, name_of, reason_of
from headgate_engine.types import arrow_of, ddl, quote, required, struct_of

# Microseconds, where Spark's own form ends at milliseconds.
TIMESTAMP_FORMAT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
# How much of a bad record is kept, in characters.
_RAW_CHARACTERS = 4_096
_NOT_DECODED = {
    "JSON": "the record is not a JSON object of the declared columns",
    "CSV": "the record is not a line of the declared columns",
}


def format_of(origin: catalog.TopicOrigin) -> str:
    return origin.parser_options.get("type", "JSON").upper()


def decoded(records: DataFrame, entry: catalog.ComputeInput, *, fail: bool) -> DataFrame:
    """Rows out of records: the columns of the input, then BAD, which says why a record is none."""
    columns = struct_of(entry.schema)
    kind = format_of(entry.topic)
    placed = records.select("value", "partition", "offset")
    if kind == "ARROW":
        name = named(entry.topic) if fail else ""
        decode = decoding(schema_text(arrow_of(columns)), required(entry.schema), name)
        return placed.mapInArrow(decode, rows_with_bad(entry))
    row = _parsed(entry.schema, kind, entry.topic.parser_options)
    bad = _bad(entry.schema, kind)
    if fail:
        text = f.concat(f.lit("BAD_RECORD: "), _place(entry.topic), f.lit(": "), bad)
        bad = f.when(bad.isNotNull(), f.raise_error(text).cast("string"))
    return placed.withColumn("d", row).select(
        *(f.col("d").getField(field.name).alias(field.name) for field in columns), bad.alias(BAD)
    )


def rows_with_bad(entry: catalog.ComputeInput) -> str:
    """The columns of an input and BAD, as Spark's DDL."""
    return f"{ddl(entry.schema)}, {quote(BAD)} string"


def bad_records(records: DataFrame, entry: catalog.ComputeInput) -> DataFrame:
    """The records of a range that cannot be decoded, as rows of an error topic: raw, reason, place."""
    kept = records.select("partition", "offset", "value")
    columns = struct_of(entry.schema)
    kind = format_of(entry.topic)
    if kind == "ARROW":
        judged = kept.mapInArrow(
            judging(schema_text(arrow_of(columns)), required(entry.schema), 2),
            f"partition int, offset bigint, value binary, {quote(BAD)} string",
        )
    else:
        row = _parsed(entry.schema, kind, entry.topic.parser_options)
        judged = kept.withColumn("d", row).withColumn(BAD, _bad(entry.schema, kind)).where(f.col(BAD).isNotNull())
    raw = f.substring(f.make_valid_utf8(f.col("value").cast("string")), 1, _RAW_CHARACTERS)
    return judged.select(raw.alias("raw"), f.col(BAD).alias("reason"), _place(entry.topic).alias("place"))


def fails(origin: catalog.TopicOrigin) -> bool:
    """Whether a record that cannot be decoded ends the run."""
    return origin.parser_options.get("on_error", "skip") == "fail"


def named(origin: catalog.TopicOrigin) -> str:
    return f"topic {origin.options['topic']} (source {origin.physical_source})"


def _place(origin: catalog.TopicOrigin) -> Column:
    text = f"partition %d, offset %d of {named(origin).replace('%', '%%')}"
    return f.format_string(text, f.col("partition"), f.col("offset"))


def _bad(schema: catalog.Schema, kind: str) -> Column:
    """Why a record cannot be decoded, out of its value and what was parsed, `d`; NULL where it can."""
    row = f.col("d")
    # Of a blank JSON value Spark makes no row, of an empty line of CSV a row of NULLs, and calls neither corrupt. Where
    # there is only one column, that may be what is meant.
    unparsed = row.isNull() | row[BAD].isNotNull()
    if kind == "CSV" and len(schema.fields) > 1:
        unparsed |= f.octet_length(f.col("value")) == 0
    bad = f.when(f.col("value").isNull(), NO_VALUE).when(unparsed, _NOT_DECODED[kind])
    for path in required(schema):
        bad = bad.when(_lacks(row, path), reason_of(path))
    return bad


def _lacks(value: Column, path: Sequence[str]) -> Column:
    """Whether a path (`executor/required.py`) leads to NULL; NULL, as good as no, where it leads nowhere."""
    step, *rest = path
    if step in (ELEMENTS, VALUES):
        elements = value if step == ELEMENTS else f.map_values(value)
        return f.exists(elements, lambda element: _lacks(element, rest))
    field = value.getField(name_of(step))
    return value.isNotNull() & (_lacks(field, rest) if rest else field.isNull())


def _parsed(schema: catalog.Schema, kind: str, options: Mapping[str, str]) -> Column:
    """A struct with the columns and BAD, which has the text of a record that cannot be parsed."""
    columns = f"{ddl(schema)}, {quote(BAD)} string"
    settings = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
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
