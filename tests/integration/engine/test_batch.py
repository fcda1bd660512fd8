"""ExecuteBatch: bounded SQL over files and ranges of edges."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path

import grpc
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.engine import v1 as engine
from headgate.log import v1 as log
from headgate_common.errors import HeadgateError
from tests.integration.engine.edges import Edges
from tests.integration.engine.events import EVENTS, events
from tests.integration.engine.kit import PATIENCE_SECONDS, Client, Engine, schema, until
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


class HeldUp:
    """Reads of an edge that are not answered until they are let go."""

    def __init__(self, edges: Edges) -> None:
        self.begun = 0
        self.over = 0
        self.let_go = threading.Event()
        edges.before_read = self._hold

    def _hold(self, context: grpc.ServicerContext) -> None:
        self.begun += 1
        context.add_callback(self._ended)
        # Longer than any test waits for something.
        self.let_go.wait(3 * PATIENCE_SECONDS)

    def _ended(self) -> None:
        self.over += 1


@pytest.fixture
def held(edges: Edges) -> Iterator[HeldUp]:
    made = HeldUp(edges)
    yield made
    made.let_go.set()


def over_an_edge(edges: Edges, partitions: int) -> engine.ExecuteBatchRequest:
    """A batch with a task for each partition of an edge, which has a row in each."""
    access = edges.create("slow", partitions)
    for partition, row in enumerate(events(42, partitions)):
        edges.append("slow", [row], EVENTS, partition)
    given = engine.TopicRange(access=access, from_offsets=[0] * partitions, until_offsets=[1] * partitions)
    columns = schema(k="VARCHAR", v="INT64", ts="TIMESTAMP")
    entry = engine.BatchInput(view="t", schema=columns, topic=given)
    return engine.ExecuteBatchRequest(sql="SELECT count(*) AS n FROM t", inputs=[entry])


def first_progress(answers: Iterator[engine.ExecuteBatchResponse]) -> engine.BatchProgress:
    """What is told once Spark has made tasks of the batch."""
    for answer in answers:
        assert answer.WhichOneof("message") == "progress", "the batch has ended"
        if answer.progress.tasks:
            return answer.progress
    raise AssertionError("the batch has ended")


def test_a_batch_that_takes_a_while_tells_its_progress_before_its_result(
    client: Client, edges: Edges, held: HeldUp
) -> None:
    answers = client.stream(over_an_edge(edges, 6))
    progress = first_progress(answers)
    assert (progress.tasks_done, progress.tasks >= 6) == (0, True)
    held.let_go.set()
    *_, last = answers
    assert last.result.rows == 1


def test_a_batch_whose_caller_has_gone_is_cancelled_in_spark(client: Client, edges: Edges, held: HeldUp) -> None:
    answers = client.stream(over_an_edge(edges, 6))
    first_progress(answers)
    until(lambda: held.begun == 2, "a task in each slot to read")
    answers.close()
    # Nobody lets them go: they are over because Spark has ended the tasks.
    until(lambda: held.over == 2, "the tasks to be ended")
    table, _ = client.batch(engine.ExecuteBatchRequest(sql="SELECT count(*) AS n FROM range(0, 100, 1, 4)"))
    assert table.to_pylist() == [{"n": 100}]
    assert held.begun == 2, "the tasks that waited for a slot have not begun"


@contextmanager
def an_agent_that_is_silent() -> Iterator[tuple[str, threading.Event, threading.Event]]:
    """Its address; set when it was asked where a topic ends; to be set for it to answer."""
    asked, let_go = threading.Event(), threading.Event()

    def list_offsets(request: log.ListOffsetsRequest, context: grpc.ServicerContext) -> log.ListOffsetsResponse:
        asked.set()
        let_go.wait(PATIENCE_SECONDS)
        return log.ListOffsetsResponse(offsets=[log.PartitionOffset()])

    handler = grpc.unary_unary_rpc_method_handler(
        list_offsets, log.ListOffsetsRequest.FromString, log.ListOffsetsResponse.SerializeToString
    )
    server = grpc.server(futures.ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("headgate.log.v1.LogService", {"ListOffsets": handler})]
    )
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield address, asked, let_go
    finally:
        let_go.set()
        server.stop(None)


def test_a_batch_whose_caller_has_gone_before_spark_had_a_job_never_has_one(client: Client, edges: Edges) -> None:
    with an_agent_that_is_silent() as (address, asked, let_go):
        request = over_an_edge(edges, 1)
        access = engine.TopicAccess(topic="silent", topic_uid="silent", partitions=1, addresses=[address])
        silent = engine.BatchInput(view="s", schema=COLUMNS, records=engine.RecordRange(access=access))
        request.inputs.insert(0, silent)
        answers = client.stream(request)
        assert next(answers).progress.tasks == 0
        assert asked.wait(PATIENCE_SECONDS)
        answers.close()
        let_go.set()
        # Two of the kind take longer than the one that must not be.
        for _ in range(2):
            client.batch(over_an_edge(edges, 1))
    assert edges.reads == [(0, 1), (0, 1)]


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
