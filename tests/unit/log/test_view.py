"""The view follows the catalog through everything that can happen to a watch."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from typing import Any

import grpc
import pytest

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import watch_service_pb2
from headgate.log import v1 as api
from headgate_agent.coordinators import Coordinators
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.view import CatalogView
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call, Dispatcher, Method
from headgate_common.errors import UNREACHABLE, HeadgateError, Reason

COMPACTED = Reason("REVISION_COMPACTED", grpc.StatusCode.OUT_OF_RANGE, "")
NOT_LEADER = Reason("NOT_LEADER", grpc.StatusCode.UNAVAILABLE, "")
KEY = PartitionKey("t1", 0)


def agent(name: str, present: bool = True) -> catalog.Resource:
    roles = [catalog.AGENT_ROLE_LOG]
    return catalog.Resource(agent=catalog.Agent(name=name, address=f"{name}:1", roles=roles, present=present))


def topic(uid: str, name: str = "orders") -> catalog.Resource:
    return catalog.Resource(topic=api.Topic(uid=uid, name=name, partitions=1))


def partition(leader: str, epoch: int) -> catalog.Resource:
    return catalog.Resource(partition=api.Partition(topic_uid="t1", index=0, leader=leader, epoch=epoch))


def snapshot(revision: int, *resources: catalog.Resource, complete: bool = True) -> catalog.WatchResponse:
    return catalog.WatchResponse(
        snapshot=catalog.WatchSnapshot(revision=revision, resources=resources, complete=complete)
    )


def events(revision: int, *changed: catalog.Resource, gone: tuple[catalog.Resource, ...] = ()) -> catalog.WatchResponse:
    made = [catalog.WatchEvent(operation=catalog.WATCH_OPERATION_UPDATE, current=one) for one in changed]
    made += [catalog.WatchEvent(operation=catalog.WATCH_OPERATION_DROP, previous=one) for one in gone]
    return catalog.WatchResponse(events=catalog.WatchEvents(revision=revision, events=made))


class Watched:
    """Plays one script for each watch; the last one is then silent."""

    descriptor = watch_service_pb2.DESCRIPTOR.services_by_name["WatchService"]

    def __init__(self, *scripts: list[catalog.WatchResponse | HeadgateError]) -> None:
        self.scripts = list(scripts)
        self.asked: list[int] = []

    async def watch(self, request: catalog.WatchRequest, call: Call) -> AsyncGenerator[catalog.WatchResponse, None]:
        self.asked.append(request.from_revision)
        script = self.scripts.pop(0) if self.scripts else []
        for one in script:
            if isinstance(one, HeadgateError):
                raise one
            yield one
        await asyncio.Event().wait()

    async def get_snapshot(self, request: Any, call: Call) -> Any:
        raise NotImplementedError


class Wires:
    def __init__(self, **servers: Watched) -> None:
        self.servers = {f"{name}:1": Dispatcher([one]) for name, one in servers.items()}

    async def call(self, address: str, method: Method, request: Any, *, timeout: float) -> Any:
        raise NotImplementedError

    async def stream(self, address: str, method: Method, request: Any, *, timeout: float | None) -> Any:
        async for one in self.servers[address].stream(method.path, request, Call()):
            yield one


class Following:
    def __init__(self, silence: float = 30.0, **servers: Watched) -> None:
        coordinators = Coordinators(Wires(**servers), [f"{name}:1" for name in servers], timeout=1.0)
        backoff = Backoff(initial=0.001, cap=0.01)
        self.view = CatalogView(
            coordinators, clock=SystemClock(), source=random.Random(1), backoff=backoff, silence=silence
        )

    async def __aenter__(self) -> CatalogView:
        self.task = asyncio.create_task(self.view.run())
        return self.view

    async def __aexit__(self, *_: Any) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - any condition
            await asyncio.sleep(0.002)


async def test_a_snapshot_becomes_visible_only_when_it_is_complete() -> None:
    server = Watched([snapshot(5, agent("a"), complete=False)])
    async with Following(one=server) as view:
        await asyncio.sleep(0.05)
        assert not list(view.peers()) and view.revision == 0
    whole = Watched([snapshot(5, agent("a"), complete=False), snapshot(5, topic("t1"), partition("a", 3))])
    async with Following(one=whole) as view:
        await asyncio.wait_for(view.caught_up(5), 60)
        assert [peer.name for peer in view.peers()] == ["a"]
        assert view.topic("orders") is view.topic_by_uid("t1") is not None
        assert (view.leadership(KEY).leader, view.leadership(KEY).epoch) == ("a", 3)


async def test_changes_are_followed_and_listeners_told() -> None:
    server = Watched(
        [snapshot(1, agent("a"), topic("t1")), events(2, partition("a", 1)), events(3, agent("a", present=False))]
    )
    told: list[int] = []
    following = Following(one=server)
    following.view.listen(lambda: told.append(following.view.revision))
    async with following as view:
        await asyncio.wait_for(view.caught_up(3), 60)
        peer = view.peer("a")
        assert peer is not None and not peer.present
        assert told == [1, 2, 3]


async def test_a_topic_that_is_created_again_is_another_and_takes_its_name() -> None:
    server = Watched(
        [snapshot(1, topic("t1"), partition("a", 1)), events(2, topic("t2"), gone=(topic("t1"),)), events(3)]
    )
    async with Following(one=server) as view:
        await asyncio.wait_for(view.caught_up(3), 60)
        found = view.topic("orders")
        assert found is not None and found.uid == "t2"
        assert view.topic_by_uid("t1") is None
        assert view.leadership(KEY).leader == ""


async def test_a_broken_watch_resumes_where_it_was() -> None:
    server = Watched(
        [snapshot(7, agent("a")), HeadgateError(UNREACHABLE, "broke")],
        [events(8, agent("b"))],
    )
    async with Following(one=server) as view:
        await asyncio.wait_for(view.caught_up(8), 60)
        assert server.asked == [0, 7]
        assert {peer.name for peer in view.peers()} == {"a", "b"}


async def test_history_that_is_gone_means_a_new_snapshot_that_replaces_everything() -> None:
    server = Watched(
        [snapshot(7, agent("a")), HeadgateError(UNREACHABLE, "broke")],
        [HeadgateError(COMPACTED, "gone")],
        [snapshot(90, agent("b"))],
    )
    async with Following(one=server) as view:
        await asyncio.wait_for(view.caught_up(90), 60)
        assert server.asked == [0, 7, 0]
        assert [peer.name for peer in view.peers()] == ["b"]


async def test_a_standby_names_the_leader_which_is_asked_next() -> None:
    named = HeadgateError(NOT_LEADER, "not me", metadata={"leader": "two:1"})
    standby = Watched([named], [named])
    leader = Watched([snapshot(3, agent("a"))])
    async with Following(one=standby, two=leader) as view:
        await asyncio.wait_for(view.caught_up(3), 60)
        assert len(standby.asked) == 1


async def test_a_silent_watch_is_broken_off_and_resumed() -> None:
    server = Watched([snapshot(3, agent("a"))], [events(4, agent("b"))])
    async with Following(silence=0.05, one=server) as view:
        await asyncio.wait_for(view.caught_up(4), 60)
        assert server.asked[:2] == [0, 3]


@pytest.mark.parametrize("state", [api.TRANSFER_STATE_COMPLETED, api.TRANSFER_STATE_REJECTED])
async def test_only_open_transfers_are_known(state: Any) -> None:
    def transfer(state: Any) -> catalog.Resource:
        return catalog.Resource(transfer=api.Transfer(uid="x", state=state))

    server = Watched([snapshot(1, transfer(api.TRANSFER_STATE_PENDING)), events(2, transfer(state))])
    seen: list[int] = []
    following = Following(one=server)
    following.view.listen(lambda: seen.append(len(list(following.view.transfers()))))
    async with following as view:
        await asyncio.wait_for(view.caught_up(2), 60)
    assert seen == [1, 0]


async def test_agents_without_the_role_are_no_peers() -> None:
    fragments = catalog.Resource(agent=catalog.Agent(name="f", roles=[catalog.AGENT_ROLE_FRAGMENTS], present=True))
    async with Following(one=Watched([snapshot(1, fragments, agent("a"))])) as view:
        await until(lambda: view.revision == 1)
        assert [peer.name for peer in view.peers()] == ["a"]
