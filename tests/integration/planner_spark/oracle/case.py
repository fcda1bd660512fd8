"""A query of our dialect beside what must come out of it, by somebody else's reckoning."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.bind import bind
from headgate_coordinator.sql.errors import Problems
from headgate_coordinator.sql.planner import plan_query
from headgate_coordinator.sql.settings import PlannerSettings
from tests.integration.planner_spark.oracle.rows import ARRIVING, FAR, LATENESS, PAGE, SOURCES, TIMES, UNTIL
from tests.integration.planner_spark.streams import Rows, Streams, compute_of, schema_ddl
from tests.unit.planner.kit import MemoryView, parse_query

Row = tuple[Any, ...]
# Rows of every source by its name, all batches together, instants without a zone (UTC), as DuckDB has them.
Tables = Mapping[str, Rows]

SETTINGS = PlannerSettings(default_lateness_us=int(LATENESS.total_seconds() * 1e6))


@dataclass(frozen=True, slots=True)
class Case:
    """`section` is the heading of the reference that the query belongs to. `expected` is a SELECT for DuckDB, or
    Python over the same rows. `seen` turns what Spark gave into what can be compared, where that differs each time."""

    name: str
    section: str
    query: str
    expected: str | Callable[[Tables], Iterable[Row]]
    seen: Callable[[list[Row]], Iterable[Row]] | None = None


def catalog_view() -> MemoryView:
    """The catalog of the reference, and the sources that only the oracle has."""
    _, _, text = PAGE.read_text().partition("```sql\nCREATE ")
    statements = "CREATE " + text.partition("```")[0]
    return MemoryView(statements).apply(SOURCES)


def planned(text: str, view: MemoryView) -> catalog.QueryPlan:
    """The plan of a query, into a sink with exactly its columns."""
    statement = parse_query(text)
    problems = Problems(statement.source)
    realtime = "realtime" in text
    bound, _ = bind(statement.select, view, problems, SETTINGS, 0, not realtime)
    problems.raise_if_any()
    assert bound is not None
    fields = [catalog.Field(name=name, type=str(column.type)) for name, column in bound.outputs]
    type_ = catalog.SINK_TYPE_TOPIC if realtime else catalog.SINK_TYPE_PRINT
    view.sinks["out"] = catalog.Sink(
        name="out", uid="out", schema=catalog.Schema(fields=fields), type=type_, options={"topic": "out"}, agent="edge"
    )
    return plan_query(replace(statement, sink="out"), view, SETTINGS)


def spark_rows(streams: Streams, text: str) -> list[Row]:
    """What the plan of a query gives on Spark, as a stream that ends."""
    view = catalog_view()
    made = planned(text, view)
    compute = compute_of(made)
    for entry in compute.inputs:
        source = _source_fragment(made, entry)
        physical = source.physical_source if source is not None else entry.topic.physical_source
        name, _, number = physical.rpartition("_")
        feeding = len(view.physical[f"logical-{name}"])
        batches = [_share(rows, int(number) - 1, feeding) for rows in ARRIVING[name]]
        column, written = TIMES[name]
        if entry.event_time:
            batches.append([{column: written(FAR)}])
        whole = catalog.ComputeInput()
        whole.CopyFrom(entry)
        whole.schema.CopyFrom(view.logical[name].schema)
        if whole.event_time_expression == "current_timestamp()":
            # Processing time ends with the stream too.
            whole.event_time_expression = f"if({column} >= TIMESTAMP'{UNTIL}', {column}, current_timestamp())"
        streams.register(
            whole,
            streams.of(schema_ddl(whole.schema), batches),
            UNTIL if entry.event_time else "",
            filter_=source.filter if source is not None else "",
            columns=source.columns if source is not None else (),
        )
    table = streams.run(streams.spark.sql(compute.spark_sql), compute.output_mode, "memory")
    return [tuple(row) for row in streams.spark.sql(f"SELECT * FROM {table}").collect()]


def _source_fragment(made: catalog.QueryPlan, entry: catalog.ComputeInput) -> catalog.SourceFragment | None:
    if entry.HasField("topic"):
        return None
    return made.fragments[made.edges[entry.edge - 1].from_fragment - 1].source


def _share(rows: Rows, place: int, of: int) -> Rows:
    """The rows of a batch that one of several physical sources has."""
    return rows[place::of]


def tables() -> Tables:
    return {name: [_naive(row) for batch in batches for row in batch] for name, batches in ARRIVING.items()}


def _naive(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value.replace(tzinfo=None) if isinstance(value, datetime) else value for key, value in row.items()}


_MACROS = """
CREATE MACRO tumble(moment, width) AS time_bucket(width, moment, TIMESTAMP '1970-01-01');
CREATE MACRO hops(moment, size, step) AS list_filter(
  generate_series(tumble(moment - size, step), tumble(moment, step), step), lambda first: first > moment - size
);
"""


def duck(arrow: Callable[[catalog.Schema], pa.Schema]) -> duckdb.DuckDBPyConnection:
    """A database with all the rows; `arrow` says in which types of Arrow a schema is held."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.execute("SET TimeZone = 'UTC'")
    view = catalog_view()
    for name, rows in tables().items():
        schema = pa.schema([_without_zone(field) for field in arrow(view.logical[name].schema)])
        connection.register("arriving", pa.Table.from_pylist([dict(row) for row in rows], schema=schema))
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM arriving")
        connection.unregister("arriving")
    for macro in _MACROS.split(";\n"):
        connection.execute(macro)
    return connection


def _without_zone(field: pa.Field) -> pa.Field:
    return field.with_type(pa.timestamp("us")) if pa.types.is_timestamp(field.type) else field


def expected_rows(case: Case, connection: duckdb.DuckDBPyConnection) -> list[Row]:
    if isinstance(case.expected, str):
        return connection.cursor().execute(case.expected).fetchall()
    return list(case.expected(tables()))


def differences(found: Iterable[Row], expected: Iterable[Row]) -> str:
    """How two bags of rows differ; empty if they do not. Floating point is compared to nine digits."""
    ours, theirs = Counter(map(plain, found)), Counter(map(plain, expected))
    lost, extra = theirs - ours, ours - theirs
    if not lost and not extra:
        return ""
    return f"lost {_sample(lost)}\ntoo many {_sample(extra)}\nof {ours.total()} rows, expected {theirs.total()}"


def _sample(rows: Counter[Any]) -> str:
    return f"{rows.total()}: {sorted(map(repr, rows))[:5]}"


def plain(value: Any) -> Any:
    """A value without the differences between libraries: hashable, numbers as numbers, instants in UTC."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float, Decimal)):
        return _number(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, list):
        return ("list", *map(plain, value))
    if isinstance(value, dict):
        return ("map", *sorted((repr(plain(key)), plain(item)) for key, item in value.items()))
    return value


def _number(value: int | float | Decimal) -> Any:
    if isinstance(value, int):
        return value
    if not math.isfinite(value):
        return str(float(value))
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(f"{value:.9g}")
    rounded = 0.0 if abs(value) < 1e-12 else float(f"{value:.9g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 2**53 else rounded


def columns_apart(found: Sequence[Row], expected: Sequence[Row], names: Sequence[str]) -> str:
    """Which columns differ and where, of rows that begin with their number."""
    ours = {row[0]: row for row in found}
    wrong = []
    for row in expected:
        for name, theirs, mine in zip(names, row, ours.get(row[0], ()), strict=False):
            if plain(theirs) != plain(mine):
                wrong.append(f"{name} in row {row[0]}: Spark {mine!r}, oracle {theirs!r}")
    if sorted(ours) != sorted(row[0] for row in expected):
        wrong.append(f"rows {sorted(ours)}")
    return "\n".join(wrong)
