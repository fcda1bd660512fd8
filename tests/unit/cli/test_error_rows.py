"""Error rows are read from the agent that leads them, the last ones first asked for, and decoded as they are."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log
from headgate_cli import error_rows
from headgate_cli.connection import Connection
from headgate_cli.error_rows import ErrorReader, ErrorTopic, decode, error_topics
from headgate_cli.failures import ExitCode, Failure
from headgate_common.errors import UNREACHABLE, HeadgateError, Reason
from headgate_common.ids import RandomIds
from tests.unit.cli.scripted import Script

NOT_FOUND = Reason("QUERY_NOT_FOUND", UNREACHABLE.code, "")


def record(*raws: bytes) -> bytes:
    table = pa.table(
        {
            "raw": pa.array(raws, pa.binary()),
            "reason": [f"bad {index}" for index in range(len(raws))],
            "place": ["in.csv:7"] * len(raws),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def connection(*answers: object) -> tuple[Connection, Script]:
    script = Script(*answers)
    return Connection(script, "c:1", 1.0, RandomIds(random.Random(1)), random.Random(1)), script


def leader() -> list[object]:
    return [
        log.ListPartitionsResponse(partitions=[log.Partition(leader="a")]),
        catalog.GetAgentResponse(agent=catalog.Agent(name="a", address="a:1")),
    ]


def test_a_record_is_its_rows_and_the_end_has_none() -> None:
    first, second = decode(record(b"1,x", b"\xff"), 2, 40)
    assert first.as_json() == {"fragment": 2, "offset": 40, "place": "in.csv:7", "reason": "bad 0", "raw": "1,x"}
    assert second.as_json()["raw_base64"] == "/w=="
    assert second.text == "\\xff"
    assert list(decode(b"", 2, 41)) == []


def test_a_record_that_is_no_arrow_is_told_and_not_traced() -> None:
    with pytest.raises(Failure, match="record 3 of fragment 1 is no Arrow stream"):
        list(decode(b"nonsense", 1, 3))


async def test_a_dropped_query_is_found_by_its_uid_and_a_stranger_is_not() -> None:
    gone = HeadgateError(NOT_FOUND, "no such query")
    topics = log.ListTopicsResponse(topics=[log.Topic(name="__headgate.errors.query-1.2")])
    found = await error_topics(connection(gone, topics)[0], "query-1")
    assert [topic.fragment for topic in found] == [2]
    with pytest.raises(Failure, match="there is no query nobody"):
        await error_topics(connection(gone, log.ListTopicsResponse())[0], "nobody")


async def test_only_the_last_records_are_read_at_first_then_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_rows, "_PAUSE_SECONDS", 0.0)
    edge = log.GetEdgeResponse(partitions=[log.EdgePartition(log_start=0, high_watermark=9)])
    more = log.GetEdgeResponse(partitions=[log.EdgePartition(log_start=0, high_watermark=10)])
    asked: list[log.ReadEdgeRequest] = []

    class Reading(Script):
        async def stream(self, address, method, request, *, timeout):  # type: ignore[no-untyped-def]
            asked.append(request)
            for answer in self.answers.pop(0):
                yield answer

    script = Reading(
        *leader(),
        edge,
        [log.ReadEdgeResponse(offset=7, batches=[record(b"x", b"y"), record(b"z")])],
        *leader(),
        more,
        [log.ReadEdgeResponse(offset=9, batches=[record(b"new")])],
    )
    reader = ErrorReader(Connection(script, "c:1", 1.0), ErrorTopic(log.Topic(name="__headgate.errors.q.1", uid="t")))
    assert [row.raw for row in await reader.rows(2)] == [b"y", b"z"]
    assert [row.raw for row in await reader.rows()] == [b"new"]
    assert [(request.from_offset, request.until_offset) for request in asked] == [(7, 9), (9, 10)]


async def test_an_agent_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_rows, "_PAUSE_SECONDS", 0.0)
    answers = [each for _ in range(4) for each in (*leader(), HeadgateError(UNREACHABLE, "nobody"))]
    reader = ErrorReader(connection(*answers)[0], ErrorTopic(log.Topic(name="__headgate.errors.q.1", uid="t")))
    with pytest.raises(Failure, match="agent a at a:1, which has the error rows of fragment 1") as caught:
        await reader.rows()
    assert caught.value.code is ExitCode.UNREACHABLE
