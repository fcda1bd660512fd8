"""Plans of runs with a log: topics of both durabilities, producers, consumers, and what can happen to agents, disks and
the object store while they go on. Queries have plans of their own (`generate.py`)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headgate_simulation.fault_plans import FaultKinds, Moment, around, between_agents, clocks, late
from headgate_simulation.group_generate import groups
from headgate_simulation.plan import ANY_AGENT, AgentSpec, Fault, LogPlan, Operation, Plan, Weather
from headgate_simulation.streams import stream

# Before this, the cluster forms and topics are made, without faults.
SETTLED = 2.5
SETUP = 0.8
# Over which time operations and faults are spread.
SPAN = 12.0
MOMENTS = 3
TOGETHER = 0.5
# Shares of plans in which one topic is an edge, and in which one is an edge that is pinned to an agent.
EDGES = 0.4
PINNED = 0.35
# Share of plans in which a producer sends over a stream.
STREAMING = 0.4
# Share of plans in which a topic keeps records for less than the run.
RETENTION = 0.2


def generate(seed: int) -> Plan:
    source = stream(seed, "log-plan")
    agents = _agents(source)
    coordinators = 2 if source.random() < 0.4 else 1
    moments = [Moment(source.uniform(SETTLED, SETTLED + SPAN), source.choice(agents).name) for _ in range(MOMENTS)]
    operations = _Operations(source, agents, moments)
    operations.workload()
    weather = with_slow_commits(seed, _weather(source))
    faults = _FAULTS.draw(source, agents, coordinators, moments)
    lateness = stream(seed, "late")
    moves = [Moment(made.at, str(made["name"])) for made in operations.made if made.kind in ("join", "leave")]
    faults += late(lateness, moves or moments)
    faults += clocks(seed, agents, coordinators, _FAULTS.between) + between_agents(seed, agents, _FAULTS.between)
    consuming, delays = groups(seed, agents, operations.made, (SETUP + 0.5, SETTLED + SPAN))
    operations.made = _with_retention(stream(seed, "retention"), operations.made)
    streaming = _streaming(stream(seed, "produce-stream"), operations.made)
    operations.made += [*consuming, *_pinned_edge(stream(seed, "pinned-edge"), agents), *streaming]
    faults += delays + _short_of_room(stream(seed, "room"), agents)
    # Where a call may come late, leaders often stop and lead again before it comes.
    unsteady = any(fault.kind in ("late-requests", "late-next") for fault in faults)
    session_ttl = lateness.choice((1.5, 2.0) if unsteady else (1.5, 2.0, 6.0))
    faults += _next_to_write(stream(seed, "next-to-write"), session_ttl)
    return Plan(
        seed=seed,
        agents=agents,
        coordinators=coordinators,
        clients=1,
        watchers=1,
        weather=weather,
        operations=tuple(sorted(operations.made, key=lambda operation: operation.at)),
        faults=tuple(faults),
        heals=SETTLED + SPAN + 1.0,
        log=LogPlan(
            session_ttl=session_ttl,
            doubt=lateness.choice((0.0, 0.0, 1.0) if unsteady else (0.0, 1.0, 4.0)),
            object_delay=source.choice((0.005, 0.05, 0.3)),
            object_timeout=source.choice((0.5, 2.0)),
            reserve_ahead=source.choice((5, 20, 1000)),
            wal_file_bytes=source.choice((500, 4096, 1 << 20)),
            tail_bytes=source.choice((0, 1000, 1 << 20)),
            merge_least=source.choice((2, 4, 16)),
        ),
    )


def with_slow_commits(seed: int, weather: Weather) -> Weather:
    """In some plans commits take so long that several operations share one."""
    return replace(weather, commit_delay=stream(seed, "commit-delay").choice((0.0, 0.0, 0.0, 0.15)))


def _next_to_write(source: random.Random, session_ttl: float) -> list[Fault]:
    """Whoever writes next stands still in the middle of it, for about as long as a session lives, or longer; or dies
    when all is stored, before it says so, to another agent or to anybody."""
    made = []
    for number in range(1, source.choice((2, 3, 4)) + 1):
        at = round(source.uniform(SETTLED, SETTLED + SPAN), 3)
        arguments: dict[str, object]
        if number % 2:
            kind = "pause-at-next-wal"
            arguments = {"away": session_ttl * source.choice((1.0, 2.0)) * source.uniform(0.7, 1.4)}
        else:
            kind = "crash-at-next-answer"
            arguments = {"away": source.uniform(0.1, 1.0), "passed_on": source.random() < 0.7}
        made.append(Fault(f"v{number}", at, 3.0, kind, ANY_AGENT, tuple(arguments.items())))
    return made


def _short_of_room(source: random.Random, agents: tuple[AgentSpec, ...]) -> list[Fault]:
    """Disks that are full for a moment, so that of a few writes some are refused and the next is not."""
    return [
        Fault(
            id=f"d{number}",
            at=round(source.uniform(SETTLED, SETTLED + SPAN / 2), 3),
            lasts=round(source.uniform(0.02, 0.8), 3),
            kind="disk-full",
            target=source.choice(agents).name,
        )
        for number in range(1, source.choice((0, 0, 2, 4)) + 1)
    ]


def _pinned_edge(source: random.Random, agents: tuple[AgentSpec, ...]) -> list[Operation]:
    """An edge in the write-ahead log of one agent, as a query makes it, written in two steps."""
    made: list[Operation] = []
    if source.random() >= PINNED:
        return made
    agent = source.choice([agent.name for agent in agents if agent.starts is not None])
    topic = {"linger": 5, "segment_age": source.choice((200, 1000, 4000)), "segment_bytes": 1 << 16}
    arguments: dict[str, Mapping[str, object]] = {
        "create_topic": {"partitions": 1, "durability": "WAL", "pinned": agent, **topic},
        "consume": {"partition": 0},
        "write_edge": {"batches": source.choice((10, 20)), "pace": source.choice((0.1, 0.3, 0.6))},
    }
    for number, (kind, own) in enumerate(arguments.items(), 1):
        at = round(SETUP + source.uniform(0.0, 0.5) + (number - 1) * 0.5, 3)
        given = (("topic", "p1"), *own.items())
        made.append(Operation(id=f"p{number}", at=at, client=1, kind=kind, arguments=given, timeout=3.0))
    return made


def _with_retention(source: random.Random, operations: list[Operation]) -> list[Operation]:
    """Now and then a topic that keeps records for seconds, by the clock of its leader."""
    if source.random() >= RETENTION:
        return operations
    topic = source.choice([one for one in operations if one.kind == "create_topic" and str(one["topic"]) != "e1"])
    kept = replace(topic, arguments=(*topic.arguments, ("retention", source.choice((2000, 5000)))))
    return [kept if one is topic else one for one in operations]


def _streaming(source: random.Random, operations: Sequence[Operation]) -> list[Operation]:
    """A producer that sends over a stream, to a partition of a topic that the plan has."""
    topics = [one for one in operations if one.kind == "create_topic" and str(one["topic"]).startswith("t")]
    if source.random() >= STREAMING:
        return []
    topic = source.choice(topics)
    count = topic["partitions"]
    assert isinstance(count, int)
    arguments = {
        "topic": topic["topic"],
        "partition": source.randrange(count),
        "batches": source.choice((10, 20, 30)),
        "pace": source.choice((0.1, 0.4)),
        "idempotent": source.random() < 0.7,
    }
    at = round(SETUP + source.uniform(0.5, 4.0), 3)
    timeout = source.choice((1.0, 3.0, 8.0))
    return [Operation("s1", at, 1, "produce_stream", tuple(arguments.items()), timeout=timeout)]


def _agents(source: random.Random) -> tuple[AgentSpec, ...]:
    zones = source.choice((("",), ("east", "west")))
    agents = []
    for number in range(1, source.choice((3, 3, 3, 4, 4, 5)) + 1):
        late = number > 2 and source.random() < 0.25
        agents.append(
            AgentSpec(
                name=f"a{number}",
                slots=1,
                zone=source.choice(zones),
                engine=False,
                starts=None if late else round(source.uniform(0.0, 0.5), 3),
            )
        )
    return tuple(agents)


def _weather(source: random.Random) -> Weather:
    rough = source.random() < 0.5
    return Weather(
        delay=source.choice((0.0005, 0.002, 0.01)),
        spread=source.choice((0.001, 0.01, 0.05)),
        tail=source.choice((0.5, 0.5, 2.0, 6.0)),
        tail_share=source.choice((0.005, 0.02, 0.1)) if rough else 0.0,
        loss=source.choice((0.0, 0.01, 0.05)) if rough else 0.0,
        duplication=source.choice((0.0, 0.1, 0.5)),
        store_delay=source.choice((0.0005, 0.005, 0.05)),
    )


class _Operations:
    def __init__(self, source: random.Random, agents: tuple[AgentSpec, ...], moments: list[Moment]) -> None:
        self.made: list[Operation] = []
        self._source = source
        self._agents = agents
        self._moments = moments
        self._late = [agent.name for agent in agents if agent.starts is None]

    def add(self, at: float, kind: str, arguments: Mapping[str, object]) -> None:
        self.made.append(
            Operation(
                id=f"o{len(self.made) + 1}",
                at=round(at, 3),
                client=1,
                kind=kind,
                arguments=tuple(arguments.items()),
                attempts=self._source.choice((1, 5)),
                timeout=self._source.choice((1.0, 3.0, 8.0, 25.0)),
            )
        )

    def workload(self) -> None:
        source = self._source
        topics = [self._topic(f"t{number}") for number in range(1, source.choice((1, 2, 2, 3)) + 1)]
        partitions = [(name, index) for name, count, _ in topics for index in range(count)]
        for name, index in partitions:
            self.add(SETUP + source.uniform(0.0, 2.0), "consume", {"topic": name, "partition": index})
            if source.random() < 0.3:
                self.add(self._when(), "consume", {"topic": name, "partition": index})
        if source.random() < EDGES:
            self._edge("e1")
        for number in range(source.randint(2, 5)):
            name, index = partitions[number] if number < len(partitions) else source.choice(partitions)
            self._producer(name, index)
        for name, _, durability in topics:
            if durability == "WAL" and source.random() < 0.3:
                self.add(self._when(), "recover", {"topic": name})
        for _ in range(source.choice((0, 0, 1, 2))):
            name, index = source.choice(partitions)
            share = source.choice((0.3, 0.7, 1.0))
            self.add(self._when(), "delete_records", {"topic": name, "partition": index, "share": share})
        for _ in range(source.choice((0, 1, 2, 3))):
            self._movement()

    def _edge(self, name: str) -> None:
        """Written in two steps."""
        source = self._source
        self._topic(name, "OBJECT", 1)
        self.add(SETUP + source.uniform(0.0, 2.0), "consume", {"topic": name, "partition": 0})
        arguments = {"topic": name, "batches": source.choice((5, 10)), "pace": source.choice((0.1, 0.5))}
        self.add(SETUP + source.uniform(0.5, 4.0), "write_edge", arguments)

    def _topic(self, name: str, durability: str = "", count: int = 0) -> tuple[str, int, str]:
        source = self._source
        durability = durability or source.choice(("WAL", "OBJECT"))
        count = count or source.choice((1, 1, 2, 3))
        self.add(
            SETUP + source.uniform(0.0, 0.5),
            "create_topic",
            {
                "topic": name,
                "partitions": count,
                "durability": durability,
                "linger": source.choice((5, 50, 300)),
                "segment_age": source.choice((200, 1000, 4000)),
                "segment_bytes": source.choice((1 << 16, 1 << 20)),
            },
        )
        return name, count, durability

    def _producer(self, topic: str, index: int) -> None:
        source = self._source
        kind = source.choice(("produce", "produce", "produce", "produce_records", "produce_records"))
        arguments: dict[str, object] = {
            "topic": topic,
            "partition": index,
            "batches": source.choice((10, 20, 30)),
            "pace": source.choice((0.1, 0.4, 0.7)),
        }
        if kind == "produce":
            arguments["idempotent"] = source.random() < 0.7
        self.add(SETUP + source.uniform(0.5, 4.0), kind, arguments)

    def _movement(self) -> None:
        source = self._source
        if self._late and source.random() < 0.6:
            self.add(self._when(), "join", {"name": source.choice(self._late)})
            return
        at, name = self._when(), source.choice(self._agents).name
        self.add(at, "leave", {"name": name})
        if source.random() < 0.8:
            self.add(at + source.uniform(0.3, 6.0), "join", {"name": name})

    def _when(self) -> float:
        source = self._source
        if source.random() < TOGETHER:
            return around(source, source.choice(self._moments), SETTLED + SPAN)
        return source.uniform(SETTLED, SETTLED + SPAN)


# What can go wrong, how often, and with whom.
_KINDS: tuple[tuple[float, str, str], ...] = (
    (2.0, "crash", "agent"),
    (2.0, "power", "agent"),
    (0.6, "disk-lost", "agent"),
    (2.0, "pause", "agent"),
    (3.5, "crash-at-wal", "agent"),
    (2.0, "crash-at-upload", "agent"),
    (2.0, "pause-at-wal", "agent"),
    (1.5, "pause-at-upload", "agent"),
    (1.5, "disk-full", "agent"),
    (1.5, "store-fails", "store"),
    (1.5, "store-lost", "store"),
    (1.5, "store-slow", "store"),
    (1.0, "crash", "coordinator"),
    (0.7, "pause", "coordinator"),
    (0.7, "depose", "leader"),
    (1.0, "partition", "agent"),
    (1.0, "one-way", "agent"),
    (1.0, "one-way", "coordinator"),
    (0.7, "isolate", "any"),
    (1.0, "slow", "any"),
    (1.0, "lossy", "any"),
    (1.0, "late-answers", "any"),
    (1.0, "duplicating", "coordinator"),
    (0.7, "commit-fails", "coordinator"),
    (1.5, "commit-lost", "coordinator"),
    (1.0, "commit-pauses", "coordinator"),
    (1.0, "crash-at-commit", "leader"),
    (0.7, "wall-clock", "any"),
)

# How long, about, in seconds. Whoever is away for longer than its session lives must have stopped before.
_AWAY = (0.1, 1.0, 8.0, 8.0)
_WAITS_FOR_ITS_MOMENT = (2.0, 4.0)
_LASTS = {
    "crash": _AWAY,
    "power": _AWAY,
    "disk-lost": _AWAY,
    "pause": _AWAY,
    "isolate": _AWAY,
    "partition": _AWAY,
    "crash-at-wal": _WAITS_FOR_ITS_MOMENT,
    "crash-at-upload": _WAITS_FOR_ITS_MOMENT,
    "pause-at-wal": (10.0,),
    "pause-at-upload": (10.0,),
    "disk-full": (4.0, 8.0),
    "store-fails": (1.0, 3.0, 6.0),
    "store-lost": (1.0, 3.0, 6.0),
    "store-slow": (1.0, 3.0, 6.0),
}
_OTHERS_LAST = (0.1, 0.3, 1.0, 3.0, 8.0)
_FAULTS = FaultKinds(
    kinds=_KINDS,
    count=(6, 14),
    between=(SETTLED - 0.5, SETTLED + SPAN),
    together=TOGETHER,
    lasts=lambda kind: _LASTS.get(kind, _OTHERS_LAST),
    spread=(0.7, 1.4),
)
