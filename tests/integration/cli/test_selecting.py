"""A SELECT without INTO goes on while the coordinator is away: rows come from an agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from google.protobuf.descriptor import ServiceDescriptor
from prometheus_client import CollectorRegistry

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import agent_service_pb2, query_service_pb2
from headgate.cluster import v1 as cluster
from headgate.cluster.v1 import result_service_pb2
from headgate_cli.connection import Connection
from headgate_cli.failures import Failure
from headgate_cli.output import Output
from headgate_cli.selecting import Rows, select
from headgate_cli.statements import split
from headgate_common.dispatch import Call, Service, methods, snake_case
from headgate_common.errors import UNIMPLEMENTED, HeadgateError
from headgate_common.metrics import RpcMetrics
from headgate_common.rpc import RpcServer
from headgate_common.transport import GrpcTransport

DEADLINE_SECONDS = 60
QUERY = catalog.Query(name="temporary", uid="query-1", temporary=True, state=catalog.QUERY_STATE_RUNNING)


def answering(descriptor: ServiceDescriptor, **answers: Callable[[Any], Any]) -> Service:
    """A service that answers some of its methods."""

    def handler(name: str) -> Any:
        async def handle(self: Any, request: Any, call: Call) -> Any:
            if name not in answers:
                raise HeadgateError(UNIMPLEMENTED, name)
            return answers[name](request)

        return handle

    made: dict[str, Any] = {snake_case(name): handler(snake_case(name)) for name in methods(descriptor)}
    service: Service = type("Answering", (), {"descriptor": descriptor, **made})()
    return service


class Agent:
    """Gives rows as it is told to, and the end."""

    descriptor = result_service_pb2.DESCRIPTOR.services_by_name["ResultService"]

    def __init__(self) -> None:
        self.rows: asyncio.Queue[str | None] = asyncio.Queue()

    async def read_results(
        self, request: cluster.ReadResultsRequest, call: Call
    ) -> AsyncIterator[cluster.ReadResultsResponse]:
        yield cluster.ReadResultsResponse(schema=catalog.Schema(fields=[catalog.Field(name="a", type="INT32")]))
        while (row := await self.rows.get()) is not None:
            yield cluster.ReadResultsResponse(rows=[row])
        yield cluster.ReadResultsResponse(ended=True)


class Coordinator:
    """Knows one query and one agent, and can be killed and started again where it was."""

    def __init__(self, agent: str) -> None:
        self.query = catalog.Query()
        self.query.CopyFrom(QUERY)
        self.address = "127.0.0.1:0"
        self.looks = 0
        self.dropped = False
        sink = catalog.Fragment(kind=catalog.FRAGMENT_KIND_SINK, agent="a")
        self._services = [
            answering(
                query_service_pb2.DESCRIPTOR.services_by_name["QueryService"],
                create_query=lambda _: catalog.CreateQueryResponse(query=self.query),
                get_query=self._get_query,
                list_fragments=lambda _: catalog.ListFragmentsResponse(fragments=[sink]),
                drop_query=self._drop_query,
            ),
            answering(
                agent_service_pb2.DESCRIPTOR.services_by_name["AgentService"],
                get_agent=lambda _: catalog.GetAgentResponse(agent=catalog.Agent(name="a", address=agent)),
            ),
        ]
        self._server: RpcServer | None = None

    def _get_query(self, request: catalog.GetQueryRequest) -> catalog.GetQueryResponse:
        self.looks += 1
        return catalog.GetQueryResponse(query=self.query)

    def _drop_query(self, request: catalog.DropQueryRequest) -> catalog.DropQueryResponse:
        self.dropped = True
        return catalog.DropQueryResponse()

    async def start(self) -> None:
        self._server = RpcServer(RpcMetrics(CollectorRegistry()))
        self.address = self._server.bind(self.address)
        await self._server.start(self._services)

    async def kill(self) -> None:
        if self._server is not None:
            await self._server.stop()
        self._server = None


class Selecting:
    """A SELECT that runs, and what has come of it."""

    def __init__(self, agent: Agent, coordinator: Coordinator, task: asyncio.Task[None], rows: list[object]) -> None:
        self.agent = agent
        self.coordinator = coordinator
        self.task = task
        self.rows = rows

    async def until(self, look: Callable[[], bool]) -> None:
        """Waits for that, and for no end before it."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not look():
                assert not self.task.done(), self.task
                await asyncio.sleep(0.02)


@asynccontextmanager
async def selecting() -> AsyncIterator[Selecting]:
    agent = Agent()
    serving = RpcServer(RpcMetrics(CollectorRegistry()))
    address = serving.bind("127.0.0.1:0")
    await serving.start([agent])
    coordinator = Coordinator(address)
    await coordinator.start()
    rows: list[object] = []
    (piece,) = split("SELECT a FROM s")
    try:
        async with GrpcTransport() as transport:
            connection = Connection(transport, coordinator.address, timeout=5)
            task = asyncio.create_task(select(connection, piece, Rows(Output.JSON, rows)))
            try:
                yield Selecting(agent, coordinator, task, rows)
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError, Failure, HeadgateError):
                    await task
    finally:
        await coordinator.kill()
        await serving.stop()


async def test_rows_come_before_during_and_after_a_restart_of_the_coordinator(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with selecting() as select_:
        agent, coordinator = select_.agent, select_.coordinator
        said = ""

        def tells(text: str) -> bool:
            nonlocal said
            said += capsys.readouterr().err
            return text in said

        agent.rows.put_nowait('{"a":1}')
        await select_.until(lambda: len(select_.rows) == 1 and coordinator.looks > 0)
        await coordinator.kill()
        await select_.until(lambda: tells("the coordinator went away (UNREACHABLE); trying again"))
        agent.rows.put_nowait('{"a":2}')
        await select_.until(lambda: len(select_.rows) == 2)
        await coordinator.start()
        looks = coordinator.looks
        await select_.until(lambda: coordinator.looks > looks)
        agent.rows.put_nowait('{"a":3}')
        agent.rows.put_nowait(None)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await select_.task
        assert select_.rows == [{"a": 1}, {"a": 2}, {"a": 3}]
        assert coordinator.dropped
        tells("")
        assert said.count("went away") == 1, said
