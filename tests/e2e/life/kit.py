"""A cluster of real processes that can be killed, stopped and started again at the same addresses."""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.cluster.v1 import fragment_service_pb2_grpc
from headgate_common.errors import HeadgateError
from tests.e2e.api.kit import Client, Server
from tests.e2e.life.crashing_coordinator import WHERE
from tests.servers.ports import free_port
from tests.servers.process import Command, ServerProcess

START_SECONDS = 60.0
CRASHING = Path(__file__).with_name("crashing_coordinator.py")


@dataclass
class Process:
    """One server that can come and go. `arguments` are all but its addresses."""

    name: str
    arguments: list[str]
    folder: Path
    address: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    http: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    running: ServerProcess | None = None
    starts: int = 0

    def start(self, *, ready: bool = True, crash: str = "") -> None:
        self.starts += 1
        command: list[str | Path] = [sys.executable, *self.arguments]
        if crash:
            command = ["env", f"{WHERE}={crash}", sys.executable, CRASHING, *self.arguments[2:]]
        command += ["--listen", self.address, "--http-listen", self.http]
        log = self.folder / f"{self.name}-{self.starts}.log"
        self.running = ServerProcess(Command(name=self.name, arguments=command, log=log))
        if ready:
            self.running.wait_until_ready(Server(self.running, self.address, self.http).ready, START_SECONDS)

    @property
    def pid(self) -> int:
        assert self.running is not None
        return self.running.pid

    def kill(self) -> None:
        assert self.running is not None
        self.running.kill()
        self.running = None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def wait_for_death(self, seconds: float = 60.0) -> None:
        assert self.running is not None
        until(lambda: self.running is None or not self.running.alive, f"{self.name} to die", seconds)
        self.running = None

    def stop(self) -> None:
        if self.running is not None:
            if self.running.alive:
                os.kill(self.pid, signal.SIGCONT)
            self.running.stop()
            self.running = None


@dataclass
class Cluster:
    folder: Path
    url: str
    coordinators: list[Process]
    agents: dict[str, Process] = field(default_factory=dict)
    options: tuple[str, ...] = ()

    @property
    def coordinator(self) -> Process:
        return self.coordinators[0]

    def agent_arguments(self, name: str, *options: str) -> list[str]:
        addresses = ",".join(one.address for one in self.coordinators)
        arguments = ["-m", "headgate_agent.server", "--coordinator", addresses, "--name", name]
        arguments += ["--data", str(self.folder / name), "--slots", "64"]
        arguments += ["--kafka-listen", "127.0.0.1:0", "--object-store", str(self.folder / "objects")]
        return [*arguments, "--engine", "simulated", *options]

    def add_agent(self, name: str, *options: str) -> Process:
        agent = self.agents[name] = Process(name, self.agent_arguments(name, *options), self.folder)
        agent.start()
        return agent

    @contextmanager
    def client(self, which: Process | None = None) -> Iterator[Client]:
        made = Client((which or self.coordinator).address)
        try:
            yield made
        finally:
            made.close()

    def ask(self, request: Any, seconds: float = 30.0) -> Any:
        """Asks whichever coordinator leads, until one does."""
        deadline = time.monotonic() + seconds
        while True:
            for one in self.coordinators:
                if one.running is None:
                    continue
                with self.client(one) as client:
                    try:
                        return client(request, timeout=5.0)
                    except HeadgateError as error:
                        passing = error.reason.code in (
                            grpc.StatusCode.UNAVAILABLE,
                            grpc.StatusCode.DEADLINE_EXCEEDED,
                        )
                        if not passing or time.monotonic() > deadline:
                            raise
            time.sleep(0.1)

    def state(self, name: str) -> str:
        try:
            query = self.ask(catalog.GetQueryRequest(name=name)).query
        except HeadgateError as error:
            if error.reason.name == "QUERY_NOT_FOUND":
                return ""
            raise
        return catalog.QueryState.Name(query.state).removeprefix("QUERY_STATE_")

    def until_state(self, name: str, *states: str, seconds: float = 60.0) -> None:
        try:
            until(lambda: self.state(name) in states, "", seconds)
        except AssertionError:
            found = self.ask(catalog.GetQueryRequest(name=name)).query if self.state(name) else "gone"
            raise AssertionError(f"{name} is not {states} but {found}\n{self.fragments(name)}") from None

    def fragments(self, name: str) -> list[catalog.Fragment]:
        return list(self.ask(catalog.ListFragmentsRequest(query=name)).fragments)

    def agent(self, name: str) -> catalog.Agent:
        found: catalog.Agent = self.ask(catalog.GetAgentRequest(name=name)).agent
        return found

    def is_active(self, name: str) -> bool:
        return self.agent(name).state == catalog.AGENT_STATE_ACTIVE

    def slots(self) -> dict[str, int]:
        return {one.name: one.slots_used for one in self.ask(catalog.ListAgentsRequest()).agents}

    def story(self, uid: str) -> list[catalog.StoryEntry]:
        return list(self.ask(catalog.GetStoryRequest(uid=uid, page_size=1000)).entries)

    def held(self, name: str) -> dict[str, tuple[int, str]]:
        """(epoch, state) of every fragment that the agent's process has, as it says itself."""
        with grpc.insecure_channel(self.agents[name].address) as channel:
            stub = fragment_service_pb2_grpc.FragmentServiceStub(channel)
            # Only a question: a term that never ends is not taught, because the question names another process.
            request = cluster.GetStatusRequest(command=cluster.Command(term=self.term()))
            status = stub.GetStatus(request, timeout=10)
        return {
            one.fragment.uid: (
                one.fragment.epoch,
                catalog.FragmentState.Name(one.state).removeprefix("FRAGMENT_STATE_"),
            )
            for one in status.fragments
        }

    def term(self) -> int:
        path = self.url.removeprefix("sqlite:///")
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            (epoch,) = connection.execute("SELECT epoch FROM grants WHERE kind = 'coordinator'").fetchone()
        return int(epoch)

    def row(self, name: str) -> tuple[str, str] | None:
        """State and desired state of a query as the catalog has them, whether or not a coordinator lives."""
        path = self.url.removeprefix("sqlite:///")
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
            found: tuple[str, str] | None = connection.execute(
                "SELECT state, desired_state FROM queries WHERE name = ?", (name,)
            ).fetchone()
        return found

    def declare(self) -> None:
        """A generator on `a` and a sink on `c`; the computation goes wherever the planner puts it."""
        answer = self.ask(
            catalog.ExecuteStatementRequest(
                statement="""
                CREATE LOGICAL SOURCE readings (sensor INT32, value FLOAT64);
                CREATE PHYSICAL SOURCE made_up FOR readings TYPE GENERATOR ON a SET (5 AS "SOURCE".RATE);
                CREATE SINK out (sensor INT32, value FLOAT64) TYPE PRINT ON c;
                """
            )
        )
        assert not answer.HasField("failure"), answer.failure

    def create(self, name: str) -> str:
        request = catalog.CreateQueryRequest(
            name=name,
            statement="SELECT sensor, value FROM readings WHERE value > 1 INTO out",
            request_id=f"create-{name}",
        )
        return str(self.ask(request).query.uid)


def until(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s in vain for {what}"
        time.sleep(0.05)


@contextmanager
def cluster_of(
    folder: Path, *agents: str, url: str = "", coordinators: int = 1, options: tuple[str, ...] = ()
) -> Iterator[Cluster]:
    url = url or f"sqlite:///{folder / 'catalog.db'}"
    arguments = ["-m", "headgate_coordinator.server", "--catalog", url, *options]
    made = Cluster(folder, url, [Process(f"coordinator{n}", arguments, folder) for n in range(coordinators)])
    try:
        for one in made.coordinators:
            one.start()
        for name in agents:
            made.add_agent(name)
        for name in agents:
            until(partial(made.is_active, name), f"{name} to be ACTIVE")
        yield made
    finally:
        for process in (*made.agents.values(), *made.coordinators):
            process.stop()
