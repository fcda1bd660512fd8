"""A checkpoint on S3, which is a real MinIO, with two engines.

One story, told once because every chapter needs a Spark: the first engine hangs in the middle of a batch, and does not
know that it has been replaced; the second one goes on from the checkpoint, and is killed before a commit happens; the
first one wakes up, writes, and finds itself shut out; then it is told to finish what the second began.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headgate.engine import v1 as engine
from tests.integration.engine.edges import Edges, serving_edges
from tests.integration.engine.events import EVENTS, Row, events, parts, seen_windows, windowed, windows
from tests.integration.engine.kit import START_SECONDS, Engine, until
from tests.servers.minio import Bucket, Minio

pytestmark = [pytest.mark.spark, pytest.mark.minio, pytest.mark.slow, pytest.mark.timeout(900)]

HANGS, BATCHES = 2, 9
# A bucket for which the engine has wrong keys.
FORBIDDEN = "forbidden"


@dataclass
class Story:
    edges: Edges
    bucket: Bucket
    rows: list[Row] = field(default_factory=list)
    # Set when the run that hangs may go on.
    wakes: threading.Event = field(default_factory=threading.Event)
    # How the run that had hung ended.
    shut_out: engine.RunError | None = None
    # Batches that were being committed when an engine hung, and when one was killed.
    hung: list[int] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    logs: str = ""
    arguments: str = ""
    # How runs ended whose bucket is not there, and whose keys are wrong.
    refused: dict[str, engine.RunError] = field(default_factory=dict)


def tell(story: Story, first: Engine, second: Engine) -> None:
    edges, bucket = story.edges, story.bucket
    story.rows = events(61, 20 * BATCHES)
    source, out = edges.create("in"), edges.create("out", 2)
    source.edge = 1
    for part in parts(story.rows, 20):
        edges.append("in", part, EVENTS)
    edges.end("in")

    def request(epoch: int) -> engine.StartFragmentRequest:
        return engine.StartFragmentRequest(
            run=engine.RunRef(fragment_uid="windows", epoch=epoch),
            query="s3",
            plan=windowed(1),
            inputs=[source],
            output=out,
            settings=engine.RunSettings(batch_bytes=1),
            checkpoint=f"s3a://{bucket.name}/checkpoints",
            checkpoint_s3=engine.S3Access(endpoint=bucket.endpoint, region=bucket.region, path_style=True),
        )

    def before(batch: int) -> None:
        if batch >= HANGS and edges.topics["out"].writer == ("windows", 1):
            # The engine asks again and again.
            story.hung.append(batch)
            story.wakes.wait(300)
        elif story.hung and edges.topics["out"].last_batch > story.hung[0] and not story.killed:
            story.killed.append(batch)
            second.kill()
            raise RuntimeError("the commit does not happen")

    edges.before_commit = before
    for process in (first, second):
        process.launch()
    for process in (first, second):
        assert process.server is not None
        process.server.process.wait_until_ready(process.server.ready, START_SECONDS)
    first.client(request(1))
    until(lambda: story.hung, "the first engine to hang in a batch")
    # It commits the batch in which the other hangs, and some more.
    second.client(request(2))
    until(lambda: edges.topics["out"].last_batch > story.hung[0], "the second engine to go on")
    story.wakes.set()
    until(lambda: first.client.run(request(1).run).state == engine.RUN_STATE_FAILED, "the first one to be shut out")
    story.shut_out = first.client.run(request(1).run).error
    until(lambda: story.killed, "the second engine to be killed")

    first.client(request(3))
    first.client.wait(request(3).run, engine.RUN_STATE_FINISHED)
    story.kept = bucket.object_keys()
    story.arguments = subprocess.run(["ps", "-axww", "-o", "args="], capture_output=True, text=True, check=True).stdout
    gone = request(3)
    first.client(
        engine.DeleteCheckpointRequest(
            fragment_uid="windows", checkpoint=gone.checkpoint, checkpoint_s3=gone.checkpoint_s3
        )
    )
    story.left = [key for key in bucket.object_keys() if "windows" in key]
    for name in ("nowhere", FORBIDDEN):
        refused = request(1)
        refused.run.fragment_uid = name
        refused.output.CopyFrom(edges.create(f"out of {name}"))
        refused.checkpoint = f"s3a://{name}/checkpoints"
        first.client(refused)
        story.refused[name] = first.client.wait(refused.run, engine.RUN_STATE_FAILED).error
    story.logs = first.log + second.log


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, minio_server: Minio, spark_s3_jars: list[Path]) -> Iterator[Story]:
    bucket = minio_server.fresh_bucket()
    options = (
        "--set=timings.keep_alive=300s",
        f"--set=spark.conf.spark.hadoop.fs.s3a.access.key={bucket.access_key}",
        f"--set=spark.conf.spark.hadoop.fs.s3a.secret.key={bucket.secret_key}",
        f"--set=spark.conf.spark.hadoop.fs.s3a.bucket.{FORBIDDEN}.access.key=wrong",
        f"--set=spark.conf.spark.hadoop.fs.s3a.bucket.{FORBIDDEN}.secret.key=wrongwrong",
    )
    first = Engine(tmp_path_factory.mktemp("first"), options)
    second = Engine(tmp_path_factory.mktemp("second"), options)
    with serving_edges() as edges:
        told = Story(edges, bucket)
        try:
            tell(told, first, second)
        finally:
            told.wakes.set()
            first.stop()
            second.stop()
        yield told


def test_a_windowed_run_with_its_checkpoint_on_s3_goes_on_after_a_kill_and_is_exact(story: Story) -> None:
    assert len(story.killed) == 1
    assert seen_windows(story.edges.rows("out")) == windows(story.rows)
    batches = [batch for topic, batch in story.edges.commits if topic == "out"]
    assert batches == sorted(set(batches)), "a batch was committed twice"
    assert story.edges.topics["out"].ended
    assert any("/state/" in key for key in story.kept)


def test_a_second_writer_of_the_checkpoint_shuts_the_first_out_and_nothing_of_it_is_seen(story: Story) -> None:
    assert len(set(story.hung)) == 1, "it was not held in one batch"
    assert story.shut_out is not None
    assert story.shut_out.reason == "STALE_EPOCH"
    assert not story.shut_out.transient


def test_a_checkpoint_on_s3_is_removed_whole(story: Story) -> None:
    assert story.kept
    assert story.left == []


def test_a_bucket_that_is_not_there_and_wrong_keys_end_a_first_run_for_good(story: Story) -> None:
    for name, says in (("nowhere", "there is no such bucket"), (FORBIDDEN, "the store refuses the engine's keys")):
        error = story.refused[name]
        assert (error.reason, error.transient) == ("CHECKPOINT_INVALID", False)
        assert f"s3a://{name}/checkpoints cannot be used: {says}" in error.message


def test_the_keys_of_the_store_are_shown_nowhere(story: Story) -> None:
    assert "s3a.secret.key=[redacted]" in story.logs
    assert story.bucket.secret_key not in story.logs
    jvms = [line for line in story.arguments.splitlines() if "SparkSubmit" in line]
    assert jvms
    assert not any("s3a.secret.key" in line for line in jvms)
