"""How long no row comes after a crash: from the kill to the first result of a row that was sent after it.

A query with state (a count for each of many keys) reads a Kafka topic and writes one, exactly once, while a producer
sends rows all the time. Killed are the engine, with another one standing by and with none, so that it has to be started
again; the agent, which is started again at once; and the agent for good, so that another one takes over. The peer is
the same query in hand-written PySpark, killed and started again at once by someone who watches it, on its checkpoint.

Where the time goes: until Spark has started, where it has to; until an engine has taken the run over; until that run is
up, its state restored; until the first row. `ratio` is the engine's loss with another standing by over the peer's.
ROUNDS=n; QUICK=1 does one of each.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from bare_spark import Job
from streams import Bare, Stand, TopicReader, Topics, is_ready, stand, wait_until_ready

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate.engine.v1 import engine_service_pb2_grpc
from tests.e2e.life.kit import Process

ROUNDS = int(os.environ.get("ROUNDS", "1" if os.environ.get("QUICK") else "3"))
KEYS = 1_000
ROWS_PER_SECOND = 200
SETTLE_SECONDS = 3.0
PATIENCE_SECONDS = 300.0
LOOK_SECONDS = 0.02
SQL = "SELECT k, COUNT(*) AS n, MAX(sent) AS sent FROM events GROUP BY k"


class Feed(threading.Thread):
    """Sends rows all the time; each has the time at which it was sent."""

    def __init__(self, topics: Topics, topic: str) -> None:
        super().__init__(daemon=True)
        self._producer = topics.producer({"linger.ms": 0})
        self._topic = topic
        self._done = threading.Event()

    def run(self) -> None:
        number = 0
        while not self._done.wait(1 / ROWS_PER_SECOND):
            row = {"k": number % KEYS, "sent": int(time.time() * 1e6)}
            self._producer.produce(self._topic, json.dumps(row).encode())
            self._producer.poll(0)
            number += 1

    def close(self) -> None:
        self._done.set()
        self.join(10)
        self._producer.flush(10)


@dataclass
class Timeline:
    """Seconds from the kill to each event that was seen."""

    killed: float = field(default_factory=time.monotonic)
    wall: float = field(default_factory=time.time)
    seen: dict[str, float] = field(default_factory=dict)

    def note(self, event: str) -> None:
        self.seen.setdefault(event, time.monotonic() - self.killed)

    def parts(self) -> dict[str, float]:
        """What each step took after the one before."""
        found: dict[str, float] = {}
        before = 0.0
        for event in ("Spark's start", "take-over", "restore", "first row"):
            if event in self.seen:
                found[event] = max(0.0, self.seen[event] - before)
                before = max(before, self.seen[event])
        return found


class Runs(threading.Thread):
    """Follows the runs of a fragment on engines, whichever of them answers."""

    def __init__(self, engines: list[Process], uid: str, epoch: int, timeline: Timeline, restarted: str = "") -> None:
        """`restarted` is the HTTP address of an engine whose start is part of it."""
        super().__init__(daemon=True)
        self._engines = [one.address for one in engines]
        self._uid, self._epoch = uid, epoch
        self._timeline = timeline
        self._restarted = restarted
        self._done = threading.Event()

    def run(self) -> None:
        # Without a proxy, and with a connection that is tried again soon while the engine is away.
        options = [("grpc.max_reconnect_backoff_ms", 100), ("grpc.enable_http_proxy", 0)]
        channels = [grpc.insecure_channel(address, options=options) for address in self._engines]
        stubs = [engine_service_pb2_grpc.EngineServiceStub(channel) for channel in channels]
        while not self._done.wait(LOOK_SECONDS):
            if self._restarted and is_ready(self._restarted):
                self._timeline.note("Spark's start")
            for stub in stubs:
                try:
                    runs = stub.ListFragments(engine.ListFragmentsRequest(), timeout=0.5).runs
                except grpc.RpcError:
                    continue
                for run in runs:
                    if run.ref.fragment_uid == self._uid and run.ref.epoch > self._epoch:
                        self._timeline.note("take-over")
                        if run.state == engine.RUN_STATE_RUNNING:
                            self._timeline.note("restore")
        for channel in channels:
            channel.close()

    def close(self) -> None:
        self._done.set()
        self.join(10)


def first_row(reader: TopicReader, timeline: Timeline) -> None:
    """Returns when a result of a row that was sent after the kill can be read."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if any(json.loads(value)["sent"] / 1e6 > timeline.wall for value in reader.poll(LOOK_SECONDS)):
            timeline.note("first row")
            return
    raise SystemExit(f"no row came within {PATIENCE_SECONDS:g} s after the kill; {timeline.seen}")


def flowing(reader: TopicReader, seconds: float = SETTLE_SECONDS) -> None:
    """Returns when rows come, and have come for a while."""
    first_row(reader, Timeline())
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        reader.poll(0.1)


class Query:
    """The query on a cluster, and what is killed of it."""

    def __init__(self, on: Stand, reader: TopicReader) -> None:
        self._on = on
        self._reader = reader

    def compute(self) -> catalog.Fragment:
        fragments = self._on.cluster.fragments("counts")
        return next(one for one in fragments if one.kind == catalog.FRAGMENT_KIND_COMPUTE)

    def kill_engine(self, *, standby: bool) -> Timeline:
        cluster = self._on.cluster
        compute = self.compute()
        victim = next(one for one in cluster.engines if one.address == compute.progress.engine)
        others = [one for one in cluster.engines if one is not victim]
        for other in others:
            if not standby:
                other.stop()
        victim.kill()
        timeline = Timeline()
        if not standby:
            victim.start(ready=False)
        watched = others if standby else [victim]
        self._follow(watched, compute, timeline, restarted="" if standby else victim.http)
        for one in cluster.engines:
            if one.running is None:
                one.start(ready=False)
            wait_until_ready(one)
        return timeline

    def kill_agent(self, *, for_good: bool) -> Timeline:
        cluster = self._on.cluster
        compute = self.compute()
        victim = cluster.agents[compute.agent]
        victim.kill()
        timeline = Timeline()
        if not for_good:
            victim.start(ready=False)
        self._follow(cluster.engines, compute, timeline)
        if for_good:
            victim.start()
        return timeline

    def _follow(
        self, engines: list[Process], compute: catalog.Fragment, timeline: Timeline, restarted: str = ""
    ) -> None:
        runs = Runs(engines, compute.uid, compute.epoch, timeline, restarted)
        runs.start()
        try:
            first_row(self._reader, timeline)
        finally:
            runs.close()
        flowing(self._reader)


@contextmanager
def fed(on: Stand, name: str) -> Iterator[TopicReader]:
    """A topic that rows come to, and the one with the results."""
    for topic in (f"{name}-in", f"{name}-out"):
        on.kafka.create(topic, 2)
    feed = Feed(on.kafka, f"{name}-in")
    reader = on.kafka.reader(f"{name}-out", 2)
    feed.start()
    try:
        yield reader
    finally:
        feed.close()
        reader.close()


def headgate(on: Stand) -> dict[str, list[Timeline]]:
    where = f"bootstrap_servers = '{on.kafka.bootstrap}'"
    with fed(on, "counts") as reader:
        on.cluster.sql("CREATE LOGICAL SOURCE events (k INT32 NOT NULL, sent INT64 NOT NULL)")
        on.cluster.sql(f"CREATE PHYSICAL SOURCE FOR events TYPE KAFKA WITH ({where}, topic = 'counts-in')")
        on.cluster.sql(
            f"CREATE SINK counts (k INT32, n INT64, sent INT64) TYPE KAFKA "
            f"WITH ({where}, topic = 'counts-out', key_column = 'k')"
        )
        for one in on.cluster.engines:
            wait_until_ready(one)
        on.cluster.sql(f"CREATE QUERY counts AS {SQL} INTO counts")
        on.cluster.wait("counts", "RUNNING", seconds=PATIENCE_SECONDS)
        flowing(reader)
        query = Query(on, reader)
        cases: dict[str, Callable[[], Timeline]] = {
            "engine, another stands by": lambda: query.kill_engine(standby=True),
            "agent, started again": lambda: query.kill_agent(for_good=False),
            "agent, for good": lambda: query.kill_agent(for_good=True),
            "engine, started again": lambda: query.kill_engine(standby=False),
        }
        found: dict[str, list[Timeline]] = {}
        for name, kill in cases.items():
            for _ in range(ROUNDS):
                found.setdefault(name, []).append(kill())
                print(f"  {name}: {found[name][-1].seen}", file=sys.stderr, flush=True)
        on.drop("counts")
    return found


def bare(on: Stand) -> list[Timeline]:
    found = []
    with fed(on, "bare") as reader:
        job = Job(
            name="bare",
            sql=SQL,
            columns="k INT, sent BIGINT",
            bootstrap=on.kafka.bootstrap,
            source="bare-in",
            sink="bare-out",
            checkpoint=str(on.folder / "bare"),
            output_mode="update",
            key="k",
        )
        process = Bare.start(on.master, 2, on.folder / "bare.log")
        try:
            process.run(job)
            for _ in range(ROUNDS):
                flowing(reader)
                process.kill()
                timeline = Timeline()
                process = Bare.start(on.master, 2, on.folder / "bare.log")
                timeline.note("Spark's start")
                process.run(job)
                timeline.note("take-over")
                first_row(reader, timeline)
                found.append(timeline)
        finally:
            process.close()
    return found


def main() -> int:
    with (
        tempfile.TemporaryDirectory(prefix="headgate-bench-", ignore_cleanup_errors=True) as folder,
        stand(Path(folder), engines=2, agents=("a", "b")) as on,
    ):
        found = headgate(on)
        for one in on.cluster.engines:
            one.stop()
        found["bare Spark, started again"] = bare(on)
    steps = ("Spark's start", "take-over", "restore", "first row")
    print(f"{'seconds; killed is':<30}{'in all':>8}" + "".join(f"{step:>15}" for step in steps) + f"{'worst':>8}")
    figures = {}
    for name, timelines in found.items():
        totals = sorted(one.seen["first row"] for one in timelines)
        parts = {step: [one.parts()[step] for one in timelines if step in one.parts()] for step in steps}
        medians = {step: round(statistics.median(values), 2) for step, values in parts.items() if values}
        figures[name] = {"seconds": round(statistics.median(totals), 2), "worst": round(totals[-1], 2), **medians}
        told = "".join(f"{medians[step]:>15.2f}" if step in medians else f"{'-':>15}" for step in steps)
        print(f"{name:<30}{figures[name]['seconds']:>8.2f}{told}{totals[-1]:>8.2f}")
    peer = figures["bare Spark, started again"]["seconds"]
    print(
        json.dumps(
            {
                "name": "recovery",
                "ratio": round(figures["engine, another stands by"]["seconds"] / peer, 3),
                "goal": "<= 1",
                "ratio_started_again": round(figures["engine, started again"]["seconds"] / peer, 3),
                "rounds": ROUNDS,
                "seconds": figures,
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
