"""A whole cluster of real processes: coordinator, agents, engines on Spark. Queries are given as SQL and followed to
their ends."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from tests.e2e.api.kit import Client
from tests.e2e.life.kit import Process
from tests.servers.ports import free_port

T = TypeVar("T")

_PASSING = ("UNREACHABLE", "NOT_LEADER", "SHUTTING_DOWN", "DEADLINE_EXCEEDED", "CATALOG_UNCERTAIN")


def passing(reason: str, message: str) -> bool:
    """Whether it may go through when asked again.

    On a busy machine an agent may seem to be away for a moment, and then nothing can be placed on it.
    """
    return reason in _PASSING or (reason == "PLACEMENT_ERROR" and "does not answer" in message)


@dataclass
class QueryCluster:
    folder: Path
    coordinator: Process
    agents: dict[str, Process] = field(default_factory=dict)
    engines: list[Process] = field(default_factory=list)

    @property
    def files(self) -> Path:
        """Where FILE sources and sinks may read and write."""
        return self.folder / "files"

    def add_engine(self, *options: str) -> Process:
        name = f"engine{len(self.engines) + 1}"
        arguments = ["-m", "headgate_engine.server", "--master", "local[2]", *options]
        made = Process(name, arguments, self.folder)
        self.engines.append(made)
        made.start(ready=False)
        return made

    def add_agent(self, name: str, *options: str) -> Process:
        arguments = ["-m", "headgate_agent.server", "--coordinator", self.coordinator.address, "--name", name]
        arguments += ["--data", str(self.folder / name), "--slots", "64"]
        # The same after a restart, as clients would have it.
        arguments += ["--kafka-listen", f"127.0.0.1:{free_port()}"]
        arguments += ["--object-store", str(self.folder / "objects")]
        arguments += ["--engine", ",".join(one.address for one in self.engines)]
        arguments += ["--set", f"fragments.file_roots={self.files}", *options]
        agent = self.agents[name] = Process(name, arguments, self.folder)
        agent.start()
        return agent

    def sql(self, statement: str, seconds: float = 30.0) -> Any:
        """Carries all statements out, whoever leads; what may have happened is asked again under the same id."""
        request = catalog.ExecuteStatementRequest(statement=statement, request_id=f"t{time.monotonic_ns()}")
        deadline = time.monotonic() + seconds
        while True:
            answer = self.ask(request, seconds)
            if not answer.HasField("failure"):
                return answer
            again = passing(answer.failure.reason, answer.failure.message) and time.monotonic() < deadline
            assert again, f"statement {answer.failure.index} failed: {answer.failure}"
            time.sleep(0.1)

    def ask(self, request: Any, seconds: float = 30.0) -> Any:
        deadline = time.monotonic() + seconds
        while True:
            client = Client(self.coordinator.address)
            try:
                return client(request, timeout=5.0)
            except HeadgateError as error:
                if not passing(error.reason.name, error.message) or time.monotonic() > deadline:
                    raise
            finally:
                client.close()
            time.sleep(0.1)

    def query(self, name: str) -> catalog.Query:
        return self.ask(catalog.GetQueryRequest(name=name)).query  # type: ignore[no-any-return]

    def wait(self, name: str, *states: str, seconds: float = 120.0) -> catalog.Query:
        """Returns when the query is in one of these states; fails at once where it has FAILED instead."""

        def there() -> catalog.Query | None:
            query = self.query(name)
            state = catalog.QueryState.Name(query.state).removeprefix("QUERY_STATE_")
            assert state != "FAILED" or "FAILED" in states, f"{name} FAILED: {query.failure}"
            return query if state in states else None

        return until(there, f"query {name} to be {' or '.join(states)}", seconds, lambda: str(self.query(name)))

    def fragments(self, query: str) -> list[catalog.Fragment]:
        return list(self.ask(catalog.ListFragmentsRequest(query=query)).fragments)

    def runs(self, query: str) -> int:
        """How often what Spark computes of it was started: each time is an epoch."""
        (computed,) = (one for one in self.fragments(query) if one.kind == catalog.FRAGMENT_KIND_COMPUTE)
        return computed.epoch

    def processes(self) -> list[Process]:
        return [*self.agents.values(), *self.engines, self.coordinator]


@contextmanager
def query_cluster(
    folder: Path,
    *,
    agents: tuple[str, ...] = ("a",),
    engines: int = 1,
    settings: tuple[str, ...] = (),
    engine_options: tuple[str, ...] = (),
    agent_options: tuple[str, ...] = (),
) -> Iterator[QueryCluster]:
    """Agents are there when it begins; engines warm up meanwhile. `settings` are of the coordinator."""
    arguments = ["-m", "headgate_coordinator.server", "--catalog", f"sqlite:///{folder / 'catalog.db'}"]
    # On a busy machine Spark may take long to warm up, and an agent long to answer.
    arguments += ["--set", "timings.deployment_deadline=10m", "--set", "timings.poll_timeout_min=2s", *settings]
    cluster = QueryCluster(folder, Process("coordinator", arguments, folder))
    cluster.files.mkdir(exist_ok=True)
    try:
        for _ in range(engines):
            cluster.add_engine(*engine_options)
        cluster.coordinator.start()
        for name in agents:
            cluster.add_agent(name, *agent_options)
        yield cluster
    finally:
        for process in cluster.processes():
            process.stop()


def until(look: Callable[[], T | None], what: str, seconds: float, tell: Callable[[], str] = str) -> T:
    """What `look` found, as soon as it found something."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {seconds:g} s for {what}; {tell()}"
        time.sleep(0.2)


def json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
