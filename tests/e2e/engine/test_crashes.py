"""Engines that are killed, and one that goes on in their place, on real processes.

One story, told once because every chapter starts a Spark: the engine is asked before it is warm; it is killed before a
commit happens; the next one loses its JVM after a commit happened and before it is answered; the third finishes the
run, begins another, and is told to stop.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2

from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from tests.integration.engine.edges import Edges, serving_edges
from tests.integration.engine.events import EVENTS, Row, events, filtering, parts, seen_windows, windowed, windows
from tests.integration.engine.kit import START_SECONDS, Engine, until

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVING = health_pb2.HealthCheckResponse.SERVING


@dataclass
class Story:
    edges: Edges
    rows: list[Row] = field(default_factory=list)
    cold_health: int = 0
    cold_error: str = ""
    warm_health: int = 0
    # Batches that were being committed when the engine, and then the JVM, was killed.
    killed: list[int] = field(default_factory=list)
    jvm_log: str = ""
    last_log: str = ""


def java_of(process: Engine) -> int:
    assert process.server is not None
    command = ["ps", "-o", "pid=,comm=", "--ppid", str(process.server.process.pid)]
    listed = subprocess.run(command, capture_output=True, check=True)
    return int(next(line.split()[0] for line in listed.stdout.decode().splitlines() if "java" in line))


def health(process: Engine) -> int:
    call = process.client.channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        health_pb2.HealthCheckRequest.SerializeToString,
        health_pb2.HealthCheckResponse.FromString,
    )
    try:
        return call(health_pb2.HealthCheckRequest(service="headgate.engine.v1.EngineService"), timeout=10).status
    except grpc.RpcError:
        return 0


def wait_for_end(process: Engine) -> None:
    server = process.server
    assert server is not None
    until(lambda: not server.process.alive, "the process to end")


def tell(story: Story, process: Engine, folder: Path) -> None:
    edges = story.edges
    first, second = events(21, 160), events(22, 120, first=1000)
    story.rows = [*first, *second]
    accesses = []
    for ordinal, rows in ((1, first), (2, second)):
        access = edges.create(f"in{ordinal}")
        access.edge = ordinal
        accesses.append(access)
        for part in parts(rows, 20):
            edges.append(f"in{ordinal}", part, EVENTS)
        edges.end(f"in{ordinal}")
    out = edges.create("out", 2)

    def request(epoch: int) -> engine.StartFragmentRequest:
        return engine.StartFragmentRequest(
            run=engine.RunRef(fragment_uid="windows", epoch=epoch),
            query="crashes",
            plan=windowed(1, 2),
            inputs=accesses,
            output=out,
            # A record of each input in a batch.
            settings=engine.RunSettings(batch_bytes=1),
            checkpoint=str(folder / "checkpoints"),
        )

    server = process.launch()
    until(lambda: health(process), "the engine to answer")
    story.cold_health = health(process)
    try:
        process.client(request(1))
    except HeadgateError as error:
        story.cold_error = error.reason.name
    server.process.wait_until_ready(server.ready, START_SECONDS)
    story.warm_health = until(lambda: health(process) == SERVING and SERVING, "health to follow")

    def before(batch: int) -> None:
        if batch >= 2 and not story.killed:
            os.kill(server.process.pid, signal.SIGKILL)
            story.killed.append(batch)
            raise RuntimeError("the commit does not happen")

    edges.before_commit = before
    process.client(request(1))
    until(lambda: story.killed, "the engine to be killed")
    server.process.kill()

    process.start()
    java = java_of(process)

    def after(batch: int) -> None:
        if batch >= 4 and len(story.killed) == 1:
            os.kill(java, signal.SIGKILL)
            story.killed.append(batch)

    edges.after_commit = after
    process.client(request(2))
    until(lambda: len(story.killed) == 2, "the JVM to be killed")
    wait_for_end(process)
    story.jvm_log = process.log

    process.start()
    process.client(request(3))
    process.client.wait(request(3).run, engine.RUN_STATE_FINISHED)
    endless, elsewhere = edges.create("endless"), edges.create("elsewhere")
    endless.edge = 1
    run = engine.RunRef(fragment_uid="endless", epoch=1)
    process.client(
        engine.StartFragmentRequest(
            run=run, plan=filtering(), inputs=[endless], output=elsewhere, checkpoint=str(folder / "checkpoints")
        )
    )
    process.client.wait(run, engine.RUN_STATE_RUNNING)
    assert process.server is not None
    os.kill(process.server.process.pid, signal.SIGTERM)
    wait_for_end(process)
    story.last_log = process.log


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    folder = tmp_path_factory.mktemp("crashes")
    process = Engine(folder, ("--set=timings.keep_alive=120s",))
    with serving_edges() as edges:
        told = Story(edges)
        try:
            tell(told, process, folder)
        finally:
            process.stop()
        yield told


def test_an_engine_serves_only_when_spark_is_warm(story: Story) -> None:
    assert (story.cold_health, story.cold_error) == (NOT_SERVING, "ENGINE_WARMING_UP")
    assert story.warm_health == SERVING


def test_killed_before_and_after_a_commit_no_window_is_lost_or_doubled(story: Story) -> None:
    assert len(story.killed) == 2
    assert seen_windows(story.edges.rows("out")) == windows(story.rows)
    batches = [batch for topic, batch in story.edges.commits if topic == "out"]
    assert batches == sorted(set(batches)), "a batch was committed twice"
    assert story.edges.topics["out"].ended


def test_an_engine_whose_jvm_died_ends_by_itself_and_says_why(story: Story) -> None:
    assert "SPARK_UNAVAILABLE" in story.jvm_log
    assert "JVM" in story.jvm_log


def test_a_signal_stops_the_runs_and_ends_the_engine_in_order(story: Story) -> None:
    assert 'fragment=endless epoch=1 query="" state=STOPPED' in story.last_log
    assert "drained finished=true" in story.last_log
    assert "Traceback" not in story.last_log
    assert not story.edges.topics["elsewhere"].ended, "another engine is to go on with it"
