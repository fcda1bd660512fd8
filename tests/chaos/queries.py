"""`make chaos WHAT=queries`: SIGKILL of engine, agent, coordinator and log leader under queries, KILLS times each.

A windowed aggregation, a join and a union of two sources that end at different times run from files to files, from
topics to topics, from Kafka to Kafka and with their edges on Kafka, all at the same time on one cluster with short
sessions, while rows are fed without a pause; WORKLOADS=files,topics,kafka,edges chooses. A round kills one process of
each kind at moments of the seed, close together; the next one begins when rows flow through every query again. After
some rounds the queries are stopped softly and their results compared with an oracle's, and the next seed begins on a
new cluster. Those that are promised exactly once must be exact; of the others no row may be lost, none may come that
should not, and again may come only what a run that was cut off had begun.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log_api
from tests.e2e.life.kit import Process
from tests.e2e.queries.edges_workload import EdgesWorkload
from tests.e2e.queries.kafka_workload import ENGINE_OPTIONS, LOOSE, KafkaWorkload
from tests.e2e.queries.kit import QueryCluster, query_cluster, until
from tests.e2e.queries.topic_workload import TopicWorkload
from tests.e2e.queries.topics import KafkaTopics, LogTopics
from tests.e2e.queries.torment import Torment, Work
from tests.e2e.queries.workload import Workload
from tests.servers.kafka import running_kafka

ENGINE, AGENT, COORDINATOR, LOG_LEADER = "engine", "agent", "coordinator", "log leader"
KINDS = (ENGINE, AGENT, COORDINATOR, LOG_LEADER)
WORKLOADS = ("files", "topics", "kafka", "edges")
# Rounds on one cluster: so often the queries of a seed lose a process of each kind.
ROUNDS = 10
# Between two kills of a round.
APART = (0.0, 2.0)
# Rows that each source gets, and how often.
ROWS, FEED_SECONDS = 10, 0.5
FLOW_SECONDS = 300.0
# Who holds something loses it a second or two after its death, and what was its own begins elsewhere.
COORDINATOR_SETTINGS = (
    *("--set", "timings.session_ttl=2s", "--set", "timings.lost_after=1s", "--set", "timings.probe_interval=500ms"),
    *("--set", "timings.leader_ttl=1s", "--set", "timings.leader_renew=300ms", "--set", "timings.leader_margin=200ms"),
)
# An engine lives for a minute, in which compiling well costs more than it gains. Without room for what is compiled for
# so many queries Java would stop compiling.
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
AGENT_OPTIONS = ("--set", "timings.engine_keep_alive=3s")


@dataclass
class Seed:
    """One cluster, its queries, and what was done to them."""

    cluster: QueryCluster
    works: Sequence[Work]
    source: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    _last: float = 0.0

    def round(self) -> float:
        """One kill of each kind; answers how long it took until rows flowed everywhere again."""
        for kind in self.source.sample(KINDS, len(KINDS)):
            time.sleep(self.source.uniform(*APART))
            victim = self._victim(kind)
            victim.kill()
            self._last = time.time()
            self.kills[kind] += 1
            victim.start(ready=False)
        began = time.monotonic()
        until(self._flows, "rows to flow again", FLOW_SECONDS, self._stuck)
        return time.monotonic() - began

    def _victim(self, kind: str) -> Process:
        if kind == COORDINATOR:
            return self.cluster.coordinator
        if kind == ENGINE:
            return self._busiest()
        if kind == AGENT:
            return self.source.choice(list(self.cluster.agents.values()))
        choice = self.source.random()
        # Mostly those of edges.
        request = log_api.ListPartitionsRequest(include_internal=True)

        def leader() -> str:
            led = [one.leader for one in self.cluster.ask(request).partitions if one.leader]
            return led[int(choice * len(led))] if led else ""

        return self.cluster.agents[until(leader, "a partition to have a leader", 60.0)]

    def _busiest(self) -> Process:
        """The engine with the most runs: the other one, which is warm by now, takes all of them over."""
        runs = Counter(one.progress.engine for one in self._computing())
        return max(self.cluster.engines, key=lambda engine: runs[engine.address])

    def _waiting(self) -> list[str]:
        """Queries through which no row has gone since the last kill, with what is known of them."""
        states = {one.name: one for one in self.cluster.ask(catalog.ListQueriesRequest()).queries}
        computing = self._computing()
        found = []
        for query in (name for work in self.works for name in work.queries):
            state = catalog.QueryState.Name(states[query].state).removeprefix("QUERY_STATE_")
            assert state != "FAILED", f"{query} FAILED: {states[query].failure}"
            if state != "RUNNING":
                found.append(f"{query} is {state}: {states[query].waiting}")
            elif query not in LOOSE and not all(self._moves(one) for one in computing if one.query == query):
                found.append(f"{query} reads no rows")
        return found

    def _computing(self) -> list[catalog.Fragment]:
        fragments = self.cluster.ask(catalog.ListFragmentsRequest(page_size=1000)).fragments
        return [one for one in fragments if one.kind == catalog.FRAGMENT_KIND_COMPUTE]

    def _moves(self, fragment: catalog.Fragment) -> bool:
        """A batch with rows began after the last kill."""
        progress = fragment.progress
        return progress.rows_in > 0 and progress.time.ToNanoseconds() / 1e9 > self._last

    def _flows(self) -> bool:
        return not self._waiting()

    def _stuck(self) -> str:
        return "; ".join(self._waiting())


@contextmanager
def feeding(works: Sequence[Work]) -> Iterator[None]:
    """Rows for all, each from a thread of its own: where one has to wait for its log, the others go on."""
    over = threading.Event()
    failures: list[BaseException] = []

    def feed(work: Work) -> None:
        try:
            while not over.wait(FEED_SECONDS):
                work.feed(ROWS)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=feed, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failures, failures


def run(folder: Path, seed: int, rounds: int, before: Counter[str], chosen: Sequence[str]) -> Counter[str]:
    """The kills of one seed, after results were found to be what was promised."""
    with (
        running_kafka(folder / "kafka.log") as kafka,
        query_cluster(
            folder,
            agents=("a", "b"),
            engines=2,
            settings=COORDINATOR_SETTINGS,
            engine_options=ENGINE_OPTIONS,
            agent_options=AGENT_OPTIONS,
        ) as cluster,
    ):
        made: dict[str, Callable[[], Work]] = {
            "files": lambda: Workload(cluster, seed),
            "topics": lambda: TopicWorkload(cluster, LogTopics(cluster), seed),
            "kafka": lambda: KafkaWorkload(cluster, KafkaTopics(kafka.bootstrap, "chaos"), seed),
            "edges": lambda: EdgesWorkload(cluster, kafka.bootstrap, seed),
        }
        works = [made[name]() for name in chosen]
        for work in works:
            work.create()
        torment = Torment(cluster, works, random.Random(seed))
        torment.begin()
        one = Seed(cluster, works, random.Random(seed))
        with feeding(works):
            for number in range(1, rounds + 1):
                took = one.round()
                print(
                    f"  seed {seed}, round {number}: killed {told(before + one.kills)}; rows flow again after "
                    f"{took:.1f} s",
                    flush=True,
                )
        torment.end()
        print(
            f"  seed {seed}: {len(torment.queries)} queries kept their word after {one.kills.total()} kills", flush=True
        )
    return one.kills


def told(kills: Counter[str]) -> str:
    return ", ".join(f"{kind} {kills[kind]}" for kind in KINDS)


def main() -> int:
    os.environ.setdefault("JDK_JAVA_OPTIONS", SHORT_LIVED_JAVA)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    wanted = int(os.environ.get("KILLS") or 50)
    chosen = (os.environ.get("WORKLOADS") or ",".join(WORKLOADS)).split(",")
    if unknown := set(chosen) - set(WORKLOADS):
        print(f"chaos: no such workload: {', '.join(sorted(unknown))}; there are {', '.join(WORKLOADS)}", flush=True)
        return 2
    first = seed = int(os.environ.get("SEED") or 1)
    began = time.monotonic()
    kills: Counter[str] = Counter()
    while (left := wanted - min(kills[kind] for kind in KINDS)) > 0:
        print(f"chaos: seed {seed}", flush=True)
        folder = Path(tempfile.mkdtemp(prefix="headgate-chaos-"))
        try:
            kills += run(folder, seed, min(left, ROUNDS), kills, chosen)
        except BaseException:
            print(f"chaos: seed {seed} after {told(kills)}: all logs are in {folder}", flush=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)
        seed += 1
    minutes = (time.monotonic() - began) / 60
    print(
        f"chaos: results were as promised after {kills.total()} kills ({told(kills)}); {seed - first} seeds, "
        f"{minutes:.0f} min",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
