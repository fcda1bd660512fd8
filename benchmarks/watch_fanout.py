"""200 watchers follow 5,000 changes: memory must stay flat, and slow watchers must cost the others nothing.

Each watcher encodes every message, as a server does to send it; one in ten never reads after its snapshot. Memory is
the resident size of the process, sampled through the run. `ratio` is the greatest of the second half over the greatest
of the first, after a warm-up: what is kept for each change would show. The peer for the speed is one watcher alone.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog.connect import connect
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.watch import WatchFilter, WatchHub
from headgate_coordinator.errors import WATCHER_TOO_SLOW
from tests.integration.catalog.kit import change, create, snapshot

GOAL = "<= 1.05"
WATCHERS = 200
CHANGES = 5000
WARM_UP = 1000
WRITERS = 16
COLUMNS = 20
SAMPLE_EVERY = 100
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / (1 << 20)


@dataclass
class Watched:
    """What all watchers of a round have received."""

    messages: int = 0
    bytes: int = 0
    cut_off: int = 0
    memory: list[float] = field(default_factory=list)


async def read_all(hub: WatchHub, last: int, seen: Watched, begun: asyncio.Event) -> None:
    async with aclosing(hub.watch(WatchFilter())) as responses:
        async for response in responses:
            begun.set()
            seen.bytes += len(response.SerializeToString())
            if response.HasField("events"):
                seen.messages += 1
                if response.events.revision == last:
                    return


async def read_nothing(hub: WatchHub, done: asyncio.Event, seen: Watched, begun: asyncio.Event) -> None:
    """Takes its first event, then stops reading until all is over, and is told that it was too slow."""
    stream = hub.watch(WatchFilter())
    await anext(stream)
    begun.set()
    await anext(stream)
    await done.wait()
    try:
        await anext(stream)
    except HeadgateError as error:
        seen.cut_off += error.reason is WATCHER_TOO_SLOW
    await stream.aclose()


async def write(store: Store, changes: int, seen: Watched) -> None:
    left = iter(range(changes))

    async def writer(name: str) -> None:
        for number in left:
            await store.write(change(name, COLUMNS + number % 2))
            if number % SAMPLE_EVERY == 0:
                seen.memory.append(resident_mib())

    await asyncio.gather(*(writer(f"source-{number}") for number in range(WRITERS)))


async def round_of(store: Store, hub: WatchHub, quick: int, slow: int, changes: int) -> tuple[Watched, float]:
    """All watchers through `changes` changes; what they saw, and the seconds it took."""
    seen = Watched()
    last = store.changes.position + changes
    done = asyncio.Event()
    begun = [asyncio.Event() for _ in range(quick + slow)]
    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(read_all(hub, last, seen, event)) for event in begun[:quick]]
        idle = [group.create_task(read_nothing(hub, done, seen, event)) for event in begun[quick:]]
        await asyncio.gather(*(event.wait() for event in begun))
        began = time.perf_counter()
        await write(store, changes, seen)
        await asyncio.wait(readers)
        took = time.perf_counter() - began
        done.set()
        await asyncio.gather(*idle)
    return seen, took


async def run() -> dict[str, object]:
    slow = WATCHERS // 10
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        store = await connect(f"sqlite:///{folder}/catalog.sqlite", clock=SystemClock(), ids=RandomIds())
        hub = WatchHub(store, snapshot, clock=SystemClock())
        for number in range(WRITERS):
            await store.write(create(f"source-{number}", COLUMNS))
        _, alone = await round_of(store, hub, 1, 0, WARM_UP)
        await round_of(store, hub, WATCHERS - slow, slow, WARM_UP * 2)
        seen, took = await round_of(store, hub, WATCHERS - slow, slow, CHANGES)
        await store.close()
    half = len(seen.memory) // 2
    before, after = max(seen.memory[:half]), max(seen.memory[half:])
    expected = (WATCHERS - slow) * CHANGES
    return {
        "name": "watch_fanout",
        "ratio": round(after / before, 3),
        "goal": GOAL,
        "watchers": WATCHERS,
        "changes": CHANGES,
        "messages": seen.messages,
        "lost": expected - seen.messages,
        "slow_watchers_cut_off": seen.cut_off,
        "mib_first_half": round(before, 1),
        "mib_second_half": round(after, 1),
        "mib_sent": round(seen.bytes / (1 << 20)),
        "messages_per_second": round(seen.messages / took),
        "us_per_change_one_watcher": round(alone / WARM_UP * 1e6),
        "us_per_change_all_watchers": round(took / CHANGES * 1e6),
        "us_per_message": round(took / seen.messages * 1e6, 1),
    }


def main() -> None:
    figures = asyncio.run(run())
    for name, value in figures.items():
        print(f"{name:30}{value!s:>14}")
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
