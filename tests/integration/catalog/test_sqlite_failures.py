"""An SQLite file that is locked, full or damaged: what a caller is told is true, and the store goes on."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog.sqlite import SqliteStore
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import CATALOG_UNAVAILABLE
from tests.integration.catalog.kit import SETTINGS, create, names


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    return tmp_path / "catalog.sqlite"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    settings = replace(SETTINGS, lock_timeout=0.1)
    opened = await SqliteStore(path, clock=SystemClock(), ids=RandomIds(), settings=settings).start()
    yield opened
    await opened.close()


async def test_a_file_locked_by_another_process_is_unavailable_until_it_is_free(store: SqliteStore, path: Path) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(HeadgateError) as caught:
        await store.write(create("a"))
    assert caught.value.reason is CATALOG_UNAVAILABLE
    assert await store.read(names) == [], "reads never wait for a writer"
    other.execute("ROLLBACK")
    other.close()
    await store.write(create("a"))
    assert await store.read(names) == ["a"]


async def test_a_full_disk_is_unavailable_and_nothing_of_the_group_is_done(store: SqliteStore) -> None:
    def fills(tx: Tx) -> None:
        pages = tx.connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        tx.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        create("large", columns=20_000)(tx)

    answers = await asyncio.gather(
        store.write(create("a")), store.write(create("b")), store.write(fills), return_exceptions=True
    )
    reasons = [answer.reason for answer in answers if isinstance(answer, HeadgateError)]
    assert set(reasons) == {CATALOG_UNAVAILABLE}
    done = [answer for answer in answers if not isinstance(answer, BaseException)]
    assert len(await store.read(names)) == len(done)
    await store.write(create("after"))


async def test_commits_are_flushed_and_written_ahead(store: SqliteStore) -> None:
    def pragma(name: str, tx: Tx) -> object:
        return tx.connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()

    full = 2
    assert await store.write(lambda tx: pragma("synchronous", tx)) == full
    assert await store.write(lambda tx: pragma("journal_mode", tx)) == "wal"
    assert await store.write(lambda tx: pragma("foreign_keys", tx)) == 1
    assert await store.read(lambda tx: pragma("foreign_keys", tx)) == 1
