"""The TCP source: rows of a connection, connected to again, and honest about what it loses."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate_agent.errors import MALFORMED_ROW, SOURCE_MISMATCH, SOURCE_UNREACHABLE, TARGET_FORBIDDEN
from headgate_agent.fragments.sources.build import build_source
from headgate_agent.fragments.sources.source import Outcome, Source, run_source
from headgate_agent.fragments.sources.targets import Targets
from headgate_agent.fragments.sources.tcp import Connection
from headgate_common.errors import HeadgateError
from tests.unit.fragments.kit import MemoryEdge, around, simulated, source_fragment


class Script:
    """A server as a script: for each connection what it does, then silence. An exception breaks what it stands in."""

    def __init__(self, *connections: Sequence[bytes | Exception] | Exception) -> None:
        self._connections = list(connections)
        self.attempts: list[float] = []

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        return ["10.1.2.3"]

    async def connect(self, address: str, port: int) -> Connection:
        self.attempts.append(asyncio.get_running_loop().time())
        if not self._connections:
            await asyncio.get_running_loop().create_future()
        script = self._connections.pop(0)
        if isinstance(script, Exception):
            raise script
        return Scripted(list(script))


class Scripted:
    def __init__(self, script: list[bytes | Exception]) -> None:
        self._script = script

    async def read(self, most: int) -> bytes:
        await asyncio.sleep(0.01)
        if not self._script:
            return b""
        step = self._script[0]
        if isinstance(step, Exception):
            raise step
        piece, rest = step[:most], step[most:]
        self._script[:1] = [rest] if rest else []
        return piece

    async def close(self) -> None:
        self._script.clear()


def tcp(script: Script, parser: dict[str, str] | None = None, **options: str) -> Source:
    given = {"socket_host": "feed.example", "socket_port": "9000", **options}
    fragment = source_fragment(catalog.SOURCE_TYPE_TCP, given, "a INT32", parser)
    return build_source(fragment, around(connector=script, tcp_targets=("*.example:9000",), max_row_bytes=64))


def run(source: Source, seconds: float = 200) -> MemoryEdge:
    """Runs for some seconds, or to its end, and stops softly."""
    edge = MemoryEdge()

    async def main() -> None:
        stopping = asyncio.Event()
        task = asyncio.create_task(run_source(source, edge, stopping))
        await asyncio.wait((task,), timeout=seconds)
        stopping.set()
        await task

    simulated(main())
    return edge


def failure(source: Source) -> HeadgateError:
    with pytest.raises(HeadgateError) as raised:
        run(source)
    return raised.value


def test_rows_are_put_together_from_what_arrives() -> None:
    edge = run(tcp(Script([b"1\n2", b"2\n", b"3", b"\n4"]), reconnect="false"))
    assert edge.column("a") == [1, 22, 3, 4]
    assert edge.last is not None
    assert edge.last.ended


def test_it_connects_again_for_as_long_as_it_takes() -> None:
    script = Script(ConnectionRefusedError(), [b"1\n"], OSError("no route"), TimeoutError(), [b"2\n"])
    source = tcp(script)
    edge = run(source)
    assert edge.column("a") == [1, 2]
    assert len(script.attempts) > 5
    assert any("until the next one is lost" in note for note in source.counters.notes)


def test_without_reconnect_a_vain_attempt_and_a_broken_connection_fail() -> None:
    assert failure(tcp(Script(ConnectionRefusedError()), reconnect="false")).reason is SOURCE_UNREACHABLE
    broken = tcp(Script([b"1\n", ConnectionResetError("reset")]), reconnect="false")
    assert failure(broken).reason is SOURCE_UNREACHABLE


def test_an_attempt_that_takes_too_long_is_given_up() -> None:
    error = failure(tcp(Script(), reconnect="false", connect_timeout="250 ms"))
    assert error.reason is SOURCE_UNREACHABLE
    assert "0.25 s" in error.message


def test_a_row_that_a_broken_connection_cut_is_not_a_row_and_is_noted() -> None:
    source = tcp(Script([b"1\n23", ConnectionResetError("reset")], [b"4\n"]))
    edge = run(source)
    assert edge.column("a") == [1, 4]
    assert any("2 bytes of a row were cut off" in note for note in source.counters.notes)


def test_a_restart_says_what_it_cannot_promise() -> None:
    first = run(tcp(Script([b"1\n"]), reconnect="false"))
    assert first.last is not None
    source = tcp(Script([b"2\n"]), reconnect="false")

    async def main() -> None:
        assert first.last is not None
        await source.open(first.last.position)
        emitted = await source.next(asyncio.Event())
        assert emitted is not None
        assert b'"rows": 2' in emitted.position

    simulated(main())
    assert any("is lost" in note for note in source.counters.notes)


def test_malformed_rows_and_options_of_the_parser() -> None:
    edge = run(tcp(Script([b"a;1;x;2;"]), {"tuple_delimiter": ";", "header": "true"}, reconnect="false"))
    assert edge.column("a") == [1, 2]
    assert [row.raw for row in edge.errors] == ["x;"]
    assert edge.errors[0].place == "feed.example:9000 at byte 4 received"
    assert failure(tcp(Script([b"x\n"]), {"on_error": "fail"}, reconnect="false")).reason is MALFORMED_ROW


def test_a_row_without_an_end_is_refused_before_memory_runs_out() -> None:
    assert failure(tcp(Script([b"1" * 1_000]), reconnect="true")).reason is SOURCE_MISMATCH


def test_it_stops_while_the_server_goes_on_sending() -> None:
    edge = run(tcp(Script([b"1\n"] * 100_000)), seconds=1)
    assert 50 < len(edge.column("a")) <= 101


def test_it_stops_while_there_is_always_more_to_read() -> None:
    class Flood:
        async def read(self, most: int) -> bytes:
            if not stopping.is_set():
                sent.append(1)
                if len(sent) == 100:
                    stopping.set()
            return b"1\n"

        async def close(self) -> None:
            """Nothing is open."""

    class Flooding(Script):
        async def connect(self, address: str, port: int) -> Connection:
            return Flood()

    sent: list[int] = []
    stopping = asyncio.Event()
    edge = MemoryEdge()

    async def main() -> None:
        async with asyncio.timeout(60):
            assert await run_source(tcp(Flooding()), edge, stopping) is Outcome.STOPPED

    simulated(main())
    assert edge.column("a") == [1] * 100


def test_it_stops_while_it_waits_for_a_connection() -> None:
    edge = run(tcp(Script(*[ConnectionRefusedError()] * 1_000)), seconds=5)
    assert edge.last is not None
    assert edge.last.ended


def test_only_what_is_allowed_is_connected_to() -> None:
    script = Script([b"1\n"])
    error = failure(tcp(script, socket_host="feed.elsewhere"))
    assert error.reason is TARGET_FORBIDDEN
    assert script.attempts == []


@pytest.mark.parametrize(
    ("entry", "allowed", "refused"),
    [
        ("feed.example:9000", ("feed.example", 9000, "1.1.1.1"), ("feed.example", 9001, "1.1.1.1")),
        ("*.example:*", ("a.b.example", 1, "1.1.1.1"), ("example", 1, "1.1.1.1")),
        ("*.example:*", ("FEED.EXAMPLE", 1, "1.1.1.1"), ("feedxexample", 1, "1.1.1.1")),
        ("10.0.0.0/8:80", ("any", 80, "10.9.9.9"), ("10.evil", 80, "11.0.0.1")),
        ("10.0.0.0/8:80", ("any", 80, "::ffff:10.0.0.1"), ("any", 80, "::ffff:11.0.0.1")),
        ("127.0.0.1:*", ("localhost", 5, "127.0.0.1"), ("localhost", 5, "127.0.0.2")),
        ("[::1]:*", ("localhost", 5, "::1"), ("localhost", 5, "::2")),
        ("*:*", ("any", 5, "fe80::1%eth0"), ("", 0, "")),
    ],
)
def test_the_allow_list_means_what_it_says(entry: str, allowed: tuple[Any, ...], refused: tuple[Any, ...]) -> None:
    targets = Targets([entry])
    assert targets.allows(*allowed)
    if refused[2]:
        assert not targets.allows(*refused)
    assert not Targets([]).allows(*allowed)


@pytest.mark.parametrize("entry", ["", "host", "host:", ":80", "host:99999", "host:x"])
def test_an_entry_that_cannot_be_read_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="port"):
        Targets([entry])


@pytest.mark.slow
async def test_a_real_server_is_read_and_connected_to_again() -> None:
    answers = [b"1\n2\n", b"3\n"]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if answers:
            writer.write(answers.pop(0))
            await writer.drain()
        else:
            await asyncio.sleep(30)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    options = {"socket_host": "localhost", "socket_port": str(port)}
    fragment = source_fragment(catalog.SOURCE_TYPE_TCP, options, "a INT32")
    source = build_source(fragment, around(tcp_targets=("127.0.0.1:*",), reconnect_max=0.1))
    edge = MemoryEdge()
    stopping = asyncio.Event()
    task = asyncio.create_task(run_source(source, edge, stopping))
    async with asyncio.timeout(20):
        while len(edge.column("a")) < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        stopping.set()
        assert await task is Outcome.STOPPED
    server.close()
    assert edge.column("a") == [1, 2, 3]
