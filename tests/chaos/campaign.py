"""A fault campaign on the log: three agents, Postgres and MinIO, producers and consumers that never stop, and
everything that breaks.

Consumers follow all partitions from the start, by a stock Kafka client and over gRPC, so that what is shown and taken
back while something is broken is seen. `run` ends by itself after `seconds`, heals everything, reads all partitions
once more by both ways, and answers what did not hold. The same seed strikes in the same order; what happens in between
is up to the machine.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headgate.log import v1 as log_api
from headgate.log.v1 import log_service_pb2_grpc, topic_service_pb2_grpc
from tests.chaos.clients import (
    Follower,
    GrpcFollower,
    KafkaFollower,
    SteadyProducer,
    catch_up,
    places,
    read_to_end,
)
from tests.chaos.faults import Fault, plan
from tests.chaos.history import Followed, History, Hole, Place, Read, violations
from tests.chaos.moved_clock import move
from tests.chaos.recovery import Recovery, holes_in
from tests.chaos.servers import LogAgent, restartable_coordinator, running_log_agent
from tests.servers.minio import Bucket
from tests.servers.restartable import Restartable
from tests.servers.tcp_proxy import TcpProxy, tcp_proxy

AGENTS = 3
PARTITIONS = 3
TOPICS = {"durable-objects": "OBJECT", "durable-wal": "WAL"}
# Records a second of each producer; there are two for each partition.
RATE = 50.0
# Longer than a session lives.
LONG = (7.0, 10.0)
SHORT = (1.0, 4.0)
PAUSE = (0.5, 2.0)
# How far clocks are moved: further than any grace time, and less than topics of the campaign keep their records.
WEEKS = 14 * 86_400.0
HEALED = 120.0
AFTER_HOLES = 2.0
# One campaign of `make chaos`, and the shortest one that is worth its start.
SPAN = 300.0
LEAST_SPAN = 60.0


@dataclass(slots=True)
class Cluster:
    coordinator: Restartable
    agents: list[LogAgent]
    # Between each agent and the coordinator, and between all agents and the object store.
    links: list[TcpProxy]
    store_link: TcpProxy

    @property
    def bootstrap(self) -> str:
        return ",".join(agent.kafka for agent in self.agents)


@dataclass(slots=True)
class Outcome:
    violations: list[str] = field(default_factory=list)
    acknowledged: int = 0
    # Read by all consumers together before everything was healed.
    followed: int = 0
    # How often each kind of fault struck.
    strokes: Counter[str] = field(default_factory=Counter)
    holes: int = 0

    def __str__(self) -> str:
        struck = ", ".join(f"{name} {count}" for name, count in sorted(self.strokes.items()))
        return (
            f"{self.acknowledged} records acknowledged, {self.followed} read while things broke, {self.holes} holes; "
            f"{self.strokes.total()} faults: {struck}"
        )

    def add(self, other: Outcome) -> None:
        self.violations += other.violations
        self.acknowledged += other.acknowledged
        self.followed += other.followed
        self.strokes += other.strokes
        self.holes += other.holes


@contextmanager
def cluster(folder: Path, catalog: str, bucket: Bucket) -> Iterator[Cluster]:
    with ExitStack() as stack:
        coordinator = stack.enter_context(restartable_coordinator(folder, catalog, movable_clock=True))
        store_link = stack.enter_context(tcp_proxy(bucket.endpoint.removeprefix("http://")))
        options = {
            "endpoint": f"http://{store_link.address}",
            "region": bucket.region,
            "access_key_id": bucket.access_key,
            "secret_access_key": bucket.secret_key,
            "allow_http": "true",
        }
        settings = [f"--set=log.object_options.{key}={value}" for key, value in options.items()]
        settings.append("--set=log.object_timeout=3s")
        # So that what a wrong clock could delete is looked for while it is wrong.
        settings += ["--set=log.orphan_interval=2s", "--set=log.retention_interval=2s"]
        links, agents = [], []
        for number in range(AGENTS):
            link = stack.enter_context(tcp_proxy(coordinator.address))
            links.append(link)
            agents.append(
                stack.enter_context(
                    running_log_agent(
                        folder,
                        f"agent{number}",
                        link.address,
                        *settings,
                        object_store=f"s3://{bucket.name}/log",
                        movable_clock=True,
                    )
                )
            )
        yield Cluster(coordinator, agents, links, store_link)


def faults_of(made: Cluster, recovery: Recovery) -> list[Fault]:
    found = [
        Fault("coordinator killed", made.coordinator.kill, lambda: _start_again(made.coordinator), SHORT),
        Fault("coordinator paused", made.coordinator.pause, made.coordinator.resume, LONG),
        Fault("object store silent", made.store_link.cut, made.store_link.heal, (2.0, 8.0)),
        Fault("object store failing", _set(made.store_link, cut_answers=0.5), _set(made.store_link), (2.0, 8.0)),
        Fault("object store slow", _set(made.store_link, slow=0.5), _set(made.store_link), (2.0, 8.0)),
        Fault("coordinator's clock moved", *_moved(made.coordinator, -WEEKS), SHORT),
    ]
    for agent, link in zip(made.agents, made.links, strict=True):
        found += [
            Fault(f"{agent.name} killed", agent.kill, _again(agent), SHORT),
            Fault(f"{agent.name} lost with its disk", partial(recovery.lose, agent), _again(agent), SHORT),
            Fault(f"{agent.name} paused", agent.pause, agent.resume, LONG),
            Fault(f"{agent.name} cut off", link.cut, link.heal, LONG),
            Fault(f"{agent.name} full", agent.fill_disk, _freed(agent), SHORT),
        ]
    for agent, seconds in zip(made.agents, (WEEKS, -WEEKS, 3.0), strict=True):
        found.append(Fault(f"{agent.name}'s clock moved", *_moved(agent, seconds), SHORT))
    return found


def _set(link: TcpProxy, *, cut_answers: float = 0.0, slow: float = 0.0) -> Callable[[], None]:
    def act() -> None:
        link.cut_answers, link.slow = cut_answers, slow

    return act


def _moved(server: Restartable, seconds: float) -> tuple[Callable[[], None], Callable[[], None]]:
    assert server.clock is not None
    clock = server.clock
    return lambda: move(clock, seconds), lambda: move(clock, 0.0)


def _again(server: Restartable) -> Callable[[], None]:
    return lambda: _start_again(server)


def _freed(server: Restartable) -> Callable[[], None]:
    def heal() -> None:
        if server.process.alive:
            server.free_disk()
        else:
            # It may end itself when its disk is full; whoever runs it starts it again.
            server.start_again(wait=False)

    return heal


def _start_again(server: Restartable) -> None:
    if not server.process.alive:
        server.start_again(wait=False)


def run(
    folder: Path, catalog: str, bucket: Bucket, *, seed: int, seconds: float, say: Callable[[str], None]
) -> Outcome:
    outcome, history = Outcome(), History()
    with cluster(folder, catalog, bucket) as made, ExitStack() as stack:
        create_topics(made.bootstrap)
        recovery = Recovery(made.coordinator.address)
        stack.callback(recovery.stop)
        all_places = [place for topic in TOPICS for place in places(topic, PARTITIONS)]
        producers = [
            SteadyProducer(f"p{number}-{place.topic}-{place.partition}", made.bootstrap, place, history, RATE)
            for place in all_places
            for number in range(2)
        ]
        followers: list[Follower] = [KafkaFollower("a Kafka consumer", made.bootstrap, all_places)]
        agents = [agent.address for agent in made.agents]
        followers += [GrpcFollower("a consumer over gRPC", agents, place) for place in all_places]
        for follower in followers:
            stack.callback(follower.stop)
        strike(made, recovery, seed, seconds, outcome, history, say)
        while_broken = {(one.name, place): len(read) for one in followers for place, read in one.read.items()}
        outcome.followed = sum(while_broken.values())
        say("healed; waiting for what is still under way")
        deadline = time.monotonic() + HEALED
        recovery.settle(HEALED)
        # So that records follow every hole.
        time.sleep(AFTER_HOLES)
        for producer in producers:
            producer.stop(max(1.0, deadline - time.monotonic()))
            outcome.violations += producer.problems
        outcome.acknowledged = history.count
        say(f"{history.count} records acknowledged; reading")
        recovery.stop()
        holes = holes_of(made, all_places)
        outcome.holes = sum(len(found) for found in holes.values())
        reads: dict[Place, list[Read]] = {}
        starts: dict[Place, int] = {}
        for place in all_places:
            starts[place], read = read_to_end(made.bootstrap, place, HEALED)
            reads[place] = [read, tail(made.agents[place.partition % AGENTS].address, place)]
        catch_up(followers, {place: found[0][-1][0] + 1 if found[0] else 0 for place, found in reads.items()}, HEALED)
        followed: dict[Place, list[Followed]] = {place: [] for place in all_places}
        for follower in followers:
            outcome.violations += follower.problems
            for place, seen in follower.read.items():
                followed[place].append(Followed(follower.name, list(seen)))
        # Nobody accepts a loss but of what was on a disk that is gone: there is no other hole that may be.
        outcome.violations += violations(history, reads, holes, starts, recovery.accepted, followed)
        for place, accepted in recovery.accepted.items():
            if accepted and TOPICS[place.topic] != "WAL":
                outcome.violations.append(f"{place}: it survives the loss of a disk, and {accepted} were lost with one")
        for (name, place), count in while_broken.items():
            if count == 0:
                outcome.violations.append(
                    f"{place}: {name} read nothing before everything was healed: it proves nothing"
                )
        if history.count < seconds * RATE:
            outcome.violations.append(f"only {history.count} records were acknowledged: the campaign proves little")
    return outcome


def strike(
    made: Cluster,
    recovery: Recovery,
    seed: int,
    seconds: float,
    outcome: Outcome,
    history: History,
    say: Callable[[str], None],
) -> None:
    """Carries the plan out, and heals everything at its end."""
    faults = faults_of(made, recovery)
    strokes = plan(faults, seconds, random.Random(seed), PAUSE)
    moments = [(one.begins, True, one.fault) for one in strokes] + [(one.ends, False, one.fault) for one in strokes]
    moments.sort(key=lambda moment: moment[0])
    began = time.monotonic()
    try:
        for at, begins, fault in moments:
            time.sleep(max(0.0, began + at - time.monotonic()))
            if begins:
                say(f"{at:6.1f} s of {seconds:.0f}  {fault.name} ({history.count} acknowledged)")
                outcome.strokes[fault.kind] += 1
                _if_alive(fault.strike)
            else:
                _if_alive(fault.heal)
    finally:
        for fault in faults:
            _if_alive(fault.heal)
        for server in (made.coordinator, *made.agents):
            _start_again(server)


def _if_alive(action: Callable[[], None]) -> None:
    """A process that another fault has ended cannot be struck."""
    try:
        action()
    except ProcessLookupError:
        return


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    kept_for = {"retention.ms": str(int(4 * WEEKS * 1000))}
    wanted = [
        NewTopic(name, PARTITIONS, 1, config={"headgate.durability": kept, **kept_for}) for name, kept in TOPICS.items()
    ]
    for future in admin.create_topics(wanted, operation_timeout=60).values():
        future.result(60)


def holes_of(made: Cluster, wanted: Sequence[Place]) -> Mapping[Place, Sequence[Hole]]:
    found: dict[Place, list[Hole]] = {place: [] for place in wanted}
    with grpc.insecure_channel(made.coordinator.address) as channel:
        stub = topic_service_pb2_grpc.TopicServiceStub(channel)
        answer = stub.ListPartitions(log_api.ListPartitionsRequest(), timeout=60, wait_for_ready=True)
    for partition in answer.partitions:
        place = Place(partition.topic, partition.index)
        if place in found:
            found[place] = holes_in(partition)
    return found


def tail(address: str, place: Place) -> Read:
    """The partition over gRPC, through an agent that need not lead it."""
    earliest: Any = {"from": log_api.StartPosition(earliest=True)}
    request = log_api.TailRecordsRequest(topic=place.topic, partitions=[place.partition], until_end=True, **earliest)
    options = [("grpc.max_receive_message_length", 64 << 20)]
    with grpc.insecure_channel(address, options=options) as channel:
        stub = log_service_pb2_grpc.LogServiceStub(channel)
        return [
            (record.offset, record.value)
            for answer in stub.TailRecords(request, timeout=HEALED, wait_for_ready=True)
            for record in answer.records
        ]


def main() -> int:
    """Campaigns one after the other, with seeds of their own, for as long as is asked for."""
    from tests.servers.minio import running_minio
    from tests.servers.postgres import running_postgres

    hours = float(os.environ.get("HOURS", "1"))
    first = int(os.environ.get("SEED", str(random.randrange(1_000_000))))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    total, campaigns = Outcome(), 0
    with tempfile.TemporaryDirectory(prefix="headgate-chaos-") as name, ExitStack() as stack:
        folder = Path(name)
        postgres = stack.enter_context(running_postgres(folder / "postgres.log"))
        minio = stack.enter_context(running_minio(folder / "minio.log"))
        # From here on: servers may be built first, and a run without a campaign would say that everything held.
        until = time.monotonic() + hours * 3600
        while not total.violations and (left := until - time.monotonic()) > (LEAST_SPAN if campaigns else 0.0):
            seed = first + campaigns
            own = folder / str(seed)
            own.mkdir()
            seconds = min(SPAN, max(LEAST_SPAN, left))
            print(f"chaos: seed {seed}, {seconds:.0f} s, {left / 3600:.2f} hours left", flush=True)
            with postgres.fresh_database() as catalog:
                outcome = run(own, catalog, minio.fresh_bucket(), seed=seed, seconds=seconds, say=_say)
            print(f"chaos: seed {seed}: {outcome}", flush=True)
            if outcome.violations:
                _keep_logs(own, seed)
            shutil.rmtree(own, ignore_errors=True)
            total.add(outcome)
            campaigns += 1
    print(f"chaos: {campaigns} campaigns, seeds {first} to {first + campaigns - 1}: {total}", flush=True)
    if total.violations:
        print("\n".join(total.violations), flush=True)
        return 1
    print("chaos: everything held", flush=True)
    return 0


def _keep_logs(folder: Path, seed: int) -> None:
    kept = Path("build/chaos-logs") / str(seed)
    kept.mkdir(parents=True, exist_ok=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, kept)
    print(f"chaos: the logs of the servers are in {kept}", flush=True)


def _say(text: str) -> None:
    print(f"  {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
