"""Kills processes of a cluster under queries, brings them back, and has the results checked."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.catalog import v1 as catalog
from tests.e2e.life.kit import Process
from tests.e2e.queries.kit import QueryCluster

WAIT_SECONDS = 600.0


class Work(Protocol):
    """Queries that run, rows that are fed to them, and what must come out."""

    @property
    def queries(self) -> tuple[str, ...]: ...

    def create(self) -> None: ...

    def feed(self, count: int) -> None: ...

    def settle(self, seconds: float) -> None:
        """Returns when a soft stop will let everything come out that was fed."""

    def check(self) -> None:
        """Fails where something has come out that should not, or the other way around."""


@dataclass
class Torment:
    cluster: QueryCluster
    works: Sequence[Work]
    source: random.Random
    kills: int = 0
    say: Callable[[str], None] = lambda text: None

    def begin(self) -> None:
        """Rows flow through every query."""
        self.feed(100)
        self.all_run()

    @property
    def queries(self) -> list[str]:
        return [query for work in self.works for query in work.queries]

    def feed(self, count: int) -> None:
        for work in self.works:
            work.feed(count)

    def kill_each(self, times: int) -> None:
        """SIGKILL, every process so many times, in an order of the seed, with rows in between."""
        victims = [process for process in self.cluster.processes() for _ in range(times)]
        self.source.shuffle(victims)
        for victim in victims:
            self.kill(victim)
            self.feed(self.source.randrange(20, 200))
            time.sleep(self.source.uniform(0.5, 5.0))

    def kill(self, victim: Process) -> None:
        """The process is there again when it returns, but for Spark, which warms up meanwhile."""
        self.say(f"kill {victim.name}")
        victim.kill()
        self.kills += 1
        victim.start(ready=not victim.name.startswith("engine"))

    def end(self, *, kill_while_draining: bool = True) -> None:
        """Everything comes out, and is what it should be; none was dropped as late. The engines die once more while
        what is in flight and every open window comes out."""
        self.all_run()
        self.feed(50)
        for work in self.works:
            work.settle(WAIT_SECONDS)
        told_before = {query for query in self.queries if self._none_late(query)}
        for query in self.queries:
            self.cluster.sql(f"STOP QUERY {query} WITHIN 10 MIN")
        if kill_while_draining:
            time.sleep(self.source.uniform(0.0, 3.0))
            for engine in self.cluster.engines:
                self.kill(engine)
        for query in self.queries:
            self.cluster.wait(query, "STOPPED", seconds=WAIT_SECONDS)
        for work in self.works:
            work.check()
        for query in self.queries:
            # Without a count, none would be late. (In real time nothing is late, and a batch, which is what Spark
            # reports on, may last for longer than a run. A run that has only to drain may find nothing left to do.)
            told = self._none_late(query) or query in told_before
            mode = self.cluster.query(query).mode
            assert told or mode == catalog.QUERY_MODE_REALTIME, f"{query}: nobody says what it had done"

    def _none_late(self, query: str) -> bool:
        """Whether a fragment of the query tells what it has done."""
        fragments = self.cluster.fragments(query)
        late = sum(one.progress.rows_late for one in fragments)
        assert late == 0, f"{query}: {late} rows were dropped as late"
        return any(one.HasField("progress") for one in fragments)

    def all_run(self) -> None:
        for query in self.queries:
            self.cluster.wait(query, "RUNNING", seconds=WAIT_SECONDS)
