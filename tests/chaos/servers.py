"""Coordinators and agents that lead topics and serve Kafka clients, as real processes that can be started again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos import moved_clock
from tests.servers.ports import free_port
from tests.servers.process import Command, ServerProcess, start_with_retry
from tests.servers.restartable import Restartable


@dataclass(slots=True)
class LogAgent(Restartable):
    # Where Kafka clients reach it.
    kafka: str = ""
    # All that it has on its disk.
    data: Path = Path()


def _ports(count: int) -> list[str]:
    return [f"127.0.0.1:{free_port()}" for _ in range(count)]


def _python(module: str, clock: Path | None) -> list[str]:
    return [sys.executable, "-m", module] if clock is None else moved_clock.arguments(clock, module)


@contextmanager
def restartable_coordinator(
    folder: Path, url: str = "", *options: str, movable_clock: bool = False
) -> Iterator[Restartable]:
    """A coordinator that leads, on an SQLite file in the folder or on the catalog of the URL."""
    made: list[Restartable] = []

    def start() -> ServerProcess:
        address, http = _ports(2)
        clock = folder / "coordinator.clock" if movable_clock else None
        arguments = _python("headgate_coordinator.server", clock)
        arguments += ["--listen", address, "--http-listen", http]
        arguments += ["--catalog", url or f"sqlite:///{folder / 'catalog.db'}", *options]
        log = folder / "coordinator.log"
        process = ServerProcess(Command(name="coordinator", arguments=arguments, log=log))
        made.append(Restartable("coordinator", arguments, log, address, http, process, clock))
        return process

    start_with_retry(start)
    made[-1].wait_until_ready()
    try:
        yield made[-1]
    finally:
        made[-1].process.stop()


@contextmanager
def running_log_agent(
    folder: Path, name: str, coordinator: str, *options: str, object_store: str = "", movable_clock: bool = False
) -> Iterator[LogAgent]:
    """An agent that has registered. Agents of one folder share a folder in it as object store, unless told not to."""
    made: list[LogAgent] = []

    def start() -> ServerProcess:
        address, http, kafka = _ports(3)
        clock = folder / f"{name}.clock" if movable_clock else None
        arguments = _python("headgate_agent.server", clock)
        arguments += ["--name", name, "--roles", "log"]
        arguments += ["--listen", address, "--http-listen", http, "--kafka-listen", kafka]
        arguments += ["--coordinator", coordinator, "--data", str(folder / name)]
        arguments += ["--object-store", object_store or str(folder / "objects"), *options]
        log = folder / f"{name}.log"
        process = ServerProcess(Command(name=name, arguments=arguments, log=log))
        made.append(LogAgent(name, arguments, log, address, http, process, clock, kafka, folder / name))
        return process

    start_with_retry(start)
    made[-1].wait_until_ready()
    try:
        yield made[-1]
    finally:
        made[-1].process.stop()
