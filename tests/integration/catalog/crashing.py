"""A process that writes to a catalog and says what was acknowledged, until it is killed: `crashing.py URL NAME`."""

from __future__ import annotations

import asyncio
import os
import sys

from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog.connect import connect
from tests.integration.catalog.kit import create, together

WRITERS = 16


async def main(url: str, name: str) -> None:
    store = await connect(url, clock=SystemClock(), ids=RandomIds())

    async def writer(number: int) -> None:
        turn = 0
        while True:
            made = f"{name}-{number}-{turn}"
            revision = await store.write(together(create(made), create(f"{made}-twin")))
            # One system call for each line: what was written is out, whatever happens next.
            os.write(1, f"{revision} {made}\n".encode())
            turn += 1

    await asyncio.gather(*(writer(number) for number in range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
