"""Spans of a real process reach a real OTLP receiver."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import grpc.aio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from headgate_common.transport import GrpcTransport
from tests.integration.common.test_process import running
from tests.unit.common.transport_contract import START, STATUS, failure, start_request, status_request

TRACE = "0af7651916cd43dd8448eb211c80319c"


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self) -> None:
        self.resources: list[dict[str, str]] = []
        self.spans: list[Any] = []

    async def Export(self, request: Any, context: Any) -> Any:
        for resource in request.resource_spans:
            self.resources.append({item.key: item.value.string_value for item in resource.resource.attributes})
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)
        return trace_service_pb2.ExportTraceServiceResponse()


async def test_spans_are_exported_where_an_endpoint_is_set() -> None:
    collector, server = Collector(), grpc.aio.server()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with (
        running("--set", f"server.tracing.endpoint=http://127.0.0.1:{port}") as toy,
        GrpcTransport() as transport,
    ):
        address = (await toy.event("listening"))["address"]
        async with grpc.aio.insecure_channel(address) as channel:
            call: Any = channel.unary_unary(STATUS.path)
            parent = ("traceparent", f"00-{TRACE}-b7ad6b7169203331-01")
            await call(status_request(1).SerializeToString(), timeout=30, metadata=(parent,))
        await failure(transport.call(address, START, start_request("refused"), timeout=30))
        toy.process.send_signal(signal.SIGTERM)
        assert await toy.ended() == 0
    await asyncio.wait_for(server.stop(0), 30)
    spans = {span.name: span for span in collector.spans}
    assert set(spans) == {STATUS.path[1:], START.path[1:]}
    assert spans[STATUS.path[1:]].trace_id.hex() == TRACE
    assert spans[START.path[1:]].trace_id.hex() != TRACE
    attributes = {item.key: item.value.string_value for item in spans[START.path[1:]].attributes}
    assert attributes["error.type"] == "REFUSED"
    assert collector.resources[0]["service.name"] == "headgate-toy"
