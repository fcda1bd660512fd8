"""ResultService: rows of temporary queries, for their readers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from functools import partial

import pyarrow as pa

from headgate.cluster import v1 as cluster
from headgate.cluster.v1 import result_service_pb2
from headgate_agent.errors import RESULT_NOT_FOUND
from headgate_agent.fragments.formats.json_encode import JsonEncoder
from headgate_agent.fragments.local_edges import write_record
from headgate_agent.fragments.sinks.result import Results
from headgate_agent.work import Work
from headgate_common.dispatch import Call
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError

_WAIT_SECONDS = 10.0
_LONGEST_WAIT_SECONDS = 300.0
# Rows in one message at most.
_ROWS = 5_000


class ResultService:
    descriptor = result_service_pb2.DESCRIPTOR.services_by_name["ResultService"]

    def __init__(self, results: Results, work: Work) -> None:
        self._results = results
        self._work = work

    async def read_results(
        self, request: cluster.ReadResultsRequest, call: Call
    ) -> AsyncGenerator[cluster.ReadResultsResponse, None]:
        wait = request.wait.ToNanoseconds() / 1e9 if request.HasField("wait") else _WAIT_SECONDS
        if not 0 <= wait <= _LONGEST_WAIT_SECONDS:
            raise HeadgateError(INVALID_ARGUMENT, f"wait: 0 to {_LONGEST_WAIT_SECONDS:g} s", metadata={"field": "wait"})
        encode = _arrow if request.format == cluster.RESULT_FORMAT_ARROW else _json
        sink = await self._results.find(request.query_uid, wait)
        with sink.reading():
            yield cluster.ReadResultsResponse(schema=sink.schema)
            async with aclosing(sink.rows()) as batches:
                async for batch in batches:
                    for part in _parts(batch):
                        yield await self._work.run(partial(encode, part))
        if not sink.complete:
            raise HeadgateError(RESULT_NOT_FOUND, "the query has stopped before its rows were complete")
        yield cluster.ReadResultsResponse(ended=True)


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for first in range(0, batch.num_rows, _ROWS):
        yield batch.slice(first, _ROWS)


def _json(batch: pa.RecordBatch) -> cluster.ReadResultsResponse:
    return cluster.ReadResultsResponse(rows=JsonEncoder().encode(batch).decode().splitlines())


def _arrow(batch: pa.RecordBatch) -> cluster.ReadResultsResponse:
    return cluster.ReadResultsResponse(arrow=write_record(batch))
