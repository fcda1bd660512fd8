"""What readers look into has threads of its own: nothing that is acknowledged waits for it."""

from __future__ import annotations

import asyncio
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from headgate_agent.log.assembly import guarded_store, open_log
from headgate_agent.log.config import LogConfig
from headgate_agent.log.metrics import LogMetrics
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds


class Nobody:
    coordinators: Any = None
    session = None
    known = ""
    valid_until = 0.0


async def test_uploads_go_on_while_all_threads_of_readers_are_taken(tmp_path: Path) -> None:
    config, source = LogConfig(threads=1, read_threads=2), random.Random(1)
    metrics, member = LogMetrics(CollectorRegistry()), Nobody()
    opened = await open_log(
        config,
        tmp_path,
        guarded_store(config, tmp_path, metrics, source),
        name="a",
        volume_id="v",
        member=member,  # type: ignore[arg-type]
        metrics=metrics,
        clock=SystemClock(),
        ids=RandomIds(source),
        source=source,
        backoff=Backoff(),
    )
    world, go = opened.broker.world, threading.Event()
    taken = [asyncio.ensure_future(world.unpacking._work.run(lambda: go.wait(60))) for _ in range(4)]
    # They are in line before it.
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(30):
            assert await world.work.run(lambda: "uploaded") == "uploaded"
        assert not any(one.done() for one in taken)
    finally:
        go.set()
        await asyncio.gather(*taken)
        await opened.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"tail_page_bytes": 13 << 20},
        {"edge_page_bytes": 13 << 20},
        {"unpack_small": 65 << 20},
        {"object_retry_min": 3.0},
    ],
)
def test_settings_that_do_not_fit_each_other_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        LogConfig(**wrong)
