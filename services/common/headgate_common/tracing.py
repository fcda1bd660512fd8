"""Trace context on every call, and spans where a collector is configured.

A `traceparent` that came in is current while the call is served, stands in the log as `trace`, and goes out with every
call made meanwhile, whether or not this process exports spans. Only where `tracing.endpoint` is set are spans made and
sent (by the OpenTelemetry SDK, over OTLP), and traces begun here for calls that came without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from opentelemetry import context, trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headgate_common.errors import HeadgateError
from headgate_common.settings import TracingConfig

_PROPAGATOR = TraceContextTextMapPropagator()
_HEADER = "traceparent"
_NO_CONTEXT = context.Context()
# How long a collector that is away may hold up the end of the process.
_EXPORT_SECONDS = 3


class Tracing:
    """Opens a span around a call, served or made. Without a tracer it only passes the context on."""

    def __init__(self, tracer: trace.Tracer | None = None, provider: Any = None) -> None:
        self._tracer = tracer
        self._provider = provider

    def serving(self, path: str, metadata: Mapping[str, str]) -> AbstractContextManager[None]:
        """Makes the caller's trace current, inside a span of ours."""
        parent = _PROPAGATOR.extract(metadata, context=_NO_CONTEXT) if _HEADER in metadata else _NO_CONTEXT
        return _Attached(parent) if self._tracer is None else self._serving(path, parent)

    @contextmanager
    def _serving(self, path: str, parent: context.Context) -> Iterator[None]:
        with _Attached(parent), self._span(path, trace.SpanKind.SERVER):
            yield

    def calling(self, path: str, address: str) -> AbstractContextManager[list[tuple[str, str]]]:
        """Gives the headers that carry the current trace to the other side."""
        return nullcontext(headers()) if self._tracer is None else self._calling(path, address)

    @contextmanager
    def _calling(self, path: str, address: str) -> Iterator[list[tuple[str, str]]]:
        with self._span(path, trace.SpanKind.CLIENT, {"server.address": address}):
            yield headers()

    @contextmanager
    def _span(
        self, path: str, kind: trace.SpanKind, attributes: Mapping[str, str] | None = None
    ) -> Iterator[trace.Span]:
        assert self._tracer is not None
        service, _, method = path.lstrip("/").rpartition("/")
        with self._tracer.start_as_current_span(
            f"{service}/{method}",
            kind=kind,
            attributes={"rpc.system": "grpc", "rpc.service": service, "rpc.method": method, **(attributes or {})},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except HeadgateError as error:
                span.set_attribute("error.type", error.reason.name)
                span.set_status(trace.StatusCode.ERROR, error.message)
                raise

    def close(self) -> None:
        """Sends what is still to be sent."""
        if self._provider is not None:
            self._provider.shutdown()


class _Attached:
    """Makes a context current. A class, because every call passes here and a generator costs twice as much."""

    __slots__ = ("_context", "_token")

    def __init__(self, current: context.Context) -> None:
        self._context = current

    def __enter__(self) -> None:
        self._token = context.attach(self._context)

    def __exit__(self, *exception: object) -> None:
        context.detach(self._token)


def headers() -> list[tuple[str, str]]:
    """The current trace as call metadata; empty where there is none."""
    if not trace.get_current_span().get_span_context().is_valid:
        return []
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return list(carrier.items())


def make_tracing(config: TracingConfig, service: str, version: str, instance: str) -> Tracing:
    """Tracing as configured. The SDK is loaded only where it is used."""
    if not config.endpoint:
        return Tracing()
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    provider = TracerProvider(
        sampler=ParentBased(TraceIdRatioBased(config.sample)),
        resource=Resource.create(
            {"service.name": f"headgate-{service}", "service.version": version, "service.instance.id": instance}
        ),
    )
    exporter = OTLPSpanExporter(
        endpoint=config.endpoint, insecure=config.endpoint.startswith("http://"), timeout=_EXPORT_SECONDS
    )
    provider.add_span_processor(BatchSpanProcessor(exporter))
    return Tracing(provider.get_tracer("headgate", version), provider)
