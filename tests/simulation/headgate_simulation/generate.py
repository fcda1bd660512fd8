"""Plans from seeds: topologies, workloads and faults. The same seed gives the same plan, for good reason: it is how a
failure is told to somebody else.

Names come from small pools, capacity is short, and faults overlap, because that is where the bugs are.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from headgate_simulation import log_generate
from headgate_simulation.fault_plans import FaultKinds, Moment, around, clocks
from headgate_simulation.plan import ANY_AGENT, AgentSpec, Fault, Operation, Plan, Weather
from headgate_simulation.streams import stream
from headgate_simulation.use_plans import with_drops, with_links

# How many of the sinks need nothing of a node.
MOVABLE_SINKS = 0.35
# Before this, the cluster forms and the first sources and sinks are made, without faults.
SETTLED = 2.5
# When the first sources and sinks are asked for.
SETUP = 1.0
# When links are declared, where there are any from the beginning.
LINKS = 0.9
# Over which time operations and faults are spread.
SPAN = 14.0
# Moments at which much happens at a time, and the share of what happens then.
MOMENTS = 3
TOGETHER = 0.4
LOGICAL_SOURCES = ("readings", "orders", "clicks")
STATEMENTS = (
    "SELECT id, amount FROM {source} WHERE amount > 10 INTO {sink}",
    "SELECT id, amount FROM {source} INTO {sink}",
    "SELECT id, amount * 2 AS amount FROM {source} WHERE id > 0 INTO {sink}",
)


def generate(seed: int) -> Plan:
    """Of three seeds, two have queries and one has a log. One in fifteen has both."""
    if has_both(seed):
        return _with_both(seed)
    return log_generate.generate(seed) if has_log(seed) else with_links(_with_queries(seed), LINKS, _FAULTS.between)


def has_log(seed: int) -> bool:
    """Whether it has a log and no queries."""
    return seed % 3 == 0


def has_both(seed: int) -> bool:
    return seed % 10 == 5 and not has_log(seed)


def _with_both(seed: int) -> Plan:
    """Queries, whose edges are led for real, and topics of clients, on the same agents, with the faults of either."""
    queries, log = _with_queries(seed), log_generate.generate(seed)
    names = {agent.name for agent in queries.agents}
    agents = tuple(replace(agent, log=True) for agent in queries.agents)
    agents += tuple(agent for agent in log.agents if agent.name not in names)
    operations = (*queries.operations, *(replace(one, id=f"t{one.id}") for one in log.operations))
    return replace(
        queries,
        agents=agents,
        coordinators=max(queries.coordinators, log.coordinators),
        operations=tuple(sorted(operations, key=lambda operation: operation.at)),
        faults=(*queries.faults, *(replace(fault, id=f"t{fault.id}") for fault in log.faults)),
        log=log.log,
    )


def _with_queries(seed: int) -> Plan:
    source = stream(seed, "plan")
    agents = _agents(source)
    coordinators = 2 if source.random() < 0.5 else 1
    clients = source.randint(2, 3)
    moments = [Moment(source.uniform(SETTLED, SETTLED + SPAN), source.choice(agents).name) for _ in range(MOMENTS)]
    operations = _Operations(source, agents, clients, moments)
    operations.setup()
    operations.workload()
    plan = Plan(
        seed=seed,
        agents=agents,
        coordinators=coordinators,
        clients=clients,
        watchers=source.randint(1, 2),
        weather=log_generate.with_slow_commits(seed, _weather(source)),
        operations=tuple(operations.made),
        faults=(
            *_FAULTS.draw(source, agents, coordinators, moments),
            *_of_journals(seed, moments, agents),
            *_of_answers(seed, coordinators),
            *clocks(seed, agents, coordinators, _FAULTS.between),
        ),
        heals=SETTLED + SPAN + 1.0,
    )
    return with_drops(plan, (SETTLED, SETTLED + SPAN))


def _of_journals(seed: int, moments: list[Moment], agents: tuple[AgentSpec, ...]) -> list[Fault]:
    """Crashes in the middle of a write to a journal, with the power or without, and disks that sync nothing."""
    source = stream(seed, "journal-faults")
    faults = []
    for number in range(1, source.choice((1, 2, 3, 4)) + 1):
        moment = source.choice(moments)
        target = source.choice((moment.agent, source.choice(agents).name, ANY_AGENT))
        arguments: dict[str, object] = {}
        if source.random() < 0.75:
            # It waits for a write.
            kind, lasts = "crash-at-journal", source.uniform(3.0, 8.0)
            arguments["when"] = source.choice(("before", *["unsynced"] * 4, "after"))
            arguments["power"] = source.random() < 0.5
            arguments["down"] = round(source.choice((0.1, 0.5, 2.0)) * source.uniform(0.5, 1.5), 3)
            # Before the next process has written anything, or when others rely on what it has read or written.
            arguments["again"] = source.choice((0.0, 0.3, 1.0, 3.0))
        else:
            kind, target = "journal-breaks", moment.agent
            lasts = source.choice((0.3, 1.0, 3.0)) * source.uniform(0.5, 1.5)
            arguments["power"] = source.random() < 0.5
        at = around(source, moment, SETTLED + SPAN)
        faults.append(Fault(f"j{number}", round(at, 3), round(lasts, 3), kind, target, tuple(arguments.items())))
    # What one process leaves uncertain, the next one relies on; then the power fails.
    for when in source.sample(("renamed", "name", "unsynced", "file"), source.choice((1, 2))):
        arguments = {"when": when, "down": 0.3, "again": source.choice((0.3, 1.0, 3.0))}
        at = round(source.uniform(SETTLED - 1.0, SETTLED + SPAN / 2), 3)
        faults.append(Fault(f"u{len(faults) + 1}", at, 6.0, "crash-at-journal", ANY_AGENT, tuple(arguments.items())))
    return faults


def _of_answers(seed: int, coordinators: int) -> list[Fault]:
    """Answers that tell less than what is so: not that a commit happened, or what an agent had a while ago."""
    source = stream(seed, "answer-faults")
    faults = []
    for number in range(1, source.choice((1, 2)) + 1):
        at, lasts = source.uniform(SETTLED - 0.5, SETTLED + SPAN), source.uniform(1.0, 4.0)
        if source.random() < 0.5:
            kind, target = "commit-lost", f"c{source.randint(1, coordinators)}"
            arguments = {"share": source.choice((0.2, 0.4))}
        else:
            kind, target, arguments = "late-replies", "GetStatus", {"by": source.choice((0.1, 0.3, 0.8))}
        faults.append(Fault(f"w{number}", round(at, 3), round(lasts, 3), kind, target, tuple(arguments.items())))
    return faults


def _agents(source: random.Random) -> tuple[AgentSpec, ...]:
    count = 3 + _few(source, 6)
    sizes = source.choice(((1, 2, 3), (3, 4, 6), (6, 8, 12), (6, 8, 12)))
    zones = source.choice((("",), ("east", "west"), ("a", "b", "c")))
    agents = []
    for number in range(1, count + 1):
        late = number > 3 and source.random() < 0.2
        engine = number <= 2 or source.random() < 0.7
        agents.append(
            AgentSpec(
                name=f"a{number}",
                slots=source.choice(sizes),
                zone=source.choice(zones),
                engine=engine,
                # Where compute fragments are that lead nothing, a sink fragment that could be beside them cannot.
                log=not engine or number == 1 or source.random() < 0.6,
                starts=None if late else round(source.uniform(0.0, 0.8), 3),
            )
        )
    return tuple(agents)


def _few(source: random.Random, below: int) -> int:
    """A number below the given one, more often small than large: most bugs need few, and few are quick."""
    return int(below * source.random() ** 1.7)


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
        start_delay=source.choice((0.05, 0.5, 2.0)),
        stop_delay=source.choice((0.05, 0.3, 1.5)),
        ends=source.choice((0.0, 0.0, 0.15)),
        breaks=source.choice((0.0, 0.1, 0.4)),
        fails=source.choice((0.0, 0.0, 0.05)),
        refused=source.choice((0.0, 0.0, 0.05)),
    )


class _Operations:
    def __init__(
        self, source: random.Random, agents: tuple[AgentSpec, ...], clients: int, moments: list[Moment]
    ) -> None:
        self.made: list[Operation] = []
        self._source = source
        self._moments = moments
        self._agents = agents
        self._clients = clients
        # Where sources and sinks can be.
        self._present = [agent.name for agent in agents if agent.starts is not None and agent.log]
        self._late = [agent.name for agent in agents if agent.starts is None]
        self._sinks: list[str] = []
        self._physical: list[str] = []
        self._logical = list(LOGICAL_SOURCES[: source.randint(1, 3)])
        self._queries = [f"q{number}" for number in range(1, source.randint(5, 14) + 1)]

    def add(self, at: float, kind: str, arguments: Mapping[str, object], *, client: int | None = None) -> None:
        source = self._source
        with_request_id = kind == "setup" or source.random() < 0.9
        self.made.append(
            Operation(
                id=f"o{len(self.made) + 1}",
                at=round(at, 3),
                client=source.randrange(self._clients) + 1 if client is None else client,
                kind=kind,
                arguments=tuple(arguments.items()),
                attempts=60 if kind == "setup" else source.choice((1, 5, 8)) if with_request_id else 1,
                timeout=2.0 if kind == "setup" else source.choice((0.5, 2.0, 5.0)),
                with_request_id=with_request_id,
            )
        )

    def setup(self) -> None:
        """Sources on some agents, sinks on others, in one bundle or one by one."""
        source = self._source
        items: list[tuple[str, dict[str, object]]] = []
        for logical in self._logical:
            items.append(("create_logical_source", {"name": logical}))
            feeding = source.sample(self._present, min(len(self._present), source.choice((1, 1, 2))))
            items += [("create_physical_source", self._physical_source(logical, agent)) for agent in feeding]
        items += [("create_sink", self._sink(f"k{number}")) for number in range(1, source.randint(2, 4) + 1)]
        self.add(SETUP, "setup", {"items": tuple((kind, tuple(a.items())) for kind, a in items)}, client=1)

    def _physical_source(self, logical: str, agent: str) -> dict[str, object]:
        name = f"{logical}_on_{agent}"
        if name not in self._physical:
            self._physical.append(name)
        return {"name": name, "logical_source": logical, "agent": agent}

    def _sink(self, name: str) -> dict[str, object]:
        if name not in self._sinks:
            self._sinks.append(name)
        agent = self._source.choice(self._present)
        # Without an agent it is a topic, whose sink fragment can be anywhere.
        return {"name": name, "agent": "" if self._source.random() < MOVABLE_SINKS else agent}

    def _query(self) -> dict[str, object]:
        source = self._source
        text = source.choice(STATEMENTS).format(source=source.choice(self._logical), sink=source.choice(self._sinks))
        return {
            "name": source.choice(self._queries),
            "statement": text,
            "deadline": source.choice((None, None, 5.0, 20.0)),
        }

    def workload(self) -> None:
        source = self._source
        ends = SETTLED + SPAN
        for _ in range(5 + _few(source, 9)):
            # Many come early: there should be something to break.
            at = SETTLED - 0.5 + (SPAN + 0.5) * source.random() ** 2
            moment = _together(source, self._moments)
            self._life_of_a_query(at if moment is None else around(source, moment, SETTLED + SPAN), ends)
        for _ in range(source.randint(0, 6)):
            kind = source.choice(("get_query", "get_query", "list_queries", "snapshot"))
            self.add(source.uniform(SETTLED, ends), kind, {"name": source.choice(self._queries)})
        for _ in range(source.randint(0, 5)):
            self._catalog_operation(source.uniform(SETTLED, ends))
        for _ in range(source.randint(0, 4)):
            moment = _together(source, self._moments)
            if moment is None:
                self._cluster_operation(source.uniform(SETTLED, ends), source.choice(self._agents).name)
            else:
                self._cluster_operation(around(source, moment, SETTLED + SPAN), moment.agent)
        self.made.sort(key=lambda operation: operation.at)

    def _life_of_a_query(self, at: float, ends: float) -> None:
        """It is created, perhaps by two at a time; then perhaps stopped, dropped, and created again under its name."""
        source = self._source
        query = self._query()
        self.add(at, "create_query", query)
        if source.random() < 0.1:
            self.add(at + source.uniform(0.0, 0.1), "create_query", {**self._query(), "name": query["name"]})
        while at < ends and source.random() < 0.6:
            # At once, while it deploys, or when it has run for a while.
            at += source.choice((0.05, 0.5, 3.0, 12.0)) * source.uniform(0.5, 1.5)
            kind = source.choice(("stop_query", "drop_query", "drop_query", "drop_query"))
            stop: dict[str, object] = {
                "name": query["name"],
                "mode": source.choice(("", "HARD", "SOFT")),
                "drain": source.choice((None, 2.0, 8.0)),
            }
            if kind == "drop_query":
                stop["allow_missing"] = source.random() < 0.3
            self.add(min(at, ends), kind, stop)
            if kind == "drop_query" and source.random() < 0.3:
                at += source.choice((0.02, 0.3, 2.0)) * source.uniform(0.5, 1.5)
                self.add(min(at, ends), "create_query", {**self._query(), "name": query["name"]})

    def _catalog_operation(self, at: float) -> None:
        source = self._source
        logical = source.choice(self._logical)
        match source.randrange(6):
            case 0:
                self.add(at, "create_sink", self._sink(f"k{source.randint(1, 6)}"))
            case 1:
                self.add(at, "drop_sink", {"name": source.choice(self._sinks)})
            case 2:
                self.add(at, "create_physical_source", self._physical_source(logical, source.choice(self._present)))
            case 3:
                self.add(at, "drop_physical_source", {"name": source.choice(self._physical or [logical])})
            case 4:
                self.add(at, "drop_logical_source", {"name": logical})
            case _:
                sink = f"b{source.randint(1, 3)}"
                query = self._query()
                query["statement"] = str(query["statement"]).rsplit(" ", 1)[0] + f" {sink}"
                items = [
                    ("create_sink", tuple(self._sink(sink).items())),
                    ("create_query", tuple(query.items())),
                ]
                if source.random() < 0.3:
                    items.append(("drop_query", (("name", source.choice(self._queries)), ("allow_missing", True))))
                self.add(at, "bundle", {"items": tuple(items)})

    def _cluster_operation(self, at: float, name: str) -> None:
        source = self._source
        if self._late and source.random() < 0.5:
            late = source.choice(self._late)
            if source.random() < 0.5:
                self.add(at, "create_agent", {"name": late})
            self.add(at + source.uniform(-1.0, 3.0), "join", {"name": late})
            return
        match source.randrange(5):
            case 0:
                self.add(at, "leave", {"name": name})
                if source.random() < 0.7:
                    self.add(at + source.uniform(0.5, 10.0), "join", {"name": name})
            case 1:
                self.add(at, "drop_agent", {"name": name, "force": False})
            case 2:
                self.add(at, "drop_agent", {"name": name, "force": True})
                if source.random() < 0.5:
                    self.add(at + source.uniform(0.5, 10.0), "join", {"name": name})
            case 3:
                self.add(at, "create_agent", {"name": name})
            case _:
                other = source.choice([agent.name for agent in self._agents])
                link = {"from_agent": name, "to_agent": other}
                self.add(at, source.choice(("create_link", "drop_link")), link)


def _together(source: random.Random, moments: list[Moment]) -> Moment | None:
    """Often a moment at which more is going on."""
    return source.choice(moments) if source.random() < TOGETHER else None


# What can go wrong, how often, and with whom: an agent, a coordinator, whoever leads at that moment, or any of them.
_KINDS: tuple[tuple[float, str, str], ...] = (
    (3.0, "crash", "agent"),
    (1.5, "crash", "coordinator"),
    (1.5, "pause", "agent"),
    (1.0, "pause", "coordinator"),
    (1.0, "depose", "leader"),
    (1.5, "partition", "agent"),
    (1.5, "one-way", "agent"),
    (1.5, "one-way", "coordinator"),
    (0.7, "isolate", "any"),
    (0.7, "isolate-from-catalog", "coordinator"),
    (1.5, "slow", "any"),
    (1.5, "lossy", "any"),
    (1.5, "late-answers", "agent"),
    (1.5, "duplicating", "coordinator"),
    (1.0, "commit-fails", "coordinator"),
    (1.5, "commit-lost", "coordinator"),
    (2.5, "commit-pauses", "coordinator"),
    (1.5, "crash-at-commit", "leader"),
    (0.7, "wall-clock", "any"),
    (1.5, "runs-break", "agent"),
    (0.7, "journal-fails", "agent"),
    (1.5, "crash-at-journal", "agent"),
)

_FAULTS = FaultKinds(
    kinds=_KINDS,
    count=(10, 25),
    between=(SETTLED - 0.5, SETTLED + SPAN),
    together=TOGETHER,
    lasts=lambda kind: (0.05, 0.3, 0.3, 1.0, 1.0, 3.0, 8.0),
    spread=(0.5, 1.5),
)
