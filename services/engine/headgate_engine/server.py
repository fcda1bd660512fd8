"""headgate-engine: wiring only."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from headgate.engine import v1 as engine
from headgate_common.arguments import Flag
from headgate_common.errors import HeadgateError
from headgate_common.metrics import gauge
from headgate_common.server import App, Runtime, run_server
from headgate_engine.batch import Batches, Limits
from headgate_engine.config import EngineConfig
from headgate_engine.errors import REASONS, SPARK_UNAVAILABLE
from headgate_engine.fragments.realtime import Slots, admit
from headgate_engine.fragments.run import Report, SparkRun, Tools
from headgate_engine.fragments.runs import Runs
from headgate_engine.fragments.settings import Pems, RunDefaults, checkpoint_folder, control_folder
from headgate_engine.fragments.storage import remove_folder
from headgate_engine.s3 import reach
from headgate_engine.service import EngineService
from headgate_engine.spark import SparkHost, java_problem

FLAGS = (Flag("--master", "spark.master", "MASTER", "the Spark master: local[*], spark://host:port, k8s://..., yarn"),)
_LOOK_SECONDS = 0.25
_ALIVE_SECONDS = 2.0
# Batches, and the short calls that look at them.
_THREADS = 32


@asynccontextmanager
async def build(config: EngineConfig, runtime: Runtime) -> AsyncIterator[App]:
    problem = java_problem(os.environ)
    if problem:
        raise HeadgateError(SPARK_UNAVAILABLE, problem)
    host = SparkHost(config.spark)
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="spark")
    timings = config.timings
    pems = Pems.of(config.server.tls, timings.patience)
    defaults = RunDefaults(
        batch_bytes=config.batch_bytes,
        batch_records=config.batch_records,
        edge_max_lag=config.edge_max_lag,
        keep_alive=timings.keep_alive,
        look=timings.look,
        idle_nap=timings.idle_nap,
        poll=timings.poll,
        mark_interval=timings.mark_interval,
        quiet=timings.quiet,
        losses=timings.losses,
        brokers=timings.brokers,
        realtime_checkpoint=timings.realtime_checkpoint,
        stop=timings.stop,
        reserved_slots=config.reserved_slots,
        traces=config.traces,
    )
    tools = Tools(host, defaults, pems, runtime.clock)

    def launch(request: engine.StartFragmentRequest, report: Report) -> SparkRun:
        return SparkRun(request, tools, report)

    slots = Slots(lambda: host.slots, config.reserved_slots, grows=not host.local)

    async def admitted(request: engine.StartFragmentRequest) -> Callable[[], None]:
        return await asyncio.get_running_loop().run_in_executor(threads, admit, request, host, slots, timings.brokers)

    runs = Runs(
        launch,
        admitted,
        runtime.clock,
        keep_alive=timings.keep_alive,
        stop_timeout=timings.stop,
        forget_after=timings.forget,
    )
    limits = Limits(config.max_rows, config.traces, timings.brokers)
    batches = Batches(host, threads, limits, runtime.clock, runtime.ids, pems.access, pems.topic)
    ready = asyncio.Event()

    def remove(request: engine.DeleteCheckpointRequest) -> None:
        reach(host, request.checkpoint, request.checkpoint_s3)
        for folder in (checkpoint_folder, control_folder):
            remove_folder(host.root, folder(request.checkpoint, request.fragment_uid))

    async def removed(request: engine.DeleteCheckpointRequest) -> None:
        await asyncio.get_running_loop().run_in_executor(threads, remove, request)

    service = EngineService(runs, batches, removed, runtime.ids.uid("process"), ready.is_set)
    runtime.supervise(_keep_spark(host, threads, ready, timings.warm_up), "spark")
    runtime.supervise(runs.look(_LOOK_SECONDS), "keep-alive")
    gauge(runtime.registry, "headgate_engine_runs", "Runs that have not ended.", lambda: len(runs.active()))
    gauge(runtime.registry, "headgate_engine_ready", "Whether Spark is warm.", lambda: float(ready.is_set()))

    def unready() -> Sequence[str]:
        return () if ready.is_set() else ("Spark is warming up",)

    yield App(services=[service], unready=unready, draining=runs.stop_all)
    await asyncio.get_running_loop().run_in_executor(threads, host.stop)
    threads.shutdown(wait=False, cancel_futures=True)


async def _keep_spark(host: SparkHost, threads: ThreadPoolExecutor, ready: asyncio.Event, deadline: float) -> None:
    """Starts Spark, then sees to it that the process ends when its JVM does: all runs would have ended with it."""
    loop = asyncio.get_running_loop()
    try:
        await asyncio.wait_for(loop.run_in_executor(threads, host.start), deadline)
    except TimeoutError:
        raise HeadgateError(SPARK_UNAVAILABLE, f"Spark did not start within {deadline:g} s") from None
    ready.set()
    while True:
        await asyncio.sleep(_ALIVE_SECONDS)
        if not await loop.run_in_executor(threads, host.alive):
            ready.clear()
            raise HeadgateError(SPARK_UNAVAILABLE, "Spark's JVM has died; the process ends")


def main() -> int:
    return run_server(
        "engine",
        EngineConfig,
        build,
        summary="Runs Spark SQL for agents. `headgate-engine --fetch-jars [--check] [kafka] [s3]` runs no server: it "
        "brings the jars that Spark lacks for Kafka topics and for checkpoints on S3, once on a machine.",
        flags=FLAGS,
        reasons=REASONS,
    )


if __name__ == "__main__":
    sys.exit(main())
