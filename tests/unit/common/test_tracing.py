"""Trace context, with and without spans."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from headgate_common.errors import HeadgateError
from headgate_common.settings import TracingConfig
from headgate_common.tracing import Tracing, headers, make_tracing
from tests.unit.common.transport_contract import REFUSED

TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def test_what_came_in_goes_out_without_any_exporter() -> None:
    tracing = Tracing()
    incoming = {"traceparent": TRACEPARENT, "tracestate": "vendor=1"}
    with tracing.serving("/a.B/C", incoming), tracing.calling("/d.E/F", "host:1") as outgoing:
        assert dict(outgoing) == incoming
    assert headers() == []


def test_where_nothing_came_in_nothing_goes_out() -> None:
    tracing = Tracing()
    with tracing.serving("/a.B/C", {}), tracing.calling("/d.E/F", "host:1") as outgoing:
        assert outgoing == []


@pytest.mark.parametrize("bad", ["", "nonsense", "00-0-0-0", f"ff-{TRACE}-b7ad6b7169203331-01", "x" * 100_000])
def test_a_bad_traceparent_is_no_trace_and_no_error(bad: str) -> None:
    with Tracing().serving("/a.B/C", {"traceparent": bad}):
        assert headers() == []


def test_a_call_does_not_inherit_the_trace_of_what_surrounds_it() -> None:
    tracing = Tracing()
    with tracing.serving("/a.B/C", {"traceparent": TRACEPARENT}), tracing.serving("/a.B/C", {}):
        assert headers() == []


def test_spans_are_made_where_there_is_a_tracer() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider.get_tracer("test"), provider)
    with (
        pytest.raises(HeadgateError),
        tracing.serving("/a.B/C", {"traceparent": TRACEPARENT}),
        tracing.calling("/d.E/F", "host:1") as outgoing,
    ):
        (parent,) = [value for key, value in outgoing if key == "traceparent"]
        raise HeadgateError(REFUSED, "no")
    called, served = exporter.get_finished_spans()
    assert (served.name, served.kind, called.kind) == ("a.B/C", SpanKind.SERVER, SpanKind.CLIENT)
    assert f"{called.context.trace_id:032x}" == TRACE
    assert parent == f"00-{TRACE}-{called.context.span_id:016x}-01"
    assert called.parent is not None and called.parent.span_id == served.context.span_id
    assert served.status.status_code is StatusCode.ERROR
    assert (served.attributes or {})["error.type"] == "REFUSED"
    assert (called.attributes or {})["server.address"] == "host:1"
    tracing.close()


def test_it_is_off_by_default() -> None:
    tracing = make_tracing(TracingConfig(), "toy", "1", "x")
    with tracing.serving("/a.B/C", {}):
        assert headers() == []
    tracing.close()
