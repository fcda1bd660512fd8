"""How runs are doing, and how they had done when they ended: the last report of the highest epoch."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.cluster.progress import Progress


@pytest.fixture
async def store() -> AsyncIterator[InlineStore]:
    database = InlineDatabase()
    store = InlineStore(database, clock=SystemClock(), ids=RandomIds())
    yield store
    await store.close()
    database.close()


def report(uid: str, epoch: int, rows: int) -> cluster.FragmentReport:
    return cluster.FragmentReport(uid=uid, epoch=epoch, progress=catalog.FragmentProgress(rows_in=rows))


def rows(progress: Progress, uid: str, epoch: int) -> int | None:
    found = progress.of(uid, epoch)
    return None if found is None else found.rows_in


def test_the_last_report_of_the_highest_epoch_counts(store: InlineStore) -> None:
    progress = Progress(store, limit=10)
    progress.report([report("f", 2, 10), report("g", 1, 5)])
    progress.report([report("f", 2, 20)])
    assert (rows(progress, "f", 2), rows(progress, "g", 1)) == (20, 5)
    progress.report([report("f", 1, 99)])
    assert (rows(progress, "f", 2), rows(progress, "f", 1)) == (20, None), "a run that was replaced counts for nothing"
    progress.report([report("f", 3, 1)])
    assert (rows(progress, "f", 3), rows(progress, "f", 2)) == (1, None)


def test_a_report_that_comes_late_does_not_undo_a_later_one(store: InlineStore) -> None:
    progress = Progress(store, limit=10)
    early, late = report("f", 1, 10), report("f", 1, 20)
    early.progress.time.seconds, late.progress.time.seconds = 100, 101
    progress.report([late])
    progress.report([early])
    assert rows(progress, "f", 1) == 20


def test_beyond_its_bound_what_was_heard_longest_ago_goes(store: InlineStore) -> None:
    progress = Progress(store, limit=2)
    progress.report([report("a", 1, 1), report("b", 1, 1)])
    progress.report([report("a", 1, 2)])
    progress.report([report("c", 1, 1)])
    assert [rows(progress, uid, 1) for uid in "abc"] == [2, None, 1]


async def change(store: InlineStore, after: catalog.Fragment | None) -> None:
    def write(tx: Tx) -> None:
        tx.record("FRAGMENT", "q/1", "f", catalog.Fragment(uid="f", epoch=1), after)

    await store.write(write)
    await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("after", "kept"),
    [
        (catalog.Fragment(uid="f", epoch=2, state=catalog.FRAGMENT_STATE_RUNNING, last_error="x"), True),
        (catalog.Fragment(uid="f", epoch=2, state=catalog.FRAGMENT_STATE_STOPPED), True),
        (catalog.Fragment(uid="f", epoch=2, state=catalog.FRAGMENT_STATE_FAILED), True),
        (catalog.Fragment(uid="f", epoch=3, state=catalog.FRAGMENT_STATE_PENDING), False),
        (None, False),
    ],
)
async def test_what_is_known_of_a_run_stays_when_it_ends_and_goes_when_it_is_gone_or_replaced(
    store: InlineStore, after: catalog.Fragment | None, kept: bool
) -> None:
    progress = Progress(store, limit=10)
    running = asyncio.create_task(progress.run(1))
    await asyncio.sleep(0)
    progress.report([report("f", 2, 10), report("g", 2, 10)])
    await change(store, after)
    assert (rows(progress, "f", 2) == 10) is kept
    assert rows(progress, "g", 2) == 10
    running.cancel()
    await asyncio.wait((running,))
    assert rows(progress, "g", 2) is None, "it goes with the term"
