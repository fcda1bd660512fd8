"""200 watchers follow 5,000 changes of a real coordinator: its memory must stay flat, and nothing may be lost.

The coordinator is a process of its own, and so are the watchers' clients; everything goes over gRPC. One watcher in ten
stops reading after its snapshot: it must be cut off with WATCHER_TOO_SLOW and cost the others nothing. Memory is the
resident size of the coordinator, sampled through the run. `ratio` is the greatest of the second half over the greatest
of the first, after a warm-up: whatever is kept for each change would show. The peer for the cost of a change is a round
with one watcher.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from google.protobuf.message import Message
from grpc_status import rpc_status

sys.path.insert(0, str(Path(__file__).parents[1]))

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import source_service_pb2, watch_service_pb2
from headgate_common.dispatch import methods
from headgate_common.errors import from_status
from tests.e2e.api.kit import Server, running_coordinator

sys.path.insert(0, str(Path(__file__).parent))

from processes import memory_mib, processor_seconds

GOAL = "<= 1.05"
WATCHERS = 200
SLOW = WATCHERS // 10
CHANGES = 5000
WARM_UP = 1500
WRITERS = 16
CLIENTS = 4
COLUMNS = 20
# Changes that the writers may be ahead of the watcher that paces them.
LEAD = 250
SAMPLE_EVERY = 50
# Revisions that may wait for a watcher: fewer than the warm-up has, so that slow ones are cut off in every round.
BUFFER = 1000

SOURCES = methods(source_service_pb2.DESCRIPTOR.services_by_name["SourceService"])
WATCH = methods(watch_service_pb2.DESCRIPTOR.services_by_name["WatchService"])["Watch"]


# Without a connection of its own, each channel of a process would share one with the others.
OWN_CONNECTION = [("grpc.use_local_subchannel_pool", 1)]
# Without this, the client's transport would take in whole rounds that nobody has read.
SMALL_WINDOW = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16)]


def channel_to(address: str, options: Sequence[tuple[str, int]] = ()) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(address, options=[*OWN_CONNECTION, *options])


def watch(channel: grpc.aio.Channel) -> grpc.aio.UnaryStreamCall[Message, catalog.WatchResponse]:
    method = channel.unary_stream(WATCH.path, WATCH.request.SerializeToString, catalog.WatchResponse.FromString)
    return method(catalog.WatchRequest(kinds=[catalog.RESOURCE_KIND_LOGICAL_SOURCE]))


async def read_all(channel: grpc.aio.Channel, changes: int, begun: asyncio.Event) -> tuple[int, int]:
    """Messages and their bytes, up to the last of `changes` consecutive revisions."""
    call = watch(channel)
    count = size = expected = 0
    async for response in call:
        size += response.ByteSize()
        if response.HasField("snapshot"):
            expected = response.snapshot.revision
            begun.set()
        elif response.HasField("events"):
            expected += 1
            assert response.events.revision == expected, "a revision was lost or came twice"
            count += 1
            if count == changes:
                break
    call.cancel()
    return count, size


async def read_nothing(channel: grpc.aio.Channel, changes: int, begun: asyncio.Event, done: asyncio.Event) -> str:
    """Why the watcher was cut off that did not read until all was over; empty if it was not."""
    responses = aiter(watch(channel))
    await anext(responses)
    begun.set()
    await done.wait()
    try:
        while changes:
            response = await anext(responses)
            changes -= response.HasField("events")
    except grpc.aio.AioRpcError as error:
        status = rpc_status.from_call(error)
        return from_status(status).reason.name if status is not None else error.code().name
    return ""


async def client(address: str, quick: int, slow: int, changes: int) -> None:
    """One process of watchers. Says when all have begun, and what came of it."""
    done = asyncio.Event()
    begun = [asyncio.Event() for _ in range(quick + slow)]
    async with channel_to(address) as channel, channel_to(address, SMALL_WINDOW) as slow_channel:
        readers = [asyncio.create_task(read_all(channel, changes, event)) for event in begun[:quick]]
        idle = [asyncio.create_task(read_nothing(slow_channel, changes, event, done)) for event in begun[quick:]]
        await asyncio.gather(*(event.wait() for event in begun))
        print("begun", flush=True)
        read = await asyncio.gather(*readers)
        done.set()
        reasons = await asyncio.gather(*idle)
    total = {"messages": sum(count for count, _ in read), "bytes": sum(size for _, size in read), "reasons": reasons}
    print(json.dumps(total), flush=True)


@contextmanager
def clients(address: str, quick: int, slow: int, changes: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Watchers spread over processes, all of which have their snapshot."""
    count = min(CLIENTS, quick)
    processes = []
    try:
        for number in range(count):
            shares = [(total * (number + 1)) // count - (total * number) // count for total in (quick, slow)]
            command = [sys.executable, __file__, address, *map(str, shares), str(changes)]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.wait()


@dataclass
class Round:
    """What one round has shown."""

    messages: int = 0
    bytes: int = 0
    reasons: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0


async def write(server: Server, changes: int, result: Round) -> None:
    """Makes and drops sources through the API, no faster than a watcher of its own can follow."""
    schema = catalog.Schema(fields=[catalog.Field(name=f"column_{number}", type="INT64") for number in range(COLUMNS)])
    left = iter(range(changes))
    made = seen = 0
    moved = asyncio.Event()

    async with channel_to(server.address) as channel:
        calls = {
            name: channel.unary_unary(
                SOURCES[name].path, SOURCES[name].request.SerializeToString, SOURCES[name].response.FromString
            )
            for name in ("CreateLogicalSource", "DropLogicalSource")
        }

        async def pace() -> None:
            nonlocal seen
            try:
                async for response in watch(channel):
                    seen += response.HasField("events")
                    moved.set()
            finally:
                # A watch that ended must not keep the writers waiting: they see the end of it below.
                seen = changes
                moved.set()

        async def writer(name: str) -> None:
            nonlocal made
            exists = False
            for _ in left:
                if exists:
                    await calls["DropLogicalSource"](catalog.DropLogicalSourceRequest(name=name), timeout=60)
                else:
                    source = catalog.CreateLogicalSourceRequest(name=name, schema=schema)
                    await calls["CreateLogicalSource"](source, timeout=60)
                exists = not exists
                made += 1
                if made % SAMPLE_EVERY == 0:
                    result.memory.append(memory_mib(server.process.pid))
                while made - seen > LEAD:
                    moved.clear()
                    await moved.wait()

        pacing = asyncio.create_task(pace())
        prefix = f"source_{time.monotonic_ns()}"
        await asyncio.gather(*(writer(f"{prefix}_{number}") for number in range(WRITERS)))
        assert not pacing.done(), "the watcher that paces the writers was cut off"
        pacing.cancel()


def run_round(server: Server, quick: int, slow: int, changes: int) -> Round:
    result = Round()
    with clients(server.address, quick, slow, changes) as processes:
        began, cpu = time.perf_counter(), processor_seconds(server.process.pid)
        asyncio.run(write(server, changes, result))
        for process in processes:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            result.messages += told["messages"]
            result.bytes += told["bytes"]
            result.reasons += told["reasons"]
        result.seconds = time.perf_counter() - began
        result.cpu_seconds = processor_seconds(server.process.pid) - cpu
    return result


def main() -> None:
    quick = WATCHERS - SLOW
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headgate-bench-")))
        server = stack.enter_context(running_coordinator(folder, "", "--set", f"limits.watch_revisions={BUFFER}"))
        alone = run_round(server, 1, 0, WARM_UP)
        run_round(server, quick, SLOW, WARM_UP)
        result = run_round(server, quick, SLOW, CHANGES)
    half = len(result.memory) // 2
    before, after = max(result.memory[:half]), max(result.memory[half:])
    figures = {
        "name": "watch_fanout",
        "ratio": round(after / before, 3),
        "goal": GOAL,
        "watchers": WATCHERS,
        "changes": CHANGES,
        "messages": result.messages,
        "lost": quick * CHANGES - result.messages,
        "slow_watchers": SLOW,
        "slow_watchers_cut_off": result.reasons.count("WATCHER_TOO_SLOW"),
        "mib_first_half": round(before, 1),
        "mib_second_half": round(after, 1),
        "mib_sent": round(result.bytes / (1 << 20)),
        "messages_per_second": round(result.messages / result.seconds),
        "cpu_us_per_change_one_watcher": round(alone.cpu_seconds / WARM_UP * 1e6),
        "cpu_us_per_change_all_watchers": round(result.cpu_seconds / CHANGES * 1e6),
        "cpu_us_per_message": round(result.cpu_seconds / result.messages * 1e6, 1),
    }
    for name, value in figures.items():
        print(f"{name:32}{value!s:>14}")
    print(json.dumps(figures))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(client(sys.argv[1], *map(int, sys.argv[2:])))
    else:
        main()
