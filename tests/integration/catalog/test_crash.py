"""SIGKILL in the middle of writes: nothing acknowledged is lost, nothing is there by half, and revisions are dense."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from headgate_coordinator.catalog import changes
from headgate_coordinator.catalog.store import Store
from tests.integration.catalog.kit import Databases, create, names

ROOT = Path(__file__).parents[3]
KILLS = 3
ACKNOWLEDGED_EACH = 150


async def write_until_killed(url: str, name: str) -> list[tuple[int, str]]:
    """What the process acknowledged before it was killed: revisions and names."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.integration.catalog.crashing",
        url,
        name,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    lines: list[bytes] = []
    try:
        async with asyncio.timeout(120):
            while len(lines) < ACKNOWLEDGED_EACH:
                lines.append(await process.stdout.readline())
                assert lines[-1], "the process ended by itself"
    finally:
        process.kill()
    lines.extend([line async for line in process.stdout])
    assert await process.wait() == -signal.SIGKILL
    acknowledged = [line.decode().split() for line in lines if line.endswith(b"\n")]
    return [(int(revision), made) for revision, made in acknowledged]


async def whole_history(store: Store) -> list[changes.Revision]:
    found: list[changes.Revision] = []
    while part := await store.read(lambda tx: changes.history(tx, len(found), 500)):
        found.extend(part)
    return found


@pytest.mark.parametrize("databases", ["sqlite", "postgres"], indirect=True)
async def test_nothing_acknowledged_is_lost_and_revisions_are_dense_after_sigkill(databases: Databases) -> None:
    acknowledged: list[tuple[int, str]] = []
    for kill in range(KILLS):
        acknowledged += await write_until_killed(databases.url, f"k{kill}")
    store = await databases.open()
    history = await whole_history(store)
    last = await store.read(lambda tx: tx.revision)
    assert [revision.number for revision in history] == list(range(1, last + 1))
    assert len(acknowledged) >= KILLS * ACKNOWLEDGED_EACH
    made = {revision.number: [change.name for change in revision.changes] for revision in history}
    for number, name in acknowledged:
        assert made[number] == [name, f"{name}-twin"]
    assert sorted(name for pair in made.values() for name in pair) == await store.read(names)
    assert (await store.write(create("next"))).revision == last + 1
