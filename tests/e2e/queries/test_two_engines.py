"""Two engines and one agent: a run goes on elsewhere when its engine is killed, and when it stands still for longer
than it is kept alive; one that wakes up again writes nothing.

One story, told once: an engine is killed, the other goes on; that one stands still with all its processes in the middle
of its work, the first goes on, and the sleeper wakes up.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from tests.e2e.life.kit import Process
from tests.e2e.queries.kit import QueryCluster, json_lines, query_cluster, until
from tests.e2e.queries.workload import COLUMNS, Feed, counted, rows_of, same, windowed
from tests.integration.engine.kit import ENDED, Client

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

QUERY = "windowed"
WAIT_SECONDS = 240.0


@dataclass
class Feeding:
    """Appends rows all the time, so that an engine is never without work."""

    feed: Feed
    over: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> Feeding:
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.over.set()
        self.thread.join()

    def _run(self) -> None:
        while not self.over.wait(0.05):
            self.feed.append(10)


@dataclass
class Story:
    cluster: QueryCluster
    feed: Feed
    # Where it ran, in order, and under which epoch.
    places: list[tuple[str, int]] = field(default_factory=list)
    # The run of the engine that stood still, once that knew how it had ended.
    slept: engine.Run | None = None

    @property
    def out(self) -> Path:
        return self.cluster.files / "windowed.json"

    def compute(self) -> catalog.Fragment:
        (found,) = [one for one in self.cluster.fragments(QUERY) if one.kind == catalog.FRAGMENT_KIND_COMPUTE]
        return found

    def runs_elsewhere(self) -> Process:
        """Returns when it runs on another engine than before, and has given rows there."""

        def place() -> Process | None:
            now = self.compute()
            known = [address for address, _ in self.places[-1:]]
            if now.state != catalog.FRAGMENT_STATE_RUNNING or now.progress.engine in ("", *known):
                return None
            self.places.append((now.progress.engine, now.epoch))
            return next(one for one in self.cluster.engines if one.address == now.progress.engine)

        found = until(place, "the query to run on another engine", WAIT_SECONDS, lambda: str(self.compute()))
        before = self.given()
        until(lambda: self.given() > before, "the query to give rows there", WAIT_SECONDS)
        return found

    def given(self) -> int:
        return len(self.out.read_text().splitlines()) if self.out.exists() else 0


def family(pid: int) -> list[int]:
    """A process and all that it has started, itself first: Spark is a process of its own, and starts others."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*"):
        # Threads and workers of Spark come and go.
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in (task / "children").read_text().split():
                found += family(int(child))
    return found


def signalled(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


@contextmanager
def standing_still(process: Process) -> Iterator[None]:
    members = family(process.pid)
    try:
        signalled(members, signal.SIGSTOP)
        yield
    finally:
        # Spark wakes up before whoever could stop it.
        signalled(reversed(members), signal.SIGCONT)


def tell(story: Story) -> None:
    cluster = story.cluster
    for part in (
        f"CREATE LOGICAL SOURCE {QUERY} {COLUMNS}",
        f"CREATE PHYSICAL SOURCE FOR {QUERY} TYPE FILE ON a SET('{story.feed.path}' AS `SOURCE`.file_path, "
        "true AS `SOURCE`.follow, '100 ms' AS `SOURCE`.poll_interval)",
        f"CREATE SINK {QUERY} (start TIMESTAMP, k INT32, n INT64, total INT64) TYPE FILE ON a "
        f"SET('{story.out}' AS `SINK`.file_path, 'JSON' AS `SINK`.input_format)",
        f"CREATE QUERY {QUERY} AS SELECT start, k, COUNT(*) AS n, SUM(v) AS total FROM {QUERY} GROUP BY k "
        f"WINDOW TUMBLING(ts, SIZE 5 SEC) INTO {QUERY}",
    ):
        cluster.sql(part)
    with Feeding(story.feed):
        first = story.runs_elsewhere()
        first.kill()
        second = story.runs_elsewhere()
        first.start(ready=False)
        client = Client(first.address)
        until(lambda: _serves(client), "the engine that was killed to be warm again", WAIT_SECONDS)
        uid, epoch = story.compute().uid, story.compute().epoch
        with standing_still(second):
            assert story.runs_elsewhere() is first
        sleeper = Client(second.address)
        ref = engine.RunRef(fragment_uid=uid, epoch=epoch)

        def over() -> engine.Run | None:
            run = sleeper.run(ref)
            return run if run.state in ENDED else None

        story.slept = until(over, "the engine that stood still to end its run", WAIT_SECONDS)
        # It has had its chance to do harm.
        time.sleep(2.0)
    cluster.sql(f"STOP QUERY {QUERY} WITHIN 5 MIN")
    cluster.wait(QUERY, "STOPPED", seconds=WAIT_SECONDS)


def _serves(client: Client) -> bool:
    try:
        return bool(list(client.stream(engine.ExecuteBatchRequest(sql="SELECT 1"))))
    except HeadgateError:
        return False


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with query_cluster(tmp_path_factory.mktemp("engines"), engines=2) as cluster:
        told = Story(cluster, Feed(cluster.files / "in.csv", random.Random(11)))
        tell(told)
        yield told


def test_the_run_of_an_engine_that_is_killed_or_stands_still_goes_on_at_the_other(story: Story) -> None:
    addresses = [address for address, _ in story.places]
    assert addresses[0] != addresses[1]
    assert addresses[2] == addresses[0]
    epochs = [epoch for _, epoch in story.places]
    assert epochs == sorted(set(epochs)), "every run has an epoch of its own"


def test_an_engine_that_wakes_up_ends_its_run_and_says_why(story: Story) -> None:
    assert story.slept is not None
    assert story.slept.state == engine.RUN_STATE_FAILED
    print(f"{story.slept.error.reason}: {story.slept.error.message}")
    # By its own clock, or because it is shut out; not because it finds nothing more to read.
    assert story.slept.error.reason in ("KEEP_ALIVE_MISSED", "STALE_EPOCH")


def test_results_are_those_of_the_oracle_no_row_twice_and_none_lost(story: Story) -> None:
    same(QUERY, counted(json_lines(story.out)), counted(windowed(rows_of(story.feed.path))))
