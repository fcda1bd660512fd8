"""The health service."""

from __future__ import annotations

import asyncio

import pytest
from grpc_health.v1 import health_pb2

from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError
from headgate_common.health import Health

States = health_pb2.HealthCheckResponse


def asked(name: str) -> health_pb2.HealthCheckRequest:
    return health_pb2.HealthCheckRequest(service=name)


async def test_each_service_and_the_server_itself_are_told() -> None:
    health = Health()
    health.cover(["a.B"])
    for name in ("", "a.B"):
        assert (await health.check(asked(name), Call())).status == States.NOT_SERVING
    health.set(serving=True)
    listed = (await health.list(health_pb2.HealthListRequest(), Call())).statuses
    assert {name: state.status for name, state in listed.items()} == {"": States.SERVING, "a.B": States.SERVING}
    with pytest.raises(HeadgateError) as caught:
        await health.check(asked("no.Such"), Call())
    assert caught.value.reason.code.name == "NOT_FOUND"


async def test_a_watcher_is_told_at_once_and_at_every_change() -> None:
    health = Health()
    health.cover(["a.B"])
    watch = health.watch(asked("a.B"), Call())
    assert (await anext(watch)).status == States.NOT_SERVING
    following = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    health.set(serving=False)
    await asyncio.sleep(0)
    assert not following.done(), "nothing changed"
    health.set(serving=True)
    assert (await asyncio.wait_for(following, 60)).status == States.SERVING
    following = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    assert not following.done(), "told once for each change"
    health.set(serving=False)
    assert (await asyncio.wait_for(following, 60)).status == States.NOT_SERVING
    # A change between two looks is not lost.
    health.set(serving=True)
    assert (await asyncio.wait_for(anext(watch), 60)).status == States.SERVING
    await watch.aclose()


async def test_a_watcher_of_an_unknown_service_is_told_so_and_may_stay() -> None:
    health = Health()
    watch = health.watch(asked("later.Service"), Call())
    assert (await anext(watch)).status == States.SERVICE_UNKNOWN
    await watch.aclose()
