"""Connections are counted from the moment in which they are accepted, leave open files to others, and are swept."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headgate_agent.kafka.codec import Header
from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.kafka.connection import Client, Connection
from headgate_agent.kafka.listener import Listener
from headgate_agent.kafka.outgoing import Reply
from headgate_agent.kafka.port import tls_context
from headgate_common import descriptors
from headgate_common.clock import SystemClock
from headgate_common.settings import TlsConfig
from tests.servers.certificates import authority, signed
from tests.unit.kafka.few_files import CLIENTS

ROOT = Path(__file__).parents[3]


async def answer(given: memoryview, header: Header, client: Client) -> Reply:
    return Reply([b"answer"])


async def until(holds: Any) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def listening(limits: KafkaLimits, context: ssl.SSLContext | None = None) -> tuple[Listener, tuple[str, int]]:
    made = Listener(answer, limits, SystemClock())
    return made, await made.start("127.0.0.1", 0, context)


def connected(stack: ExitStack, address: tuple[str, int]) -> socket.socket:
    return stack.enter_context(socket.create_connection(address, timeout=30))


async def closed(client: socket.socket) -> bool:
    def read() -> bool:
        try:
            return client.recv(1) == b""
        except ConnectionError:
            return True

    return await asyncio.to_thread(read)


async def test_connections_leave_open_files_for_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(descriptors, "limit", lambda: 260)
    listener, address = await listening(KafkaLimits(descriptors_kept=256, drain=0.1, warn_interval=600.0))
    assert listener.most == 4
    (said,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert (said.connections, said.configured, said.descriptors) == (4, 10_000, 260)  # type: ignore[attr-defined]
    with ExitStack() as stack:
        for _ in range(4):
            connected(stack, address)
        await until(lambda: listener.connections == 4)
        for _ in range(20):
            assert await closed(connected(stack, address))
        assert listener.connections == 4
    refused = [record for record in caplog.records if record.getMessage() == "kafka connection refused"]
    assert len(refused) == 1, "not a line for each"
    await listener.close()


async def test_as_many_as_configured_are_nothing_to_warn_of(caplog: pytest.LogCaptureFixture) -> None:
    listener, _ = await listening(KafkaLimits(connections=5, descriptors_kept=16, drain=0.1))
    assert listener.most == 5
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    await listener.close()


async def test_a_tls_handshake_that_does_not_end_counts_and_is_cut_off(tmp_path: Path) -> None:
    ours = signed(tmp_path, "ours", by=authority(tmp_path, "ca"))
    context = tls_context(TlsConfig(certificate=ours.certificate, key=ours.key))
    listener, address = await listening(KafkaLimits(connections=3, drain=0.1, stalled=0.5), context)
    with ExitStack() as stack:
        silent = [connected(stack, address) for _ in range(3)]
        await until(lambda: listener.connections == 3)
        assert await closed(connected(stack, address)), "a fourth is one too many"
        for client in silent:
            assert await closed(client)
        await until(lambda: listener.connections == 0)
    await listener.close()


async def test_a_stop_ends_handshakes(tmp_path: Path) -> None:
    ours = signed(tmp_path, "ours", by=authority(tmp_path, "ca"))
    context = tls_context(TlsConfig(certificate=ours.certificate, key=ours.key))
    listener, address = await listening(KafkaLimits(drain=30.0), context)
    with ExitStack() as stack:
        client = connected(stack, address)
        await until(lambda: listener.connections == 1)
        async with asyncio.timeout(20):
            await listener.close()
        assert await closed(client)
        assert listener.connections == 0


def test_that_open_files_have_run_out_is_logged_once_and_accepted_is_when_there_are_some() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.kafka.few_files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "0", str(CLIENTS)]


async def test_a_connection_that_cannot_be_looked_over_does_not_keep_the_others_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listener, address = await listening(KafkaLimits(drain=0.1, idle=0.2, sweep_interval=0.02))
    sweep, broken = Connection.sweep, set[Connection]()

    def fails(connection: Connection, now: float) -> None:
        if not broken or connection in broken:
            broken.add(connection)
            raise ValueError("a defect")
        sweep(connection, now)

    monkeypatch.setattr(Connection, "sweep", fails)
    with ExitStack() as stack:
        clients = [connected(stack, address) for _ in range(4)]
        await until(lambda: listener.connections == 4)
        running = asyncio.ensure_future(listener.run())
        for client in clients:
            assert await closed(client)
        assert len(broken) == 1
        assert not running.done()
        running.cancel()
    await listener.close()


async def test_what_stops_the_look_itself_reaches_whoever_supervises_it(monkeypatch: pytest.MonkeyPatch) -> None:
    listener, _ = await listening(KafkaLimits(drain=0.1, sweep_interval=0.01))

    def broken() -> float:
        raise ValueError("a defect")

    monkeypatch.setattr(listener._clock, "monotonic", broken)
    with pytest.raises(ValueError, match="a defect"):
        async with asyncio.timeout(20):
            await listener.run()
    await listener.close()
