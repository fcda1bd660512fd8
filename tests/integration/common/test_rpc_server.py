"""A server over a real socket: what it refuses, how, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from google.rpc import status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.calls import DETAILS_HEADER
from headgate_common.config import ConfigError
from headgate_common.dispatch import Call
from headgate_common.errors import (
    DEADLINE_EXCEEDED,
    INTERNAL,
    INVALID_ARGUMENT,
    MESSAGE_TOO_LARGE,
    OVERLOADED,
    SHUTTING_DOWN,
    UNIMPLEMENTED,
    UNREACHABLE,
    HeadgateError,
    from_status,
)
from headgate_common.health import Health
from headgate_common.metrics import RpcMetrics
from headgate_common.rpc import RpcServer
from headgate_common.settings import LimitsConfig
from headgate_common.tracing import Tracing
from headgate_common.transport import Client, GrpcTransport
from tests.integration.common.serving import serving
from tests.servers.ports import free_port
from tests.servers.tcp_proxy import tcp_proxy
from tests.unit.common.transport_contract import (
    FRAGMENTS,
    REASONS,
    REFUSED,
    START,
    STATUS,
    WATCH,
    WATCHING,
    ToyFragments,
    ToyWatch,
    collect,
    eventually,
    failure,
    start_request,
    status_request,
)

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
States = health_pb2.HealthCheckResponse


@pytest.fixture
async def transport() -> AsyncIterator[GrpcTransport]:
    async with GrpcTransport(reasons=REASONS) as made:
        yield made


async def raw_error(address: str, path: str, body: bytes) -> HeadgateError:
    """Calls as a foreign client would: bytes in, and nothing but the status to learn from."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.max_send_message_length", -1)]) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            method: Any = channel.unary_unary(path)
            await method(body, timeout=20)
    return status_of(caught.value)


def status_of(error: grpc.aio.AioRpcError) -> HeadgateError:
    details = [value for key, value in error.trailing_metadata() if key == DETAILS_HEADER]
    assert details, f"{error.code()} {error.details()} has no details"
    status = status_pb2.Status.FromString(details[0])
    assert status.code == error.code().value[0]
    return from_status(status, REASONS)


@pytest.mark.parametrize(
    "body",
    [b"\xff\xff\xff\xff", b"\x12\x05\x0a\x03\xff\xfe\xfd", b"\x0a\x7f", b"\x0a" * 1000],
    ids=["garbage", "invalid UTF-8", "truncated", "noise"],
)
async def test_bytes_that_are_no_request_get_a_typed_error(body: bytes) -> None:
    toy = ToyFragments()
    async with serving([toy, ToyWatch()]) as served:
        error = await raw_error(served.address, START.path, body)
        assert error.reason is INVALID_ARGUMENT
        assert "headgate.cluster.v1.StartFragmentRequest" in error.message
        assert toy.seen == []
        assert served.sample("headgate_rpc_errors_total", method=START.path[1:], reason="INVALID_ARGUMENT") == 1


async def test_a_request_beyond_the_limit_is_refused_with_both_sizes() -> None:
    limits = LimitsConfig(message_size=100_000)
    async with serving([ToyFragments()], limits=limits) as served:
        error = await raw_error(served.address, START.path, start_request("x" * 150_000).SerializeToString())
        assert error.reason is MESSAGE_TOO_LARGE
        assert error.metadata["limit"] == "100000"
        assert int(error.metadata["size"]) > 150_000


async def test_a_request_far_beyond_the_limit_is_cut_off_by_the_transport(transport: GrpcTransport) -> None:
    toy = ToyFragments()
    async with serving([toy], limits=LimitsConfig(message_size=100_000)) as served:
        request = start_request("x" * 5_000_000)
        error = await failure(transport.call(served.address, START, request, timeout=20))
        assert error.reason is MESSAGE_TOO_LARGE
        assert toy.seen == []
        await transport.call(served.address, START, start_request("fine"), timeout=20)


async def test_an_answer_beyond_the_limit_is_an_error_and_not_a_broken_call(transport: GrpcTransport) -> None:
    limits = LimitsConfig(message_size=50_000)
    async with serving([ToyWatch()], limits=limits) as served:
        stream = transport.stream(served.address, WATCHING, catalog.WatchRequest(name="large"), timeout=20)
        error = await failure(collect(stream, []))
        assert error.reason is MESSAGE_TOO_LARGE
        assert "answer" in error.message


async def test_an_unknown_method_is_typed_for_foreign_clients_too() -> None:
    async with serving([ToyFragments()]) as served:
        for path in ("/no.such.Service/Method", f"/{FRAGMENTS.full_name}/NoSuchMethod", "/" + "x" * 3000):
            assert (await raw_error(served.address, path, b"")).reason is UNIMPLEMENTED
        assert served.sample("headgate_rpc_errors_total", method="unknown", reason="UNIMPLEMENTED") == 3


async def test_overload_is_answered_at_once_with_a_delay_and_the_rest_is_done(transport: GrpcTransport) -> None:
    toy = ToyFragments()
    async with serving([toy], limits=LimitsConfig(in_flight=2, queue=3, retry_after=4.0)) as served:
        calls = [
            asyncio.ensure_future(transport.call(served.address, START, start_request("slow"), timeout=60))
            for _ in range(20)
        ]
        await eventually(lambda: sum(call.done() for call in calls) == 15)
        refused = [call.exception() for call in calls if call.done()]
        assert all(isinstance(error, HeadgateError) and error.reason is OVERLOADED for error in refused)
        delays = [error.retry_after for error in refused if isinstance(error, HeadgateError)]
        assert all(delay is not None and 2.0 <= delay <= 6.0 for delay in delays)
        assert len(set(delays)) > 1, "all callers are told to come back in the same moment"
        assert served.sample("headgate_rpc_in_flight", kind="call") == 2
        assert served.sample("headgate_rpc_queued") == 3
        toy.release.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(result, cluster.StartFragmentResponse) for result in results) == 5
        assert served.sample("headgate_rpc_in_flight", kind="call") == 0
        assert served.sample("headgate_rpc_errors_total", method=START.path[1:], reason="OVERLOADED") == 15


async def headers_only_error(address: str) -> HeadgateError:
    """Sends the headers of a call and never its request: only a server that does not wait for it answers."""
    async with grpc.aio.insecure_channel(address) as channel:
        call: Any = channel.stream_unary(START.path)(timeout=20)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
    return status_of(caught.value)


async def test_a_full_server_refuses_before_it_reads_the_request(transport: GrpcTransport) -> None:
    toy = ToyFragments()
    async with serving([toy], limits=LimitsConfig(in_flight=1, queue=0)) as served:
        slow = asyncio.ensure_future(transport.call(served.address, START, start_request("slow"), timeout=60))
        await eventually(lambda: toy.seen == ["slow"])
        assert (await headers_only_error(served.address)).reason is OVERLOADED
        toy.release.set()
        await slow


async def test_health_and_reflection_answer_a_full_server(transport: GrpcTransport) -> None:
    toy = ToyFragments()
    async with serving([toy], limits=LimitsConfig(in_flight=1, queue=0)) as served:
        slow = asyncio.ensure_future(transport.call(served.address, START, start_request("slow"), timeout=60))
        await eventually(lambda: toy.seen == ["slow"])
        health = Client(transport, served.address, Health.descriptor)
        answer = await health.check(health_pb2.HealthCheckRequest(service=FRAGMENTS.full_name))
        assert answer.status == States.SERVING
        toy.release.set()
        await slow


async def test_streams_have_a_bound_of_their_own(transport: GrpcTransport) -> None:
    async with serving([ToyWatch(), ToyFragments()], limits=LimitsConfig(in_flight=1, queue=0, streams=3)) as served:
        streams: list[Any] = []
        for _ in range(3):
            stream = transport.stream(served.address, WATCHING, catalog.WatchRequest(name="silent"), timeout=None)
            await anext(stream)
            streams.append(stream)
        await transport.call(served.address, STATUS, status_request(1), timeout=20)
        one_more = transport.stream(served.address, WATCHING, catalog.WatchRequest(name="silent"), timeout=None)
        assert (await failure(collect(one_more, []))).reason is OVERLOADED
        await streams.pop().aclose()
        await eventually(lambda: served.sample("headgate_rpc_in_flight", kind="stream") == 2)
        again = transport.stream(served.address, WATCHING, catalog.WatchRequest(name="silent"), timeout=None)
        await anext(again)
        for stream in (*streams, again):
            await stream.aclose()


async def test_a_call_without_a_deadline_gets_the_servers() -> None:
    toy = ToyFragments()
    async with (
        serving([toy], limits=LimitsConfig(deadline=0.2)) as served,
        grpc.aio.insecure_channel(served.address) as channel,
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(START.path)(start_request("slow").SerializeToString())
        assert status_of(caught.value).reason is DEADLINE_EXCEEDED
        assert toy.seen == ["slow", "cancelled"]
        assert toy.calls[0].timeout is None


async def test_a_callers_own_deadline_may_be_longer_than_the_default(transport: GrpcTransport) -> None:
    toy = ToyFragments()
    async with serving([toy], limits=LimitsConfig(deadline=0.001)) as served:
        call = asyncio.ensure_future(transport.call(served.address, START, start_request("slow"), timeout=60))
        await eventually(lambda: toy.seen == ["slow"])
        await asyncio.sleep(0.1)
        toy.release.set()
        await call


class Held(ToyWatch):
    """A stream of large messages that notes how it ends, and can be cut off."""

    def __init__(self) -> None:
        super().__init__()
        self.call: Call | None = None
        self.begun = 0

    async def watch(self, request: Any, call: Call) -> AsyncGenerator[Any, None]:
        self.call = call
        try:
            while True:
                self.begun += 1
                snapshot = catalog.WatchSnapshot()
                snapshot.resources.add().sink.name = "x" * 1_000_000
                yield catalog.WatchResponse(snapshot=snapshot)
        finally:
            self.closed += 1


class Weighty(ToyFragments):
    """Answers with megabytes, and notes when they have been sent."""

    sent = 0

    async def get_status(self, request: Any, call: Call) -> Any:
        call.when_sent(self._sent)
        if request.since == 0:
            raise HeadgateError(INTERNAL, "there is no answer")
        return cluster.GetStatusResponse(incarnation="x" * 10_000_000)

    def _sent(self) -> None:
        self.sent += 1


async def test_an_answer_is_sent_when_the_caller_has_taken_all_of_it_or_is_gone(transport: GrpcTransport) -> None:
    toy = Weighty()
    async with serving([toy]) as served:
        with tcp_proxy(served.address) as proxy:
            await failure(transport.call(proxy.address, STATUS, status_request(0), timeout=20))
            await eventually(lambda: toy.sent == 1)
            await transport.call(proxy.address, STATUS, status_request(1), timeout=20)
            await eventually(lambda: toy.sent == 2)
            proxy.slow = 0.2
            late = asyncio.ensure_future(transport.call(proxy.address, STATUS, status_request(1), timeout=60))
            given_up = asyncio.ensure_future(transport.call(proxy.address, STATUS, status_request(1), timeout=2))
            await asyncio.sleep(1)
            assert toy.sent == 2, "it is on its way"
            assert (await failure(given_up)).reason is DEADLINE_EXCEEDED
            await eventually(lambda: toy.sent == 3)
            proxy.slow = 0.0
            await late
            await eventually(lambda: toy.sent == 4)


async def test_a_stream_whose_caller_takes_nothing_can_be_cut_off_and_it_is_told_why(transport: GrpcTransport) -> None:
    toy = Held()
    async with serving([toy]) as served:
        stream: Any = transport.stream(served.address, WATCHING, catalog.WatchRequest(), timeout=None)
        await anext(stream)
        before = -1
        while toy.begun != before:
            before = toy.begun
            await asyncio.sleep(0.3)
        assert toy.call is not None
        toy.call.cut_off(HeadgateError(REFUSED, "others wait"))
        await eventually(lambda: toy.closed == 1)
        await eventually(lambda: served.sample("headgate_rpc_in_flight", kind="stream") == 0)
        error = await failure(collect(stream, []))
        assert (error.reason, error.message) == (REFUSED, "others wait")


class CutOffAtOnce(ToyWatch):
    """Cut off while the first answer is on its way out."""

    async def watch(self, request: Any, call: Call) -> AsyncGenerator[Any, None]:
        asyncio.get_running_loop().call_soon(call.cut_off, HeadgateError(REFUSED, "at once"))
        yield catalog.WatchResponse()


async def test_a_stream_that_is_cut_off_with_its_first_answer_is_told_why(transport: GrpcTransport) -> None:
    async with serving([CutOffAtOnce()]) as served:
        stream = transport.stream(served.address, WATCHING, catalog.WatchRequest(), timeout=30)
        error = await failure(collect(stream, []))
        assert (error.reason, error.message) == (REFUSED, "at once")


async def test_draining_finishes_calls_refuses_new_ones_and_ends_streams(transport: GrpcTransport) -> None:
    toy, watch = ToyFragments(), ToyWatch()
    async with serving([toy, watch]) as served:
        health = Client(transport, served.address, Health.descriptor)
        seen: list[int] = []

        async def follow() -> None:
            async for state in health.watch(health_pb2.HealthCheckRequest(service="")):
                seen.append(state.status)  # noqa: PERF401

        following = asyncio.ensure_future(follow())
        slow = asyncio.ensure_future(transport.call(served.address, START, start_request("slow"), timeout=60))
        stream: Any = transport.stream(served.address, WATCHING, catalog.WatchRequest(name="silent"), timeout=None)
        await anext(stream)
        await eventually(lambda: toy.seen == ["slow"] and seen == [States.SERVING])
        draining = asyncio.ensure_future(served.server.drain())
        error = await failure(anext(stream))
        assert error.reason is SHUTTING_DOWN
        assert watch.closed == 1
        error = await failure(transport.call(served.address, STATUS, status_request(1), timeout=20))
        assert error.reason is SHUTTING_DOWN
        assert (await headers_only_error(served.address)).reason is SHUTTING_DOWN
        new = transport.stream(served.address, WATCHING, catalog.WatchRequest(), timeout=20)
        assert (await failure(collect(new, []))).reason is SHUTTING_DOWN
        assert (await health.check(health_pb2.HealthCheckRequest())).status == States.NOT_SERVING
        await eventually(lambda: seen == [States.SERVING, States.NOT_SERVING])
        assert not draining.done()
        toy.release.set()
        assert await slow == cluster.StartFragmentResponse()
        assert await draining is True
    with pytest.raises(HeadgateError):
        await following


async def test_calls_that_outlast_the_grace_are_told_that_they_may_have_happened(transport: GrpcTransport) -> None:
    toy = ToyFragments()
    async with serving([toy], limits=LimitsConfig(drain=0.05)) as served:
        slow = asyncio.ensure_future(transport.call(served.address, START, start_request("slow"), timeout=60))
        await eventually(lambda: toy.seen == ["slow"])
        assert await served.server.drain() is False
        error = await failure(slow)
        assert error.reason is UNREACHABLE
        assert "before this call had finished" in error.message
        assert toy.seen == ["slow", "cancelled"]


async def test_calls_waiting_in_line_when_draining_begins_are_still_done(transport: GrpcTransport) -> None:
    toy = ToyFragments()
    async with serving([toy], limits=LimitsConfig(in_flight=1, queue=5)) as served:
        calls = [
            asyncio.ensure_future(transport.call(served.address, START, start_request("slow"), timeout=60))
            for _ in range(3)
        ]
        await eventually(lambda: served.sample("headgate_rpc_queued") == 2)
        draining = asyncio.ensure_future(served.server.drain())
        await asyncio.sleep(0)
        toy.release.set()
        await asyncio.gather(*calls)
        assert await draining is True


async def test_a_caller_that_gives_up_in_line_leaves_it(transport: GrpcTransport) -> None:
    toy = ToyFragments()
    async with serving([toy], limits=LimitsConfig(in_flight=1, queue=5)) as served:
        first = asyncio.ensure_future(transport.call(served.address, START, start_request("slow"), timeout=60))
        await eventually(lambda: toy.seen == ["slow"])
        second = asyncio.ensure_future(transport.call(served.address, START, start_request("slow"), timeout=60))
        await eventually(lambda: served.sample("headgate_rpc_queued") == 1)
        second.cancel()
        await eventually(lambda: served.sample("headgate_rpc_queued") == 0)
        toy.release.set()
        await first
        assert toy.seen == ["slow"]


async def test_trailers_travel_with_answers_and_with_errors() -> None:
    class Telling(ToyFragments):
        async def start_fragment(self, request: Any, call: Call) -> Any:
            call.trailers["leader"] = "127.0.0.1:1"
            return await super().start_fragment(request, call)

    async with serving([Telling()]) as served, grpc.aio.insecure_channel(served.address) as channel:
        call: Any = channel.unary_unary(START.path)(start_request("x").SerializeToString(), timeout=20)
        await call
        assert ("leader", "127.0.0.1:1") in tuple(await call.trailing_metadata())
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(START.path)(start_request("refused").SerializeToString(), timeout=20)
        assert ("leader", "127.0.0.1:1") in tuple(caught.value.trailing_metadata())
        assert status_of(caught.value).reason.name == "REFUSED"


async def test_a_trace_goes_through_a_server_to_the_servers_it_calls(transport: GrpcTransport) -> None:
    class Front(ToyFragments):
        async def start_fragment(self, request: Any, call: Call) -> Any:
            await transport.call(behind.address, START, request, timeout=20)
            return await super().start_fragment(request, call)

    last = ToyFragments()
    async with serving([last]) as behind, serving([Front()]) as front:
        metadata = (("traceparent", TRACEPARENT), ("tracestate", "a=b"))
        async with grpc.aio.insecure_channel(front.address) as channel:
            await channel.unary_unary(START.path)(start_request("x").SerializeToString(), timeout=20, metadata=metadata)
            assert last.calls[0].metadata["traceparent"] == TRACEPARENT
            assert last.calls[0].metadata["tracestate"] == "a=b"
            await channel.unary_unary(START.path)(start_request("x").SerializeToString(), timeout=20)
            assert "traceparent" not in last.calls[1].metadata


async def test_the_caller_is_known_to_the_handler(transport: GrpcTransport) -> None:
    toy = ToyFragments()
    async with serving([toy]) as served:
        await transport.call(served.address, START, start_request("x"), timeout=20)
    assert toy.calls[0].peer.startswith("ipv4:127.0.0.1:")


async def test_calls_are_counted_and_timed(transport: GrpcTransport) -> None:
    async with serving([ToyFragments()]) as served:
        for uid in ("x", "y", "refused"):
            with suppress(HeadgateError):
                await transport.call(served.address, START, start_request(uid), timeout=20)
        method = START.path[1:]
        assert served.sample("headgate_rpc_total", method=method) == 3
        assert served.sample("headgate_rpc_errors_total", method=method, reason="REFUSED") == 1
        assert served.sample("headgate_rpc_seconds_count", method=method) == 3


async def test_two_servers_do_not_share_a_port() -> None:
    async with serving([ToyFragments()]) as served:
        with pytest.raises(ConfigError, match=f"cannot listen on {served.address}"):
            RpcServer(RpcMetrics(CollectorRegistry())).bind(served.address)


@pytest.mark.slow
async def test_a_peer_that_was_away_for_long_is_found_again_soon(transport: GrpcTransport) -> None:
    """The channel's own back-off is capped at a second; without the cap it would be ten after this time."""
    address = f"127.0.0.1:{free_port()}"
    for _ in range(20):
        assert (await failure(transport.call(address, STATUS, status_request(1), timeout=20))).reason is UNREACHABLE
        await asyncio.sleep(1)
    server = await started_at(address)
    for _ in range(100):
        try:
            await transport.call(address, STATUS, status_request(1), timeout=20)
            break
        except HeadgateError as error:
            assert error.reason is UNREACHABLE
            await asyncio.sleep(0.05)
    else:
        raise AssertionError("the peer is up and is not found")
    await server.stop()


async def started_at(address: str) -> RpcServer:
    server = RpcServer(RpcMetrics(CollectorRegistry()))
    server.bind(address)
    await server.start([ToyFragments()])
    return server


async def test_a_channel_is_kept_for_each_address_and_can_be_forgotten() -> None:
    toy = ToyFragments()
    async with GrpcTransport() as transport, serving([toy]) as served:
        for _ in range(3):
            await transport.call(served.address, START, start_request("x"), timeout=20)
        assert len({call.peer for call in toy.calls}) == 1
        await transport.forget(served.address)
        await transport.call(served.address, START, start_request("x"), timeout=20)
        assert len({call.peer for call in toy.calls}) == 2


async def test_forgetting_a_peer_ends_its_calls_with_an_error_and_cancels_nobody() -> None:
    """A task that calls must not look cancelled because another closed the channel."""
    toy = ToyFragments()
    async with GrpcTransport() as transport, serving([toy, ToyWatch()]) as served:
        call = asyncio.ensure_future(transport.call(served.address, START, start_request("slow"), timeout=60))
        revisions: list[int] = []
        watching = transport.stream(served.address, WATCHING, catalog.WatchRequest(name="silent"), timeout=None)
        stream = asyncio.ensure_future(collect(watching, revisions))
        await eventually(lambda: toy.seen == ["slow"] and revisions == [1])
        await transport.forget(served.address)
        assert (await failure(call)).reason is UNREACHABLE
        assert (await failure(stream)).reason is UNREACHABLE
        await eventually(lambda: toy.seen == ["slow", "cancelled"])


async def test_a_task_that_is_cancelled_as_its_call_ends_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC takes the cancellation for its own, sees that the call has ended well, and raises an error that says OK."""

    async def ends_as_it_is_cancelled(*arguments: object, **settings: object) -> bytes:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            none = grpc.aio.Metadata()
            raise grpc.aio.AioRpcError(grpc.StatusCode.OK, none, none) from None
        return b""

    async with GrpcTransport() as transport, serving([ToyFragments()]) as served:
        peer = transport._peer(served.address)
        monkeypatch.setattr(type(peer), "unary", lambda peer, path: ends_as_it_is_cancelled)
        call = asyncio.ensure_future(transport.call(served.address, START, start_request("x"), timeout=20))
        await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call


async def test_a_closed_transport_makes_no_new_channels() -> None:
    transport = GrpcTransport()
    await transport.close()
    with pytest.raises(RuntimeError, match="closed"):
        await transport.call("127.0.0.1:1", STATUS, status_request(1), timeout=1)


async def test_a_client_has_the_methods_of_its_service_by_name(transport: GrpcTransport) -> None:
    async with serving([ToyFragments(), ToyWatch()]) as served:
        client = Client(transport, served.address, FRAGMENTS)
        assert (await client.get_status(status_request(7), timeout=20)).version == 7
        watch = Client(transport, served.address, WATCH)
        revisions: list[int] = []
        await collect(watch.watch(catalog.WatchRequest(name="3")), revisions)
        assert revisions == [1, 2, 3]
        with pytest.raises(AttributeError, match="get_status"):
            client.no_such_method  # noqa: B018


async def test_the_generated_stubs_work_too() -> None:
    async with serving([ToyFragments(), ToyWatch()]) as served, grpc.aio.insecure_channel(served.address) as channel:
        stub: Any = cluster.FragmentServiceStub(channel)
        assert (await stub.GetStatus(status_request(7), timeout=20)).version == 7
        health: Any = health_pb2_grpc.HealthStub(channel)
        assert (await health.Check(health_pb2.HealthCheckRequest())).status == States.SERVING
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await health.Check(health_pb2.HealthCheckRequest(service="no.Such"))
        assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_tracing_makes_spans_of_calls_served_and_made() -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider.get_tracer("test"))
    async with serving([ToyFragments(), ToyWatch()], tracing=tracing) as served, GrpcTransport(tracing=tracing) as made:
        await made.call(served.address, STATUS, status_request(1), timeout=20)
        await collect(made.stream(served.address, WATCHING, catalog.WatchRequest(name="2"), timeout=20), [])
        await failure(made.call(served.address, START, start_request("refused"), timeout=20))
    spans = {(span.name.rpartition("/")[2], span.kind.name): span for span in exporter.get_finished_spans()}
    for method in ("GetStatus", "Watch", "StartFragment"):
        server, client = spans[method, "SERVER"], spans[method, "CLIENT"]
        assert server.context.trace_id == client.context.trace_id
    assert (spans["StartFragment", "SERVER"].attributes or {})["error.type"] == "REFUSED"


@pytest.mark.parametrize(("name", "value"), [("leader", "ä"), ("leader", "a\nb"), ("leader", "\x00"), ("Leader", "x")])
async def test_a_trailer_that_cannot_be_sent_is_a_defect_and_not_a_broken_call(
    transport: GrpcTransport, name: str, value: str
) -> None:
    class Careless(ToyFragments):
        async def start_fragment(self, request: Any, call: Call) -> Any:
            call.trailers[name] = value
            return await super().start_fragment(request, call)

    async with serving([Careless()]) as served:
        error = await failure(transport.call(served.address, START, start_request("x"), timeout=20))
        assert error.reason is INTERNAL
        error = await failure(transport.call(served.address, START, start_request("refused"), timeout=20))
        assert error.reason.name == "REFUSED", "an error is told all the same"
