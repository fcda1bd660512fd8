"""A whole server process: its start, its pages, its end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from grpc_health.v1 import health_pb2

from headgate.catalog import v1 as catalog
from headgate_common.errors import SHUTTING_DOWN, UNREACHABLE, HeadgateError
from headgate_common.health import Health
from headgate_common.settings import TlsConfig
from headgate_common.tls import channel_credentials
from headgate_common.transport import Client, GrpcTransport
from tests.integration.common.test_http import get
from tests.servers.certificates import authority, signed
from tests.servers.ports import free_port
from tests.unit.common.transport_contract import (
    REASONS,
    START,
    STATUS,
    WATCHING,
    failure,
    start_request,
    status_request,
)

ROOT = Path(__file__).parents[3]
WAIT = 60.0


@dataclass(slots=True)
class Running:
    """A process of the toy server, and the events it has logged so far."""

    process: asyncio.subprocess.Process
    events: list[dict[str, Any]] = field(default_factory=list)
    other_lines: list[str] = field(default_factory=list)

    async def follow(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            try:
                self.events.append(json.loads(line))
            except ValueError:
                self.other_lines.append(line.decode())

    async def event(self, name: str) -> dict[str, Any]:
        async with asyncio.timeout(WAIT):
            while True:
                for event in self.events:
                    if event["event"] == name:
                        return event
                assert self.process.returncode is None, (name, self.events, self.other_lines)
                await asyncio.sleep(0.02)

    async def ended(self) -> int:
        return await asyncio.wait_for(self.process.wait(), WAIT)

    async def in_flight(self, kind: str, count: int) -> None:
        """Waits until so many calls are being worked on."""
        port = int((await self.event("listening"))["http"].rpartition(":")[2])
        async with asyncio.timeout(WAIT):
            while True:
                metrics = (await get(port, "/metrics"))[1].decode()
                if f'headgate_rpc_in_flight{{kind="{kind}"}} {count}.0' in metrics:
                    return
                await asyncio.sleep(0.02)

    def names(self) -> list[str]:
        return [event["event"] for event in self.events]


@asynccontextmanager
async def running(*arguments: str, environment: dict[str, str] | None = None) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.common.toy_server", "--log-format", "json", *arguments),
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    toy = Running(process)
    following = asyncio.ensure_future(toy.follow())
    try:
        yield toy
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await following


async def finished(*arguments: str, environment: dict[str, str] | None = None) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a process that ends by itself."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.integration.common.toy_server", *arguments),
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), WAIT)
    except TimeoutError:
        process.kill()
        raise
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.fixture
async def transport() -> AsyncIterator[GrpcTransport]:
    async with GrpcTransport(reasons=REASONS) as made:
        yield made


async def test_sigterm_finishes_calls_ends_streams_and_exits_with_0(transport: GrpcTransport) -> None:
    async with running("--set", "server.limits.drain=30s") as toy:
        address = (await toy.event("listening"))["address"]
        stream: Any = transport.stream(address, WATCHING, catalog.WatchRequest(name="silent"), timeout=None)
        await anext(stream)
        slow = asyncio.ensure_future(transport.call(address, START, start_request("slow"), timeout=5))
        await toy.in_flight("call", 1)
        toy.process.send_signal(signal.SIGTERM)
        assert (await failure(anext(stream))).reason is SHUTTING_DOWN
        await toy.event("draining")
        assert (await failure(transport.call(address, STATUS, status_request(1), timeout=WAIT))).reason is SHUTTING_DOWN
        assert toy.process.returncode is None, "a call is still in flight"
        await failure(slow)
        assert await toy.ended() == 0
    assert toy.names()[-3:] == ["leaving", "drained", "closed"], toy.events
    assert [event["finished"] for event in toy.events if event["event"] == "drained"] == [True]


async def test_calls_beyond_the_grace_are_cut_off(transport: GrpcTransport) -> None:
    async with running("--set", "server.limits.drain=200ms") as toy:
        address = (await toy.event("listening"))["address"]
        slow = asyncio.ensure_future(transport.call(address, START, start_request("slow"), timeout=WAIT))
        await toy.in_flight("call", 1)
        toy.process.send_signal(signal.SIGINT)
        assert (await failure(slow)).reason is UNREACHABLE
        assert await toy.ended() == 0
    assert [event["finished"] for event in toy.events if event["event"] == "drained"] == [False]


async def test_a_second_signal_ends_the_process_at_once(transport: GrpcTransport) -> None:
    async with running("--set", "server.limits.drain=10m") as toy:
        address = (await toy.event("listening"))["address"]
        slow = asyncio.ensure_future(transport.call(address, START, start_request("slow"), timeout=WAIT))
        await toy.in_flight("call", 1)
        toy.process.send_signal(signal.SIGTERM)
        await toy.event("draining")
        toy.process.send_signal(signal.SIGTERM)
        assert await toy.ended() == 128 + signal.SIGTERM
        assert (await failure(slow)).reason is UNREACHABLE
    assert "closed" not in toy.names()


async def test_a_signal_during_a_slow_start_ends_it() -> None:
    async with running("--set", "slow_start=10m") as toy:
        await toy.event("settings")
        await asyncio.sleep(0.3)
        toy.process.send_signal(signal.SIGTERM)
        assert await toy.ended() == 0
    assert "listening" not in toy.names()


async def test_a_failed_task_drains_the_server_and_exits_with_1() -> None:
    async with running("--set", "fail_after=100ms") as toy:
        assert await toy.ended() == 1
    assert toy.names()[-3:] == ["leaving", "drained", "closed"]
    (failed,) = [event for event in toy.events if event["event"] == "task failed"]
    assert failed["task"] == "breaking"
    assert "the toy broke" in failed["exception"]


async def test_readiness_is_told_by_page_and_by_health(transport: GrpcTransport) -> None:
    async with running("--set", "warm_up=3s") as toy:
        listening = await toy.event("listening")
        port = int(listening["http"].rpartition(":")[2])
        health = Client(transport, listening["address"], Health.descriptor)
        states: list[int] = []
        states.append((await health.check(health_pb2.HealthCheckRequest())).status)
        status, body = await get(port, "/ready")
        assert (status, json.loads(body)["reasons"]) == (503, ["warming up"])
        assert (await get(port, "/health"))[0] == 200
        async with asyncio.timeout(WAIT):
            async for state in health.watch(health_pb2.HealthCheckRequest()):
                states.append(state.status)
                if state.status == health_pb2.HealthCheckResponse.SERVING:
                    break
        assert states[0] == health_pb2.HealthCheckResponse.NOT_SERVING
        assert (await get(port, "/ready"))[0] == 200
        await transport.call(listening["address"], STATUS, status_request(1), timeout=WAIT)
        metrics = (await get(port, "/metrics"))[1].decode()
        assert 'headgate_rpc_total{method="headgate.cluster.v1.FragmentService/GetStatus"} 1.0' in metrics
        assert 'headgate_build_info{service="toy"' in metrics
        assert "process_resident_memory_bytes" in metrics


async def test_the_configuration_is_logged_without_secrets() -> None:
    arguments = ("--set", "password=hunter2", "--catalog", "postgresql://me:hunter2@host/db")
    async with running(*arguments, environment={"HEADGATE_TOY_WARM_UP": "1ms"}) as toy:
        settings = await toy.event("settings")
        await toy.event("listening")
    assert settings["config.password"] == "[redacted]"
    assert settings["config.catalog"] == "postgresql://me:[redacted]@host/db"
    assert settings["config.warm_up"] == "1ms"
    assert "hunter2" not in str(toy.events)


@pytest.mark.parametrize("flag", ["--listen", "--http-listen"])
async def test_another_address_than_loopback_is_refused_in_one_line(flag: str) -> None:
    code, _, err = await finished(flag, "0.0.0.0:0", "--advertise", "here:1")
    assert code == 2
    assert len(err.splitlines()) == 1
    assert "without TLS" in err and "--insecure" in err


async def test_insecure_and_advertise_allow_it() -> None:
    async with running("--listen", "0.0.0.0:0", "--insecure", "--advertise", "toy.example:1") as toy:
        assert (await toy.event("listening"))["advertise"] == "toy.example:1"
    code, _, err = await finished("--listen", "0.0.0.0:0", "--insecure")
    assert code == 2
    assert "--advertise" in err


async def test_tls_allows_it_and_is_used(tmp_path: Path) -> None:
    ours = authority(tmp_path, "ours")
    server = signed(tmp_path, "server", ours)
    flags = ("--tls-certificate", str(server.certificate), "--tls-key", str(server.key), "--advertise", "localhost:0")
    async with running("--listen", "0.0.0.0:0", *flags) as toy:
        address = (await toy.event("listening"))["advertise"]
        async with GrpcTransport(credentials=channel_credentials(TlsConfig(ca=ours.certificate))) as transport:
            await transport.call(address, STATUS, status_request(1), timeout=WAIT)


async def test_a_port_in_use_is_told_in_one_line() -> None:
    async with running() as toy:
        address = (await toy.event("listening"))["address"]
        code, _, err = await finished("--listen", address)
    assert code == 2
    assert f"cannot listen on {address}" in err
    assert "Traceback" not in err


async def test_a_typed_error_during_the_start_is_told_in_one_line() -> None:
    code, _, err = await finished("--set", "refuse_to_start=true")
    assert code == 1
    assert err.splitlines()[-1] == "headgate-toy: REFUSED: the toy does not start"
    assert "Traceback" not in err


async def test_show_config_says_where_each_value_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "toy.toml"
    file.write_text('profile = "patient"\n[server]\nlog_level = "debug"\n')
    code, out, _ = await finished("--config", str(file), "--set", "password=x", "--show-config")
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in out.splitlines()}
    assert code == 0
    assert lines["server.limits.drain"] == "1m profile patient"
    assert lines["server.log_level"] == f"debug {file}"
    assert lines["password"] == "[redacted] flag"
    assert lines["server.limits.queue"] == "256 default"


async def test_a_killed_server_is_found_again_at_the_same_address(transport: GrpcTransport) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with running("--listen", address) as toy:
        await toy.event("listening")
        slow = asyncio.ensure_future(transport.call(address, START, start_request("slow"), timeout=WAIT))
        await toy.in_flight("call", 1)
        toy.process.kill()
        assert (await failure(slow)).reason is UNREACHABLE
        await toy.ended()
    assert (await failure(transport.call(address, STATUS, status_request(1), timeout=WAIT))).reason is UNREACHABLE
    async with running("--listen", address) as toy:
        await toy.event("listening")
        for _ in range(100):
            try:
                await transport.call(address, STATUS, status_request(1), timeout=WAIT)
                break
            except HeadgateError as error:
                assert error.reason is UNREACHABLE
                await asyncio.sleep(0.05)
        else:
            raise AssertionError("the restarted server is not found")
