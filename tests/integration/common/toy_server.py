"""A server process for the tests here: `python -m tests.integration.common.toy_server --listen ...`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from headgate_common.arguments import Flag
from headgate_common.config import Seconds, section, setting
from headgate_common.errors import HeadgateError
from headgate_common.server import App, Runtime, run_server
from headgate_common.settings import ServerConfig
from tests.unit.common.transport_contract import REASONS, REFUSED, ToyFragments, ToyWatch

log = logging.getLogger("toy")


@dataclass(frozen=True, slots=True)
class ToyConfig:
    server: ServerConfig = section(ServerConfig, "How it listens.", listen="127.0.0.1:0")
    password: str = setting("", "Never shown.", secret=True)
    catalog: str = setting("", "A URL.")
    warm_up: Seconds = setting(0.0, "Not ready for so long.")
    fail_after: Seconds | None = setting(None, "A task fails after so long.")
    refuse_to_start: bool = setting(False, "Fails while it is built.")
    slow_start: Seconds = setting(0.0, "Takes so long to be built.")


@asynccontextmanager
async def build(config: ToyConfig, runtime: Runtime) -> AsyncIterator[App]:
    if config.refuse_to_start:
        raise HeadgateError(REFUSED, "the toy does not start")
    await asyncio.sleep(config.slow_start)
    warm_at = runtime.clock.monotonic() + config.warm_up

    async def fail(after: float) -> None:
        await asyncio.sleep(after)
        raise RuntimeError("the toy broke")

    async def leave() -> None:
        log.info("leaving")

    if config.fail_after is not None:
        runtime.supervise(fail(config.fail_after), "breaking")
    yield App(
        services=[ToyFragments(), ToyWatch()],
        unready=lambda: ["warming up"] if runtime.clock.monotonic() < warm_at else [],
        draining=leave,
    )
    log.info("closed")


def main() -> int:
    return run_server(
        "toy",
        ToyConfig,
        build,
        summary="Answers tests.",
        flags=[Flag("--catalog", "catalog", "URL", "where the catalog is")],
        profiles={"patient": {"server.limits.drain": "60s"}},
        reasons=REASONS,
    )


if __name__ == "__main__":
    raise SystemExit(main())
