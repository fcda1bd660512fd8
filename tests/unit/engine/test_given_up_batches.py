"""Batches whose caller has gone: what waits for a thread never begins, what is between two steps goes no further."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_engine.batch import Batches, Limits
from headgate_engine.spark import SparkHost
from tests.unit.engine.test_runs import ManualClock

REQUEST = engine.ExecuteBatchRequest(sql="SELECT 1")


class Spark:
    """Begins a session when it is let go, and notes what it is asked for."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.asked: list[str] = []
        self.cancelled: list[str] = []
        self.let_go = threading.Event()
        context = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: self), setJobGroup=self._group)
        self.root = SimpleNamespace(sparkContext=context)
        self._made = SimpleNamespace(sparkContext=context, sql=self._sql)

    def session(self, conf: Any, pool: str) -> Any:
        self.begun.append(pool)
        self.let_go.wait(30)
        return self._made

    def _group(self, group: str, name: str, interruptOnCancel: bool) -> None:  # noqa: N803
        pass

    def _sql(self, text: str) -> Any:
        self.asked.append(text)
        raise RuntimeError("nothing runs here")

    def cancelJobGroupAndFutureJobs(self, group: str) -> None:
        self.cancelled.append(group)


def batches_on(spark: Spark, threads: ThreadPoolExecutor) -> Batches:
    host, unused = cast(SparkHost, spark), cast(Any, None)
    return Batches(host, threads, Limits(1, traces=False, brokers=1.0), ManualClock(), RandomIds(), unused, unused)


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def begun(batches: Batches) -> asyncio.Task[Any]:
    async def consume() -> None:
        async for _ in batches.execute(REQUEST):
            pass

    return asyncio.create_task(consume())


async def cancelled(batch: asyncio.Task[Any]) -> None:
    batch.cancel()
    with pytest.raises(asyncio.CancelledError):
        async with asyncio.timeout(60):
            await batch


async def test_a_batch_between_two_steps_asks_spark_for_nothing_more_and_its_later_jobs_are_cancelled() -> None:
    spark = Spark()
    with ThreadPoolExecutor(1) as threads:
        batch = await begun(batches_on(spark, threads))
        await until(lambda: spark.begun)
        await cancelled(batch)
        spark.let_go.set()
    assert (len(spark.begun), spark.asked, len(spark.cancelled)) == (1, [], 1)


async def test_batches_are_cancelled_though_they_have_all_the_threads_and_those_that_wait_never_begin() -> None:
    spark = Spark()
    with ThreadPoolExecutor(1) as threads:
        batches = batches_on(spark, threads)
        first = await begun(batches)
        await until(lambda: spark.begun)
        second = await begun(batches)
        await asyncio.sleep(0)
        for batch in (second, first):
            await cancelled(batch)
        assert len(spark.cancelled) == 2
        spark.let_go.set()
    assert len(spark.begun) == 1


async def test_a_batch_that_fails_by_itself_is_not_cancelled() -> None:
    spark = Spark()
    spark.let_go.set()
    with ThreadPoolExecutor(1) as threads, pytest.raises(HeadgateError, match="nothing runs here"):
        await (await begun(batches_on(spark, threads)))
    assert spark.cancelled == []
