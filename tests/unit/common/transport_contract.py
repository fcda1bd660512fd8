"""What every `Transport` must do, whatever carries the calls: one suite for gRPC and for the simulator.

A runner gives each case of `CASES` a `World`: a transport, a way to start a server for plain service objects, and an
address where nobody listens. Cases assert outcomes, never times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import grpc
import pytest
from google.rpc import error_details_pb2

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.log import v1 as log
from headgate_common.dispatch import Call, ConversingTransport, Service, Transport, methods
from headgate_common.errors import (
    COMMON,
    DEADLINE_EXCEEDED,
    INTERNAL,
    INVALID_ARGUMENT,
    UNIMPLEMENTED,
    UNREACHABLE,
    HeadgateError,
    Reason,
    ReasonTable,
)

REASONS = ReasonTable(COMMON)
REFUSED = REASONS.declare("REFUSED", grpc.StatusCode.FAILED_PRECONDITION, "The toy does not want to.")
# A server may know reasons that its caller does not.
FOREIGN = Reason("FROM_A_LATER_VERSION", grpc.StatusCode.ABORTED, "Declared in no table of the caller.")

FRAGMENTS = cluster.fragment_service_pb2.DESCRIPTOR.services_by_name["FragmentService"]
WATCH = catalog.watch_service_pb2.DESCRIPTOR.services_by_name["WatchService"]
MEMBERSHIP = cluster.membership_service_pb2.DESCRIPTOR.services_by_name["MembershipService"]

LOG = log.log_service_pb2.DESCRIPTOR.services_by_name["LogService"]

START = methods(FRAGMENTS)["StartFragment"]
STATUS = methods(FRAGMENTS)["GetStatus"]
WATCHING = methods(WATCH)["Watch"]
LEAVE = methods(MEMBERSHIP)["LeaveCluster"]
TALKING = methods(LOG)["StreamProduce"]

PROBLEM = catalog.StatementProblem(step="BIND", line=2, column=7, message="no such column", suggestion="id")
TIMEOUT = 20.0


class World(Protocol):
    """Where the cases take place. `transport` must have been made with `REASONS`."""

    @property
    def transport(self) -> Transport: ...

    async def start(self, services: Sequence[Service]) -> str:
        """Serves these, and returns the address."""
        ...

    async def nowhere(self) -> str:
        """An address that refuses connections."""
        ...


class ToyFragments:
    """Does what the uid of the fragment says, and notes what it saw."""

    descriptor = FRAGMENTS

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.calls: list[Call] = []
        self.release = asyncio.Event()

    async def register_fragment(self, request: Any, call: Call) -> Any:
        return cluster.RegisterFragmentResponse()

    async def start_fragment(self, request: Any, call: Call) -> Any:
        uid = request.fragment.uid
        self.seen.append(uid)
        self.calls.append(call)
        if uid == "refused":
            raise HeadgateError(
                REFUSED, "not today: ä", metadata={"why": "because"}, details=[PROBLEM], retry_after=1.5
            )
        if uid == "foreign":
            raise HeadgateError(FOREIGN, "something new", metadata={"new": "yes"})
        if uid == "long":
            names = [f"query_{number:05d}" for number in range(2000)]
            bad = error_details_pb2.BadRequest()
            for name in names:
                bad.field_violations.add(field=name, description="is in the way " * 20)
            raise HeadgateError(
                REFUSED, "too many: " + ", ".join(names), metadata={"names": ",".join(names)}, details=[bad]
            )
        if uid == "defect":
            raise ValueError("the secret of the house")
        if uid == "wrong answer":
            return cluster.StopFragmentResponse()
        if uid == "slow":
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.seen.append("cancelled")
                raise
        return cluster.StartFragmentResponse()

    async def stop_fragment(self, request: Any, call: Call) -> Any:
        return cluster.StopFragmentResponse()

    async def unregister_fragment(self, request: Any, call: Call) -> Any:
        return cluster.UnregisterFragmentResponse()

    async def get_status(self, request: Any, call: Call) -> Any:
        """Answers with what was asked, after as many turns of the loop as `since` says."""
        for _ in range(request.since % 7):
            await asyncio.sleep(0)
        return cluster.GetStatusResponse(version=request.since, incarnation=request.command.incarnation)


class ToyWatch:
    """Counts up from `from_revision`; `name` says how many, or how it ends."""

    descriptor = WATCH

    def __init__(self) -> None:
        self.closed = 0
        self.sent = 0

    async def watch(self, request: Any, call: Call) -> AsyncGenerator[Any, None]:
        revision = request.from_revision
        try:
            if request.name == "refused":
                raise HeadgateError(REFUSED, "no stream today", metadata={"why": "because"})
            while True:
                revision += 1
                self.sent += 1
                if request.name == "large":
                    snapshot = catalog.WatchSnapshot(revision=revision)
                    snapshot.resources.add().sink.name = "x" * 100_000
                    yield catalog.WatchResponse(snapshot=snapshot)
                else:
                    yield catalog.WatchResponse(bookmark=catalog.WatchBookmark(revision=revision))
                if request.name.isdecimal() and revision - request.from_revision >= int(request.name):
                    return
                if request.name == "breaks" and revision - request.from_revision == 3:
                    raise HeadgateError(REFUSED, "broken", metadata={"revision": str(revision)})
                if request.name == "defect":
                    raise ValueError("the secret of the house")
                if request.name == "silent":
                    await asyncio.Event().wait()
                await asyncio.sleep(0)
        finally:
            self.closed += 1

    async def get_snapshot(self, request: Any, call: Call) -> Any:
        return catalog.GetSnapshotResponse(revision=7)


def start_request(uid: str) -> Any:
    return cluster.StartFragmentRequest(command=cluster.Command(term=1), fragment=cluster.FragmentRef(uid=uid, epoch=1))


def status_request(since: int, incarnation: str = "") -> Any:
    return cluster.GetStatusRequest(command=cluster.Command(incarnation=incarnation), since=since)


async def eventually(holds: Callable[[], bool]) -> None:
    """Waits until something is so; fails if it does not become so."""
    for _ in range(400):
        if holds():
            return
        await asyncio.sleep(0.025)
    raise AssertionError("did not become so")


async def failure(call: Awaitable[Any]) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        await call
    return caught.value


async def collect(responses: Any, into: list[int]) -> None:
    """Reads a stream to its end; what came before an error is kept."""
    async for response in responses:
        into.append(response.bookmark.revision)  # noqa: PERF401


async def the_answer_comes_back(world: World) -> None:
    address = await world.start([ToyFragments()])
    answer: Any = await world.transport.call(address, STATUS, status_request(41, "me"), timeout=TIMEOUT)
    assert answer == cluster.GetStatusResponse(version=41, incarnation="me")


async def concurrent_calls_get_their_own_answers(world: World) -> None:
    address = await world.start([ToyFragments()])
    answers: list[Any] = await asyncio.gather(
        *(world.transport.call(address, STATUS, status_request(n), timeout=TIMEOUT) for n in range(50))
    )
    assert [answer.version for answer in answers] == list(range(50))


async def a_typed_error_arrives_whole(world: World) -> None:
    address = await world.start([ToyFragments()])
    error = await failure(world.transport.call(address, START, start_request("refused"), timeout=TIMEOUT))
    assert error.reason is REFUSED
    assert error.message == "not today: ä"
    assert error.metadata == {"why": "because"}
    assert list(error.details) == [PROBLEM]
    assert error.retry_after == 1.5


async def an_unknown_reason_keeps_its_name_and_code(world: World) -> None:
    address = await world.start([ToyFragments()])
    error = await failure(world.transport.call(address, START, start_request("foreign"), timeout=TIMEOUT))
    assert (error.reason.name, error.reason.code) == (FOREIGN.name, FOREIGN.code)
    assert error.metadata == {"new": "yes"}


async def an_error_with_too_much_to_say_still_arrives(world: World) -> None:
    address = await world.start([ToyFragments()])
    error = await failure(world.transport.call(address, START, start_request("long"), timeout=TIMEOUT))
    assert error.reason is REFUSED
    assert error.message.startswith("too many: query_00000, query_00001")
    assert error.message.endswith("...")
    assert error.metadata["names"].startswith("query_00000,")
    (bad,) = error.details
    assert isinstance(bad, error_details_pb2.BadRequest)
    assert bad.field_violations[0].field == "query_00000"


async def a_defect_is_internal_and_says_nothing_of_the_inside(world: World) -> None:
    address = await world.start([ToyFragments(), ToyWatch()])
    answered = world.transport.call(address, START, start_request("defect"), timeout=TIMEOUT)
    streamed = collect(world.transport.stream(address, WATCHING, catalog.WatchRequest(name="defect"), timeout=None), [])
    wrong = world.transport.call(address, START, start_request("wrong answer"), timeout=TIMEOUT)
    for call in (answered, streamed, wrong):
        error = await failure(call)
        assert error.reason is INTERNAL
        assert error.metadata["incident"] in error.message
        assert "secret" not in str(error)


async def nobody_there_is_unreachable(world: World) -> None:
    address = await world.nowhere()
    error = await failure(world.transport.call(address, STATUS, status_request(1), timeout=TIMEOUT))
    assert error.reason is UNREACHABLE
    stream = world.transport.stream(address, WATCHING, catalog.WatchRequest(), timeout=TIMEOUT)
    assert (await failure(collect(stream, []))).reason is UNREACHABLE


async def no_answer_in_time_is_deadline_exceeded_and_cancels_the_handler(world: World) -> None:
    toy = ToyFragments()
    address = await world.start([toy])
    error = await failure(world.transport.call(address, START, start_request("slow"), timeout=0.5))
    assert error.reason is DEADLINE_EXCEEDED
    await eventually(lambda: toy.seen == ["slow", "cancelled"])


async def a_caller_that_gives_up_cancels_the_handler(world: World) -> None:
    toy = ToyFragments()
    address = await world.start([toy])
    call = asyncio.ensure_future(world.transport.call(address, START, start_request("slow"), timeout=TIMEOUT))
    await eventually(lambda: toy.seen == ["slow"])
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await eventually(lambda: toy.seen == ["slow", "cancelled"])


async def the_handler_knows_how_long_its_caller_waits(world: World) -> None:
    toy = ToyFragments()
    address = await world.start([toy])
    await world.transport.call(address, START, start_request("quick"), timeout=TIMEOUT)
    (call,) = toy.calls
    assert call.timeout is not None
    assert 0 < call.timeout <= TIMEOUT + 1


async def an_invalid_request_names_the_field_and_reaches_no_handler(world: World) -> None:
    toy = ToyFragments()
    address = await world.start([toy, ToyWatch()])
    error = await failure(world.transport.call(address, START, start_request(""), timeout=TIMEOUT))
    assert error.reason is INVALID_ARGUMENT
    assert error.metadata["field"] == "fragment.uid"
    (bad,) = error.details
    assert [violation.field for violation in bad.field_violations] == ["fragment.uid"]  # type: ignore[attr-defined]
    assert toy.seen == []
    request = catalog.WatchRequest(kinds=[catalog.RESOURCE_KIND_SINK, catalog.RESOURCE_KIND_UNSPECIFIED])
    error = await failure(collect(world.transport.stream(address, WATCHING, request, timeout=TIMEOUT), []))
    assert error.reason is INVALID_ARGUMENT
    assert error.metadata["field"] == "kinds[1]"


async def an_unknown_method_is_unimplemented(world: World) -> None:
    address = await world.start([ToyFragments()])
    request = cluster.LeaveClusterRequest(name="a", incarnation="b")
    error = await failure(world.transport.call(address, LEAVE, request, timeout=TIMEOUT))
    assert error.reason is UNIMPLEMENTED
    assert LEAVE.path in error.message
    stream = world.transport.stream(address, WATCHING, catalog.WatchRequest(), timeout=TIMEOUT)
    assert (await failure(collect(stream, []))).reason is UNIMPLEMENTED


async def a_stream_is_in_order_and_ends(world: World) -> None:
    address = await world.start([ToyWatch()])
    revisions: list[int] = []
    request = catalog.WatchRequest(name="300", from_revision=10)
    await collect(world.transport.stream(address, WATCHING, request, timeout=None), revisions)
    assert revisions == list(range(11, 311))


async def a_stream_that_is_refused_says_why(world: World) -> None:
    address = await world.start([ToyWatch()])
    stream = world.transport.stream(address, WATCHING, catalog.WatchRequest(name="refused"), timeout=None)
    error = await failure(collect(stream, []))
    assert error.reason is REFUSED
    assert error.metadata == {"why": "because"}


async def a_stream_that_breaks_gives_what_came_before_and_then_the_error(world: World) -> None:
    address = await world.start([ToyWatch()])
    revisions: list[int] = []
    stream = world.transport.stream(address, WATCHING, catalog.WatchRequest(name="breaks"), timeout=None)
    error = await failure(collect(stream, revisions))
    assert revisions == [1, 2, 3]
    assert error.reason is REFUSED
    assert error.metadata == {"revision": "3"}


async def closing_a_stream_closes_its_generator(world: World) -> None:
    for name in ("", "silent"):
        toy = ToyWatch()
        address = await world.start([toy])
        stream: Any = world.transport.stream(address, WATCHING, catalog.WatchRequest(name=name), timeout=None)
        async with aclosing(stream):
            await anext(stream)
        await eventually(lambda toy=toy: toy.closed == 1)  # type: ignore[misc]


async def a_stream_has_a_deadline_where_one_is_set(world: World) -> None:
    toy = ToyWatch()
    address = await world.start([toy])
    revisions: list[int] = []
    stream = world.transport.stream(address, WATCHING, catalog.WatchRequest(name="silent"), timeout=0.5)
    error = await failure(collect(stream, revisions))
    assert error.reason is DEADLINE_EXCEEDED
    assert revisions == [1]
    await eventually(lambda: toy.closed == 1)


async def a_slow_reader_holds_its_server_back(world: World) -> None:
    toy = ToyWatch()
    address = await world.start([toy])
    stream: Any = world.transport.stream(address, WATCHING, catalog.WatchRequest(name="large"), timeout=None)
    async with aclosing(stream):
        await anext(stream)
        before = -1
        for _ in range(400):
            if toy.sent == before:
                break
            before = toy.sent
            await asyncio.sleep(0.25)
        assert toy.sent == before, "the server never stopped sending"
        for expected in range(2, before + 10):
            assert (await anext(stream)).snapshot.revision == expected


CASES: tuple[Callable[[World], Awaitable[None]], ...] = (
    the_answer_comes_back,
    concurrent_calls_get_their_own_answers,
    a_typed_error_arrives_whole,
    an_unknown_reason_keeps_its_name_and_code,
    an_error_with_too_much_to_say_still_arrives,
    a_defect_is_internal_and_says_nothing_of_the_inside,
    nobody_there_is_unreachable,
    no_answer_in_time_is_deadline_exceeded_and_cancels_the_handler,
    a_caller_that_gives_up_cancels_the_handler,
    the_handler_knows_how_long_its_caller_waits,
    an_invalid_request_names_the_field_and_reaches_no_handler,
    an_unknown_method_is_unimplemented,
    a_stream_is_in_order_and_ends,
    a_stream_that_is_refused_says_why,
    a_stream_that_breaks_gives_what_came_before_and_then_the_error,
    closing_a_stream_closes_its_generator,
    a_stream_has_a_deadline_where_one_is_set,
    a_slow_reader_holds_its_server_back,
)


class ToyTalk:
    """Answers each request with its partition; a topic of the name of a mishap makes it happen."""

    descriptor = LOG

    def __init__(self) -> None:
        self.closed = 0
        self.heard = 0

    def __getattr__(self, name: str) -> Any:
        """The other methods of the service, which nobody calls here."""
        if name.startswith("_"):
            raise AttributeError(name)

        async def unary(request: Any, call: Call) -> Any:
            raise NotImplementedError

        async def streaming(request: Any, call: Call) -> AsyncGenerator[Any, None]:
            for _ in ():
                yield _

        return streaming if name in ("tail_records", "stream_fetch") else unary

    async def stream_produce(self, requests: AsyncIterator[Any], call: Call) -> AsyncGenerator[Any, None]:
        try:
            async for request in requests:
                self.heard += 1
                (part,) = request.parts
                if part.topic_uid == "refused":
                    raise HeadgateError(REFUSED, "enough", metadata={"heard": str(self.heard)})
                if part.topic_uid == "defect":
                    raise ValueError("the secret of the house")
                yield log.StreamProduceResponse(parts=[log.ProducedPart(base_offset=part.partition)])
        finally:
            self.closed += 1


class TalkingWorld(Protocol):
    @property
    def transport(self) -> ConversingTransport: ...

    async def start(self, services: Sequence[Service]) -> str: ...

    async def nowhere(self) -> str: ...


async def said(*topics: str) -> AsyncIterator[Any]:
    for number, topic in enumerate(topics):
        yield log.StreamProduceRequest(parts=[log.ProducePart(topic_uid=topic, partition=number)])


async def answers(responses: Any, into: list[int]) -> None:
    async for response in responses:
        into.append(response.parts[0].base_offset)  # noqa: PERF401


async def a_conversation_is_answered_in_order_and_ends_with_its_requests(world: TalkingWorld) -> None:
    address = await world.start([ToyTalk()])
    heard: list[int] = []
    await answers(world.transport.converse(address, TALKING, said(*["t"] * 200), timeout=TIMEOUT), heard)
    assert heard == list(range(200))


async def a_conversation_answers_before_its_last_request(world: TalkingWorld) -> None:
    address = await world.start([ToyTalk()])
    turn = asyncio.Event()

    async def waiting() -> AsyncIterator[Any]:
        async for one in said("t"):
            yield one
        await turn.wait()
        async for one in said("t", "t"):
            yield one

    talk: Any = world.transport.converse(address, TALKING, waiting(), timeout=TIMEOUT)
    async with aclosing(talk):
        assert (await anext(talk)).parts[0].base_offset == 0
        turn.set()
        assert [one.parts[0].base_offset async for one in talk] == [0, 1]


async def a_conversation_that_is_refused_gives_what_came_before_and_then_the_error(world: TalkingWorld) -> None:
    toy = ToyTalk()
    address = await world.start([toy])
    heard: list[int] = []
    talk = world.transport.converse(address, TALKING, said("t", "t", "refused", "t"), timeout=TIMEOUT)
    error = await failure(answers(talk, heard))
    assert heard == [0, 1]
    assert error.reason is REFUSED
    assert error.metadata == {"heard": "3"}
    await eventually(lambda: toy.closed == 1)


async def a_bad_request_in_a_conversation_names_its_field(world: TalkingWorld) -> None:
    toy = ToyTalk()
    address = await world.start([toy])
    heard: list[int] = []
    error = await failure(answers(world.transport.converse(address, TALKING, said("t", ""), timeout=TIMEOUT), heard))
    assert error.reason is INVALID_ARGUMENT
    assert error.metadata["field"] == "parts[0].topic_uid"
    assert (heard, toy.heard) == ([0], 1)


async def a_defect_in_a_conversation_says_nothing_of_the_inside(world: TalkingWorld) -> None:
    address = await world.start([ToyTalk()])
    error = await failure(answers(world.transport.converse(address, TALKING, said("defect"), timeout=TIMEOUT), []))
    assert error.reason is INTERNAL
    assert "secret" not in str(error)


async def nobody_to_talk_to_is_unreachable(world: TalkingWorld) -> None:
    talk = world.transport.converse(await world.nowhere(), TALKING, said("t"), timeout=TIMEOUT)
    assert (await failure(answers(talk, []))).reason is UNREACHABLE


async def closing_a_conversation_closes_its_generator(world: TalkingWorld) -> None:
    toy = ToyTalk()
    address = await world.start([toy])

    async def endless() -> AsyncIterator[Any]:
        async for one in said("t"):
            yield one
        await asyncio.Event().wait()

    talk: Any = world.transport.converse(address, TALKING, endless(), timeout=None)
    async with aclosing(talk):
        await anext(talk)
    await eventually(lambda: toy.closed == 1)


# For transports that carry streams of requests too.
CONVERSATIONS: tuple[Callable[[TalkingWorld], Awaitable[None]], ...] = (
    a_conversation_is_answered_in_order_and_ends_with_its_requests,
    a_conversation_answers_before_its_last_request,
    a_conversation_that_is_refused_gives_what_came_before_and_then_the_error,
    a_bad_request_in_a_conversation_names_its_field,
    a_defect_in_a_conversation_says_nothing_of_the_inside,
    nobody_to_talk_to_is_unreachable,
    closing_a_conversation_closes_its_generator,
)
