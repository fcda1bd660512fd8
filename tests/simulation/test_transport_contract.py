"""The simulated transport gives the same answers and the same typed errors as gRPC: one suite for both.

The suite is that of `tests.unit.common`, which `tests/integration/common` runs over gRPC, and what is asked beyond it
here of streams on both sides, run over gRPC and in simulation. Cases assert outcomes, never times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, Protocol

import pytest

from headgate.log import v1 as log
from headgate_common.dispatch import Call, ConversingTransport, Dispatcher, Service
from headgate_common.errors import DEADLINE_EXCEEDED, UNIMPLEMENTED, UNREACHABLE, HeadgateError
from headgate_common.transport import GrpcTransport
from headgate_simulation.loop import Domain, SimulationLoop
from headgate_simulation.streams import stream
from headgate_simulation.trace import Trace
from headgate_simulation.transport import Network, SimulatedTransport
from tests.integration.common.serving import serving
from tests.servers.tcp_proxy import TcpProxy
from tests.unit.common.transport_contract import (
    CASES,
    CONVERSATIONS,
    PROBLEM,
    REASONS,
    REFUSED,
    TALKING,
    TIMEOUT,
    ToyTalk,
    ToyWatch,
    answers,
    eventually,
    failure,
    said,
)

LARGE = 100_000
# More requests of that size than any buffer between two processes holds.
MANY = 2_000


class Stage(Protocol):
    """Where the cases take place. `transport` must have been made with `REASONS` of `tests.unit.common`."""

    @property
    def transport(self) -> ConversingTransport: ...

    async def start(self, services: Sequence[Service]) -> str:
        """Serves these, and returns the address."""
        ...

    async def dies(self, address: str) -> None:
        """The server at the address is gone, without a word."""
        ...


class Talk(ToyTalk):
    """Does what the topic of its first request says."""

    def __init__(self) -> None:
        super().__init__()
        self.cancelled = 0
        self.timeout: float | None = None

    async def stream_produce(self, requests: AsyncIterator[Any], call: Call) -> AsyncGenerator[Any, None]:
        self.timeout = call.timeout
        try:
            first = await anext(requests)
            self.heard += 1
            async for response in getattr(self, f"_{first.parts[0].topic_uid}")(requests):
                yield response
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.closed += 1

    async def _listens(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """To all, and says only then how many there were."""
        async for _ in requests:
            self.heard += 1
        yield number(self.heard)
        yield number(-1)

    async def _speaks(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """At once and by itself, while it listens."""
        listening = asyncio.ensure_future(self._order(requests))
        for count in range(100):
            yield number(count)
            await asyncio.sleep(0)
        assert await listening == list(range(1, 100))

    async def _order(self, requests: AsyncIterator[Any]) -> list[int]:
        return [request.parts[0].partition async for request in requests]

    async def _refuses(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        yield number(1)
        raise HeadgateError(REFUSED, "not today: ä", metadata={"why": "because"}, details=[PROBLEM], retry_after=1.5)

    async def _leaves(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        yield number(1)

    async def _waits(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """For requests that do not come, after an answer; and for good, if it takes its caller's leave for an end."""
        yield number(1)
        async for _ in requests:
            self.heard += 1
        await asyncio.Event().wait()

    async def _sleeps(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        """Reads nothing more."""
        yield number(1)
        await asyncio.Event().wait()


def number(value: int) -> Any:
    return log.StreamProduceResponse(parts=[log.ProducedPart(base_offset=value)])


async def endless(topic: str) -> AsyncIterator[Any]:
    """One request, and then neither another nor an end."""
    async for one in said(topic):
        yield one
    await asyncio.Event().wait()


async def an_end_of_requests_is_heard_and_answered(stage: Stage) -> None:
    toy = Talk()
    address = await stage.start([toy])
    heard: list[int] = []
    await answers(stage.transport.converse(address, TALKING, said("listens", *["t"] * 49), timeout=TIMEOUT), heard)
    assert heard == [50, -1]


async def both_sides_speak_at_once_and_in_order(stage: Stage) -> None:
    toy = Talk()
    address = await stage.start([toy])
    heard: list[int] = []
    await answers(stage.transport.converse(address, TALKING, said("speaks", *["t"] * 99), timeout=TIMEOUT), heard)
    assert heard == list(range(100))


async def a_typed_error_in_the_middle_arrives_whole(stage: Stage) -> None:
    toy = Talk()
    address = await stage.start([toy])
    heard: list[int] = []
    # The caller has not ended its requests, and need not, to be told.
    error = await failure(
        answers(stage.transport.converse(address, TALKING, endless("refuses"), timeout=TIMEOUT), heard)
    )
    assert heard == [1]
    assert error.reason is REFUSED
    assert error.message == "not today: ä"
    assert error.metadata == {"why": "because"}
    assert list(error.details) == [PROBLEM]
    assert error.retry_after == 1.5


async def a_conversation_may_end_before_its_requests(stage: Stage) -> None:
    address = await stage.start([Talk()])
    heard: list[int] = []
    await answers(stage.transport.converse(address, TALKING, endless("leaves"), timeout=TIMEOUT), heard)
    assert heard == [1]


async def requests_are_closed_when_the_call_is_over(stage: Stage) -> None:
    """Also where nobody would ever ask for the next one."""
    address = await stage.start([Talk()])
    closed: list[str] = []

    async def noting(topic: str) -> AsyncIterator[Any]:
        try:
            async for one in endless(topic):
                yield one
        finally:
            closed.append(topic)

    await failure(answers(stage.transport.converse(address, TALKING, noting("refuses"), timeout=TIMEOUT), []))
    await eventually(lambda: closed == ["refuses"])
    await answers(stage.transport.converse(address, TALKING, noting("leaves"), timeout=TIMEOUT), [])
    await eventually(lambda: closed == ["refuses", "leaves"])


async def a_caller_that_gives_up_cancels_the_handler_where_it_listens(stage: Stage) -> None:
    toy = Talk()
    address = await stage.start([toy])
    heard: list[int] = []
    talking = asyncio.ensure_future(
        answers(stage.transport.converse(address, TALKING, endless("waits"), timeout=TIMEOUT), heard)
    )
    await eventually(lambda: heard == [1])
    talking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await talking
    await eventually(lambda: (toy.cancelled, toy.closed) == (1, 1))


async def requests_that_break_end_the_call_on_both_sides(stage: Stage) -> None:
    """What the iterator raised stays with whoever wrote it; the server must not take it for an end."""
    toy = Talk()
    address = await stage.start([toy])
    heard: list[int] = []
    turn = asyncio.Event()

    async def breaking() -> AsyncIterator[Any]:
        async for one in said("waits"):
            yield one
        await turn.wait()
        raise ValueError("the secret of the house")

    async def talk() -> None:
        async for response in stage.transport.converse(address, TALKING, breaking(), timeout=TIMEOUT):
            heard.append(response.parts[0].base_offset)  # type: ignore[attr-defined]
            turn.set()

    error = await failure(talk())
    assert error.reason is UNREACHABLE
    assert "secret" not in str(error)
    assert heard == [1]
    await eventually(lambda: (toy.cancelled, toy.closed) == (1, 1))


async def a_server_that_dies_is_unreachable(stage: Stage) -> None:
    address = await stage.start([Talk()])
    heard: list[int] = []

    async def talk() -> None:
        async for response in stage.transport.converse(address, TALKING, endless("waits"), timeout=None):
            heard.append(response.parts[0].base_offset)  # type: ignore[attr-defined]
            await stage.dies(address)

    assert (await failure(talk())).reason is UNREACHABLE
    assert heard == [1]


async def a_conversation_has_a_deadline_where_one_is_set(stage: Stage) -> None:
    toy = Talk()
    address = await stage.start([toy])
    heard: list[int] = []
    error = await failure(answers(stage.transport.converse(address, TALKING, endless("waits"), timeout=0.5), heard))
    assert error.reason is DEADLINE_EXCEEDED
    assert heard == [1]
    assert toy.timeout is not None and 0 < toy.timeout <= 1.5
    await eventually(lambda: toy.closed == 1)


async def a_server_that_does_not_listen_holds_its_caller_back(stage: Stage) -> None:
    toy = Talk()
    address = await stage.start([toy])
    taken = 0

    async def many() -> AsyncIterator[Any]:
        nonlocal taken
        async for one in said("sleeps"):
            yield one
        for _ in range(MANY):
            taken += 1
            yield log.StreamProduceRequest(parts=[log.ProducePart(topic_uid="t", batches=bytes(LARGE))])

    talk: Any = stage.transport.converse(address, TALKING, many(), timeout=None)
    async with aclosing(talk):
        await anext(talk)
        before = -1
        for _ in range(400):
            if taken == before:
                break
            before = taken
            await asyncio.sleep(0.25)
        assert taken == before and taken < MANY, "nothing held the caller back"
    await eventually(lambda: toy.closed == 1)


async def an_unknown_conversation_is_unimplemented(stage: Stage) -> None:
    address = await stage.start([ToyWatch()])
    error = await failure(answers(stage.transport.converse(address, TALKING, said("t"), timeout=TIMEOUT), []))
    assert error.reason is UNIMPLEMENTED


MORE_CONVERSATIONS: tuple[Callable[[Stage], Awaitable[None]], ...] = (
    an_end_of_requests_is_heard_and_answered,
    both_sides_speak_at_once_and_in_order,
    a_typed_error_in_the_middle_arrives_whole,
    a_conversation_may_end_before_its_requests,
    requests_are_closed_when_the_call_is_over,
    a_caller_that_gives_up_cancels_the_handler_where_it_listens,
    requests_that_break_end_the_call_on_both_sides,
    a_server_that_dies_is_unreachable,
    a_conversation_has_a_deadline_where_one_is_set,
    a_server_that_does_not_listen_holds_its_caller_back,
    an_unknown_conversation_is_unimplemented,
)


class SimulatedWorld:
    """Processes and a network between them."""

    def __init__(self, loop: SimulationLoop) -> None:
        self._loop = loop
        self._network = Network(loop, Trace(loop.time), 1, reasons=REASONS)
        self._servers: dict[str, Domain] = {}
        self.transport: SimulatedTransport = self._network.transport("caller", Domain("caller"))

    async def start(self, services: Sequence[Service]) -> str:
        name = f"server-{len(self._servers) + 1}"
        domain = self._servers[f"{name}:1"] = Domain(name)
        self._network.listen(f"{name}:1", name, domain, Dispatcher(services))
        return f"{name}:1"

    async def nowhere(self) -> str:
        return "nowhere:1"

    async def dies(self, address: str) -> None:
        self._network.gone(address, self._servers[address])
        self._loop.kill(self._servers[address])


@pytest.mark.parametrize("case", (*CASES, *CONVERSATIONS, *MORE_CONVERSATIONS), ids=lambda case: case.__name__)
def test_the_contract_holds_in_simulation(case: Callable[[Any], Awaitable[None]]) -> None:
    loop = SimulationLoop(stream(1, "loop"))  # type: ignore[abstract]

    async def main() -> None:
        await case(SimulatedWorld(loop))

    try:
        loop.run_until_complete(main())
        assert loop.errors == []
    finally:
        loop.close()


class GrpcStage:
    """Servers in this process, each behind a proxy that can be taken away."""

    def __init__(self, transport: GrpcTransport, stack: AsyncExitStack) -> None:
        self.transport = transport
        self._stack = stack
        self._proxies: dict[str, TcpProxy] = {}

    async def start(self, services: Sequence[Service]) -> str:
        served = await self._stack.enter_async_context(serving(services))
        proxy = TcpProxy(served.address)
        self._stack.callback(proxy.close)
        self._proxies[proxy.address] = proxy
        return proxy.address

    async def dies(self, address: str) -> None:
        self._proxies[address].close()


@pytest.fixture
async def stage() -> AsyncIterator[GrpcStage]:
    async with AsyncExitStack() as stack, GrpcTransport(reasons=REASONS) as transport:
        yield GrpcStage(transport, stack)


@pytest.mark.parametrize("case", MORE_CONVERSATIONS, ids=lambda case: case.__name__)
async def test_grpc_keeps_what_is_asked_of_conversations(
    case: Callable[[Stage], Awaitable[None]], stage: GrpcStage
) -> None:
    await case(stage)
