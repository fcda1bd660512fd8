"""A process of a cluster is said to be ready once, and again when another took its place."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from grpc_health.v1 import health_pb2

from headgate_cli import readiness
from headgate_cli.connection import Connection
from headgate_cli.layout import Member
from headgate_cli.readiness import Readiness
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Method
from headgate_common.errors import UNREACHABLE, HeadgateError


class Process:
    """A process whose id and health a test sets."""

    def __init__(self) -> None:
        self.pid: int | None = 1
        self.serving: bool | None = None

    async def call(
        self, address: str, method: Method, request: object, *, timeout: float
    ) -> health_pb2.HealthCheckResponse:
        states = health_pb2.HealthCheckResponse
        if self.serving is None:
            raise HeadgateError(UNREACHABLE, "nobody listens")
        return states(status=states.SERVING if self.serving else states.NOT_SERVING)


@pytest.mark.parametrize("told", [False, True])
async def test_each_process_is_announced_once(monkeypatch: pytest.MonkeyPatch, told: bool) -> None:
    monkeypatch.setattr(readiness, "_LOOK_SECONDS", 0.001)
    process, said = Process(), list[str]()
    engine = Member("engine 1", "headgate-engine", (), 1, 2, Path("x.log"), 1)
    following = Readiness(Connection(process, "c:1", 1.0), lambda _: process.pid, said.append, SystemClock())  # type: ignore[arg-type]
    task = asyncio.ensure_future(following.follow([engine], [engine] if told else []))

    async def settle(serving: bool | None, pid: int | None) -> list[str]:
        process.serving, process.pid = serving, pid
        await asyncio.sleep(0.05)
        return [line.partition(":")[0] for line in said]

    first = [] if told else ["engine 1 is ready"]
    assert await settle(None, 1) == []
    assert await settle(False, 1) == []
    assert await settle(True, 1) == first
    # Unready for a while, but the same process: nothing was restarted, so there is nothing to say.
    assert await settle(False, 1) == first
    assert await settle(True, 1) == first
    assert await settle(None, None) == first
    assert await settle(True, 2) == [*first, "engine 1 is ready again"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
