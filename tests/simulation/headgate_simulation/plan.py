"""What one run does, as data: a topology, operations of clients, and faults. Everything in it has an id.

A plan is made from a seed by `generate.py` and carried out by `world.py`. `keep` makes it smaller without changing
anything else in it, which is how a failing plan is shrunk and how a shrunk one is replayed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass

# The target of a fault that strikes whichever coordinator leads when it begins.
LEADER = "leader"
# The target of a fault that strikes the first agent that does what it waits for.
ANY_AGENT = "any agent"


@dataclass(frozen=True, slots=True)
class AgentSpec:
    name: str
    slots: int
    zone: str = ""
    engine: bool = True
    # Whether it leads topics, edges among them.
    log: bool = True
    # When its process first starts, in seconds; None if only an operation starts it.
    starts: float | None = 0.0
    # To whom it declares a link when it registers.
    peers: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"{self.name}:7100"

    def __str__(self) -> str:
        when = "later" if self.starts is None else f"at {self.starts:.1f} s"
        peers = f" peers={','.join(self.peers)}" if self.peers else ""
        return (
            f"{self.name} slots={self.slots} zone={self.zone or '-'} engine={self.engine} log={self.log}{peers} "
            f"starts {when}"
        )


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that a client asks for. `kind` is a method of `clients.Workload`."""

    id: str
    at: float
    client: int
    kind: str
    arguments: tuple[tuple[str, object], ...] = ()
    # Tries before the client gives up on answers that say "perhaps" or "later".
    attempts: int = 4
    # How long each try may take.
    timeout: float = 2.0
    # Without a request_id a retry is a new request: such operations are tried once.
    with_request_id: bool = True

    def __getitem__(self, name: str) -> object:
        return dict(self.arguments)[name]

    def get(self, name: str, default: object = None) -> object:
        return dict(self.arguments).get(name, default)

    def __str__(self) -> str:
        arguments = " ".join(f"{name}={value}" for name, value in self.arguments)
        return f"{self.id:>4} {self.at:7.3f} s  client-{self.client} {self.kind} {arguments}"


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong at `at` and is over after `lasts`. `kind` is one that `faults.py` knows."""

    id: str
    at: float
    lasts: float
    kind: str
    target: str
    arguments: tuple[tuple[str, object], ...] = ()

    def get(self, name: str, default: object = None) -> object:
        return dict(self.arguments).get(name, default)

    def __str__(self) -> str:
        arguments = " ".join(f"{name}={value}" for name, value in self.arguments)
        return f"{self.id:>4} {self.at:7.3f} s  {self.kind} {self.target} for {self.lasts:.3f} s {arguments}".rstrip()


@dataclass(frozen=True, slots=True)
class Weather:
    """How the network, the store and the runs of fragments behave all through a run, faults aside."""

    delay: float = 0.001
    spread: float = 0.004
    tail: float = 0.0
    tail_share: float = 0.0
    loss: float = 0.0
    duplication: float = 0.0
    # The longest that a commit or a read takes.
    store_delay: float = 0.002
    # How much longer a commit takes, at most: what comes meanwhile shares the next one.
    commit_delay: float = 0.0
    # How long a fragment takes from start to running, at most.
    start_delay: float = 0.5
    # How long a stop takes, at most.
    stop_delay: float = 0.3
    # Shares of runs that end by themselves, break in a way that may pass, or break for good.
    ends: float = 0.0
    breaks: float = 0.0
    fails: float = 0.0
    # Share of fragments that their agent refuses for good.
    refused: float = 0.0


@dataclass(frozen=True, slots=True)
class LogPlan:
    """How the log behaves all through a run that has one. Small numbers, so that every limit is reached."""

    # How long agents' sessions live without a renewal: shorter than some messages take.
    session_ttl: float = 6.0
    # How long partitions wait for one that may have ended.
    doubt: float = 4.0
    # The longest that a request to the object store takes.
    object_delay: float = 0.02
    # How long an agent waits for one.
    object_timeout: float = 2.0
    # Offsets that the leader of a WAL partition reserves at a time.
    reserve_ahead: int = 50
    # Bytes of a write-ahead file, and of records that stay in memory though segments hold them.
    wal_file_bytes: int = 4096
    tail_bytes: int = 4096
    # Segments that must follow each other to be merged.
    merge_least: int = 4


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int
    agents: tuple[AgentSpec, ...]
    coordinators: int
    clients: int
    watchers: int
    weather: Weather
    operations: tuple[Operation, ...]
    faults: tuple[Fault, ...]
    # When all faults are over and time is only allowed to pass.
    heals: float
    # None where agents lead nothing, though they say that they could.
    log: LogPlan | None = None

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(o.id for o in self.operations) + tuple(f.id for f in self.faults)

    def keep(self, ids: Collection[str]) -> Plan:
        """The same plan with only the operations and faults of the given ids."""
        wanted = set(ids)
        return dataclasses.replace(
            self,
            operations=tuple(o for o in self.operations if o.id in wanted),
            faults=tuple(f for f in self.faults if f.id in wanted),
        )

    def __str__(self) -> str:
        items: tuple[Operation | Fault, ...] = (*self.operations, *self.faults)
        lines = [
            f"seed {self.seed}: {self.coordinators} coordinator(s), {self.clients} client(s), "
            f"{self.watchers} watcher(s), faults heal at {self.heals:.1f} s",
            *([f"     {self.log}"] if self.log is not None else []),
            *(f"     agent {agent}" for agent in self.agents),
            *(str(item) for item in sorted(items, key=lambda item: item.at)),
        ]
        return "\n".join(lines)
