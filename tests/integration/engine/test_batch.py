"""ExecuteBatch: bounded SQL over files and ranges of edges."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from tests.integration.engine.edges import Edges
from tests.integration.engine.events import EVENTS, events
from tests.integration.engine.kit import Client, Engine, schema
from tests.servers.grpcurl import Grpcurl

pytestmark = pytest.mark.spark

ROWS = [{"a": number, "b": f"b{number % 3}"} for number in range(30)]
COLUMNS = schema(a="INT32", b="VARCHAR")
SUMS = [{"b": f"b{key}", "s": sum(row["a"] for row in ROWS if row["b"] == f"b{key}")} for key in range(3)]
SQL = "SELECT b, sum(a) AS s FROM t GROUP BY b ORDER BY b"


def files(folder: Path, kind: str) -> engine.BatchInput:
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), folder / "t.parquet")
        given = engine.FileInput(paths=[str(folder / "*.parquet")], format=engine.FILE_FORMAT_PARQUET)
        return engine.BatchInput(view="t", files=given)
    if kind == "csv":
        (folder / "t.csv").write_text("a;b\n" + "".join(f"{row['a']};{row['b']}\n" for row in ROWS))
        options = {"header": "true", "delimiter": ";"}
        given = engine.FileInput(paths=[str(folder)], format=engine.FILE_FORMAT_CSV, options=options)
        return engine.BatchInput(view="t", schema=COLUMNS, files=given)
    (folder / "t.json").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    given = engine.FileInput(paths=[str(folder / "t.json")], format=engine.FILE_FORMAT_JSON)
    return engine.BatchInput(view="t", schema=COLUMNS, files=given)


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_files_are_read_and_the_result_comes_as_arrow(kind: str, client: Client, tmp_path: Path) -> None:
    table, answers = client.batch(engine.ExecuteBatchRequest(name=kind, sql=SQL, inputs=[files(tmp_path, kind)]))
    assert table.to_pylist() == SUMS
    result = answers[-1].result
    assert result.rows == 3
    assert [(field.name, field.type) for field in result.schema.fields] == [("b", "VARCHAR"), ("s", "INT64")]


def test_a_range_of_an_edge_is_read_and_its_end_is_no_row(client: Client, edges: Edges) -> None:
    access = edges.create("range", 2)
    rows = events(41, 40)
    for number in range(4):
        edges.append("range", rows[number * 10 : number * 10 + 10], EVENTS, number % 2)
    edges.end("range")
    columns = schema(k="VARCHAR", v="INT64", ts="TIMESTAMP")
    given = engine.TopicRange(access=access, from_offsets=[1, 0], until_offsets=[3, 1])
    entry = engine.BatchInput(view="t", schema=columns, topic=given)
    table, _ = client.batch(engine.ExecuteBatchRequest(sql="SELECT v FROM t ORDER BY v", inputs=[entry]))
    assert [row["v"] for row in table.to_pylist()] == [*range(10, 30)]
    given.until_offsets[:] = given.from_offsets
    entry.topic.CopyFrom(given)
    table, _ = client.batch(engine.ExecuteBatchRequest(sql="SELECT v FROM t", inputs=[entry]))
    assert table.num_rows == 0, "a range may be empty"


def test_a_result_larger_than_asked_for_is_refused_and_an_empty_one_has_its_columns(
    client: Client, tmp_path: Path
) -> None:
    entry = files(tmp_path, "json")
    with pytest.raises(HeadgateError, match="RESULT_TOO_LARGE"):
        client.batch(engine.ExecuteBatchRequest(sql="SELECT * FROM t", inputs=[entry], max_rows=29))
    table, _ = client.batch(engine.ExecuteBatchRequest(sql="SELECT * FROM t", inputs=[entry], max_rows=30))
    assert table.num_rows == 30
    table, _ = client.batch(engine.ExecuteBatchRequest(sql="SELECT * FROM t WHERE a < 0", inputs=[entry]))
    assert (table.num_rows, table.column_names) == (0, ["a", "b"])


@pytest.mark.parametrize(
    ("sql", "reason", "error_class"),
    [
        ("SELECT nothing FROM t", "QUERY_INVALID", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("SELEC 1", "QUERY_INVALID", "PARSE_SYNTAX_ERROR"),
        ("SELECT 1 / (a - 3) FROM t", "QUERY_FAILED", "DIVIDE_BY_ZERO"),
    ],
)
def test_errors_are_typed_and_in_one_line(
    sql: str, reason: str, error_class: str, client: Client, tmp_path: Path
) -> None:
    with pytest.raises(HeadgateError) as raised:
        client.batch(engine.ExecuteBatchRequest(sql=sql, inputs=[files(tmp_path, "json")]))
    error = raised.value
    assert (error.reason.name, error.metadata["error_class"]) == (reason, error_class)
    assert "\n" not in error.message
    assert "org.apache" not in error.message


@pytest.mark.parametrize("key", ["spark.master", "spark.sql.streaming.stateStore.providerClass"])
def test_settings_of_the_process_cannot_be_changed_by_a_query(key: str, client: Client) -> None:
    with pytest.raises(HeadgateError, match="INVALID_SPARK_SETTING"):
        client.batch(engine.ExecuteBatchRequest(sql="SELECT 1", spark_conf={key: "x"}))


def test_grpcurl_runs_a_batch_by_reflection(engine_process: Engine, grpcurl: Grpcurl) -> None:
    assert engine_process.server is not None
    method = "headgate.engine.v1.EngineService/ExecuteBatch"
    done = grpcurl.call(engine_process.server.address, method, {"sql": "SELECT 6 * 7 AS answer"})
    assert done.returncode == 0, done.stderr
    assert '"rows": "1"' in done.stdout
