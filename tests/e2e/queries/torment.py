"""Kills processes of a cluster and brings them back."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.e2e.life.kit import Process
from tests.e2e.queries.kit import QueryCluster


@dataclass
class Torment:
    cluster: QueryCluster
    source: random.Random
    kills: int = 0

    def schedule(self, each: int) -> list[str]:
        """Who is killed, in which order: every process so many times."""
        victims = [process.name for process in self.cluster.processes()] * each
        self.source.shuffle(victims)
        return victims

    def kill(self, name: str) -> None:
        """SIGKILL; the process is there again when it returns, but for Spark, which warms up meanwhile."""
        victim = self._process(name)
        victim.kill()
        self.kills += 1
        victim.start(ready=not name.startswith("engine"))

    def _process(self, name: str) -> Process:
        return next(one for one in self.cluster.processes() if one.name == name)
