"""The simulated network: what a caller sees, what a server sees, and how the two may differ."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from typing import Any

import grpc
import pytest

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.dispatch import Call, Dispatcher, methods
from headgate_common.errors import COMMON, HeadgateError, ReasonTable
from headgate_simulation.calls import STREAM_WINDOW
from headgate_simulation.loop import SimulationLoop
from headgate_simulation.processes import Environment, Process
from headgate_simulation.streams import stream
from headgate_simulation.trace import Trace
from headgate_simulation.transport import Network, SimulatedTransport

REASONS = ReasonTable(COMMON)
REFUSED = REASONS.declare("REFUSED", grpc.StatusCode.FAILED_PRECONDITION, "No.")
LEAVE = methods(cluster.membership_service_pb2.DESCRIPTOR.services_by_name["MembershipService"])["LeaveCluster"]
WATCH = methods(catalog.watch_service_pb2.DESCRIPTOR.services_by_name["WatchService"])["Watch"]


class Membership:
    """Writes down who left; refuses the name `no`; takes a second over `slow`."""

    descriptor = cluster.membership_service_pb2.DESCRIPTOR.services_by_name["MembershipService"]

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    async def register_agent(self, request: Any, call: Call) -> Any:
        return cluster.RegisterAgentResponse()

    async def renew_session(self, request: Any, call: Call) -> Any:
        return cluster.RenewSessionResponse()

    async def find_fragments(self, request: Any, call: Call) -> Any:
        return cluster.FindFragmentsResponse()

    async def keep_starts(self, request: Any, call: Call) -> Any:
        return cluster.KeepStartsResponse()

    async def leave_cluster(self, request: Any, call: Call) -> Any:
        if request.name == "no":
            raise HeadgateError(REFUSED, "never", metadata={"why": "because"}, retry_after=1.5)
        if request.name == "defect":
            raise ValueError("a defect")
        if request.name == "slow":
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                self.notes.append("cancelled")
                raise
        self.notes.append(request.name)
        return cluster.LeaveClusterResponse()


class Watch:
    """Counts up from `from_revision`, for good."""

    descriptor = catalog.watch_service_pb2.DESCRIPTOR.services_by_name["WatchService"]

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    async def watch(self, request: Any, call: Call) -> AsyncIterator[Any]:
        revision = request.from_revision
        try:
            while revision < 1000:
                revision += 1
                self.notes.append(f"sent {revision}")
                yield catalog.WatchResponse(bookmark=catalog.WatchBookmark(revision=revision))
                if request.name == "paced":
                    await asyncio.sleep(1)
            raise HeadgateError(REFUSED, "that was all")
        finally:
            self.notes.append("closed")

    async def get_snapshot(self, request: Any, call: Call) -> Any:
        return catalog.GetSnapshotResponse()


class Idle:
    async def stop(self) -> None:
        pass


class Fixture:
    def __init__(self, seed: int) -> None:
        self.loop = SimulationLoop(stream(seed, "loop"))  # type: ignore[abstract]
        self.trace = Trace(self.loop.time)
        self.network = Network(self.loop, self.trace, seed, reasons=REASONS)
        self.notes: list[str] = []
        self.server = self.process("server", self._serve)
        self.client = self.process("client", self._idle)
        self.client.start()
        assert self.client.domain is not None
        self.transport: SimulatedTransport = self.network.transport("client", self.client.domain)

    def process(self, name: str, program: Callable[[Environment], Coroutine[Any, Any, Idle]]) -> Process:
        return Process(
            name=name,
            address=f"{name}:1",
            program=program,
            durable=None,
            loop=self.loop,
            network=self.network,
            trace=self.trace,
            seed=1,
        )

    async def _serve(self, environment: Environment) -> Idle:
        environment.serve(Dispatcher([Membership(self.notes), Watch(self.notes)], environment.ids))
        return Idle()

    async def _idle(self, environment: Environment) -> Idle:
        return Idle()

    async def leave(self, name: str, timeout: float = 2.0) -> Any:
        request = cluster.LeaveClusterRequest(name=name, incarnation="i")
        return await self.transport.call("server:1", LEAVE, request, timeout=timeout)

    async def reason(self, name: str, timeout: float = 2.0) -> str:
        with pytest.raises(HeadgateError) as caught:
            await self.leave(name, timeout)
        return caught.value.reason.name

    def watch(self, name: str = "", start: int = 0, timeout: float | None = None) -> AsyncIterator[Any]:
        request = catalog.WatchRequest(name=name, from_revision=start)
        return self.transport.stream("server:1", WATCH, request, timeout=timeout)


def simulate(test: Callable[[Fixture], Coroutine[Any, Any, Any]], seed: int = 1, *, serving: bool = True) -> Any:
    fixture = Fixture(seed)
    if serving:
        fixture.server.start()

    async def main() -> Any:
        await asyncio.sleep(0.01)
        return await test(fixture)

    try:
        result = fixture.loop.run_until_complete(main())
        assert fixture.loop.errors == []
        return result
    finally:
        fixture.loop.close()


def test_a_call_is_answered_after_the_delay_of_both_directions() -> None:
    async def test(f: Fixture) -> None:
        f.network.link("client", "server").delay = 0.5
        f.network.link("server", "client").delay = 0.25
        began = f.loop.time()
        await f.leave("a")
        assert 0.75 <= f.loop.time() - began < 0.76
        assert f.notes == ["a"]

    simulate(test)


def test_a_typed_error_keeps_reason_metadata_and_retry_delay() -> None:
    async def test(f: Fixture) -> None:
        with pytest.raises(HeadgateError) as caught:
            await f.leave("no")
        assert caught.value.reason is REFUSED
        assert caught.value.metadata == {"why": "because"}
        assert caught.value.retry_after == 1.5

    simulate(test)


def test_rules_of_the_proto_and_defects_are_answered_as_over_grpc() -> None:
    async def test(f: Fixture) -> None:
        assert await f.reason("") == "INVALID_ARGUMENT"
        assert await f.reason("defect") == "INTERNAL"

    simulate(test)


def test_nobody_listening_is_unreachable() -> None:
    async def test(f: Fixture) -> None:
        assert await f.reason("a") == "UNREACHABLE"
        assert f.loop.time() < 0.1

    simulate(test, serving=False)


def test_a_lost_request_did_not_happen_and_a_lost_answer_did() -> None:
    async def test(f: Fixture) -> None:
        f.network.link("client", "server").loss = 1.0
        assert await f.reason("a") == "DEADLINE_EXCEEDED"
        assert f.notes == []
        f.network.link("client", "server").loss = 0.0
        f.network.link("server", "client").loss = 1.0
        assert await f.reason("b") == "DEADLINE_EXCEEDED"
        assert f.notes == ["b"]

    simulate(test)


def test_a_one_way_partition_lets_the_other_direction_through() -> None:
    async def test(f: Fixture) -> None:
        f.network.link("server", "client").blocked = 1
        assert await f.reason("a") == "DEADLINE_EXCEEDED"
        f.network.link("server", "client").blocked = 0
        await f.leave("b")
        assert f.notes == ["a", "b"]

    simulate(test)


def test_a_slow_request_happens_after_its_caller_gave_up() -> None:
    async def test(f: Fixture) -> None:
        f.network.link("client", "server").slow = 3000.0
        assert await f.reason("a", timeout=1.0) == "DEADLINE_EXCEEDED"
        assert f.notes == []
        await asyncio.sleep(20)
        assert f.notes == ["a"]

    simulate(test)


def test_a_duplicated_request_is_handled_twice_and_answered_once() -> None:
    async def test(f: Fixture) -> None:
        f.network.link("client", "server").duplication = 1.0
        await f.leave("a")
        await asyncio.sleep(10)
        assert f.notes == ["a", "a"]

    simulate(test)


def test_messages_overtake_each_other() -> None:
    async def test(f: Fixture) -> list[str]:
        f.network.link("client", "server").spread = 1.0
        await asyncio.gather(*(f.leave(str(n)) for n in range(10)))
        return list(f.notes)

    orders = {tuple(simulate(test, seed)) for seed in range(5)}
    assert len(orders) == 5
    assert simulate(test, 3) == simulate(test, 3)


def test_a_caller_that_gives_up_cancels_the_handler() -> None:
    async def test(f: Fixture) -> None:
        assert await f.reason("slow", timeout=0.5) == "DEADLINE_EXCEEDED"
        await asyncio.sleep(2)
        assert f.notes == ["cancelled"]

    simulate(test)


def test_a_crash_resets_or_silences_calls_in_flight_and_they_have_no_effect() -> None:
    async def test(f: Fixture) -> str:
        call = asyncio.ensure_future(f.reason("slow", timeout=3.0))
        await asyncio.sleep(0.5)
        f.server.crash()
        reason = await call
        await asyncio.sleep(5)
        assert f.notes == []
        f.server.start()
        await asyncio.sleep(0.1)
        await f.leave("b")
        assert f.notes == ["b"]
        return reason

    assert {simulate(test, seed) for seed in range(12)} == {"UNREACHABLE", "DEADLINE_EXCEEDED"}


def test_a_paused_server_answers_late_and_a_paused_caller_times_out_late() -> None:
    async def test(f: Fixture) -> None:
        f.server.pause()
        assert await f.reason("a", timeout=1.0) == "DEADLINE_EXCEEDED"
        f.server.resume()
        await asyncio.sleep(0.1)
        assert f.notes == ["a"]

    simulate(test)


def test_a_stream_keeps_its_order_and_ends_with_the_error_of_the_service() -> None:
    async def test(f: Fixture) -> None:
        f.network.link("server", "client").spread = 1.0
        seen = []
        with pytest.raises(HeadgateError) as caught:
            async for response in f.watch(start=900):
                seen += [response.bookmark.revision]
        assert seen == list(range(901, 1001))
        assert caught.value.reason is REFUSED

    simulate(test)


def test_a_reader_that_does_not_read_holds_the_server_back() -> None:
    async def test(f: Fixture) -> None:
        async with aclosing(f.watch()) as responses:  # type: ignore[type-var]
            await anext(responses)
            await asyncio.sleep(100)
            assert len(f.notes) <= STREAM_WINDOW + 2

    simulate(test)


def test_closing_a_stream_ends_the_call() -> None:
    async def test(f: Fixture) -> None:
        async with aclosing(f.watch("paced")) as responses:  # type: ignore[type-var]
            async for response in responses:
                if response.bookmark.revision == 3:
                    break
        await asyncio.sleep(1)
        assert f.notes[-1] == "closed"
        count = len(f.notes)
        await asyncio.sleep(20)
        assert len(f.notes) == count

    simulate(test)


def test_a_stream_through_a_partition_breaks_on_both_sides() -> None:
    async def test(f: Fixture) -> None:
        f.loop.call_later(3.0, setattr, f.network.link("server", "client"), "blocked", 1)
        seen = []
        with pytest.raises(HeadgateError) as caught:
            async for response in f.watch("paced"):
                seen += [response.bookmark.revision]
        assert caught.value.reason.name == "UNREACHABLE"
        assert seen == list(range(1, len(seen) + 1)) and len(seen) >= 3
        await asyncio.sleep(20)
        assert f.notes[-1] == "closed"

    simulate(test)


def test_a_stream_has_a_deadline() -> None:
    async def test(f: Fixture) -> None:
        with pytest.raises(HeadgateError) as caught:
            async for _ in f.watch("paced", timeout=2.5):
                pass
        assert caught.value.reason.name == "DEADLINE_EXCEEDED"

    simulate(test)
