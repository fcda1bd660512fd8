"""A compute fragment on engines: chosen, started once, kept alive, followed, stopped, given up with its engine."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_agent.engines import Engines, EngineTimings
from headgate_agent.fragments.compute_run import ComputeRun, Missing
from headgate_agent.fragments.runner import Assignment, Report
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call, Dispatcher, Method
from headgate_common.errors import UNREACHABLE, HeadgateError
from headgate_common.kafka_reasons import KAFKA_TOPIC_MISSING
from headgate_engine.errors import QUERY_FAILED, TOO_FEW_SLOTS
from headgate_engine.fragments.errors import Failure
from headgate_engine.fragments.run import Report as EngineReport
from headgate_engine.fragments.runs import Runs
from headgate_engine.service import EngineService
from tests.integration.cluster.kit import Wires
from tests.unit.engine.test_runs import Scripted

RUNNING, STOPPED, TERMINATED, FAILED = (
    catalog.FRAGMENT_STATE_RUNNING,
    catalog.FRAGMENT_STATE_STOPPED,
    catalog.FRAGMENT_STATE_TERMINATED,
    catalog.FRAGMENT_STATE_FAILED,
)
TIMINGS = EngineTimings(
    keep_alive=1.0,
    patience=0.3,
    call_timeout=0.2,
    start_timeout=1.0,
    retry=Backoff(initial=0.01, cap=0.05),
    topic_appears=0.3,
)


class StreamingWires(Wires):
    def stream(self, address: str, method: Method, request: Message, *, timeout: float | None) -> AsyncIterator[Any]:
        return self._stream(address, method, request)

    async def _stream(self, address: str, method: Method, request: Message) -> AsyncIterator[Any]:
        if address in self.cut or address not in self.servers:
            raise HeadgateError(UNREACHABLE, f"{address} refuses")
        async with aclosing(self.servers[address].stream(method.path, request, Call())) as answers:
            async for answer in answers:
                yield answer


@dataclass
class OneEngine:
    """The engine's own registry and service, with runs that do what the test says instead of Spark."""

    address: str
    wires: StreamingWires
    warm: bool = True
    refuses: HeadgateError | None = None
    works: list[Scripted] = field(default_factory=list)
    requests: list[engine.StartFragmentRequest] = field(default_factory=list)
    looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        async def admit(request: engine.StartFragmentRequest) -> Callable[[], None]:
            if self.refuses is not None:
                raise self.refuses
            return lambda: None

        async def nothing(checkpoint: str, uid: str) -> None:
            return None

        self.runs = Runs(self._launch, admit, SystemClock(), keep_alive=9.0, stop_timeout=1.0, forget_after=60.0)
        service = EngineService(self.runs, None, nothing, f"{self.address}/{id(self.runs)}", lambda: self.warm)  # type: ignore[arg-type]
        self.wires.servers[self.address] = Dispatcher([service])
        self.wires.cut.discard(self.address)
        self.looking = asyncio.create_task(self.runs.look(0.02))

    def die(self) -> None:
        """With all its runs."""
        assert self.looking is not None
        self.looking.cancel()
        self.wires.cut.add(self.address)

    def _launch(self, request: engine.StartFragmentRequest, report: EngineReport) -> Scripted:
        self.requests.append(request)
        self.works.append(Scripted(report))
        return self.works[-1]

    @property
    def run(self) -> Scripted:
        return self.works[-1]


class World:
    def __init__(self, count: int = 2) -> None:
        self.wires = StreamingWires()
        self.engines = [OneEngine(f"engine{number}:1", self.wires) for number in range(count)]
        for one in self.engines:
            one.start()
        self.client = self._client()
        self.keeping = asyncio.create_task(self.client.run())
        self.reports: list[Report] = []
        self.runs: list[ComputeRun] = []

    def _client(self) -> Engines:
        addresses = [one.address for one in self.engines]
        return Engines(addresses, self.wires, clock=SystemClock(), source=random.Random(1), timings=TIMINGS)

    def begin(
        self,
        epoch: int = 1,
        *,
        fenced: bool = True,
        resumed: bool = False,
        missing: Any = lambda request: None,
        settle: Any = None,
    ) -> ComputeRun:
        plan = catalog.ComputeFragment(spark_sql="SELECT 1")
        request = engine.StartFragmentRequest(
            run=engine.RunRef(fragment_uid="f", epoch=epoch), query="q", plan=plan, checkpoint="/tmp/none"
        )
        request.settings.keep_alive.FromMilliseconds(int(TIMINGS.keep_alive * 1000))
        if fenced:
            request.output.CopyFrom(engine.EdgeAccess(edge=1, topic_uid="t", partitions=1, address="a:1"))
        fragment = catalog.FragmentPlan(ordinal=2, compute=plan)
        assignment = Assignment("f", epoch, "q", "uq", fragment, resumed=resumed)
        run = ComputeRun(assignment, request, self.client, self.reports.append, SystemClock(), missing, settle=settle)
        self.runs.append(run)
        return run

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def up(self, **options: Any) -> ComputeRun:
        run = self.begin(**options)
        await self.until(self.busy)
        self.where().run.report.state(engine.RUN_STATE_RUNNING)
        await self.until(lambda: self.states[-1:] == [RUNNING])
        return run

    def busy(self) -> list[OneEngine]:
        return [one for one in self.engines if one.works]

    def where(self) -> OneEngine:
        (one,) = self.busy()
        return one

    @property
    def states(self) -> list[Any]:
        return [report.state for report in self.reports if not report.waiting]

    async def close(self) -> None:
        self.keeping.cancel()
        for run in self.runs:
            await run.stop()
        for one in self.engines:
            assert one.looking is not None
            one.looking.cancel()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.close()


async def test_a_run_is_started_on_one_engine_and_reported_when_it_runs(world: World) -> None:
    await world.up()
    assert world.where().run.started
    assert world.states == [RUNNING]


@pytest.mark.slow
async def test_a_run_is_kept_alive_for_as_long_as_it_is_wanted(world: World) -> None:
    await world.up()
    await asyncio.sleep(2 * TIMINGS.keep_alive)
    assert world.where().run.stops == []


async def test_an_engine_that_warms_up_or_is_not_there_is_waited_for_and_named(world: World) -> None:
    world.engines[0].die()
    world.engines[1].warm = False
    world.begin()
    await world.until(lambda: any("warming up" in one.waiting and "engine0:1" in one.waiting for one in world.reports))
    world.engines[1].warm = True
    await world.until(lambda: world.engines[1].works)


async def test_what_an_engine_waits_for_before_a_run_is_up_is_passed_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate_engine.fragments.runs._MOMENT", 0.05)
    world.begin()
    await world.until(world.busy)
    world.where().run.report.step("it asks the brokers of topic t")
    expected = f"engine {world.where().address}: it asks the brokers of topic t"
    await world.until(lambda: any(one.waiting == expected for one in world.reports))
    assert world.states == []


async def test_a_run_that_no_engine_will_ever_have_slots_for_fails_for_good(world: World) -> None:
    for one in world.engines:
        one.refuses = HeadgateError(TOO_FEW_SLOTS, "the run needs 9 task slots")
    world.engines[1].warm = False
    world.begin()
    await world.until(lambda: any("9 task slots" in one.waiting and "warming" in one.waiting for one in world.reports))
    assert world.states == [], "the other one may have so many"
    world.engines[1].warm = True
    await world.until(lambda: world.states == [FAILED])
    error = world.reports[-1].error
    assert error is not None
    assert (error.reason, error.transient) == ("TOO_FEW_SLOTS", False)


async def test_where_a_run_begins_is_settled_before_an_engine_is_waited_for(world: World) -> None:
    settled = asyncio.Event()

    async def settle(request: engine.StartFragmentRequest, waits: Callable[[str], None]) -> None:
        waits("it asks the brokers")
        await settled.wait()
        request.plan.starts.add(physical_source="s", offsets=[7])

    world.engines[0].die()
    world.engines[1].warm = False
    world.begin(settle=settle)
    await world.until(lambda: world.reports)
    assert [one.waiting for one in world.reports] == ["it asks the brokers"]
    settled.set()
    await world.until(lambda: any("warming up" in one.waiting for one in world.reports))
    world.engines[1].warm = True
    await world.until(world.busy)
    assert [list(one.offsets) for one in world.engines[1].requests[-1].plan.starts] == [[7]]


async def test_a_run_that_cannot_know_where_to_begin_fails_and_no_engine_hears_of_it(world: World) -> None:
    async def settle(request: engine.StartFragmentRequest, waits: Callable[[str], None]) -> None:
        raise HeadgateError(KAFKA_TOPIC_MISSING, "there is no topic t")

    world.begin(settle=settle)
    await world.until(lambda: world.states == [FAILED])
    error = world.reports[-1].error
    assert error is not None
    assert (error.reason, error.transient) == ("KAFKA_TOPIC_MISSING", False)
    assert not world.busy()


@pytest.mark.slow
async def test_a_topic_that_is_not_there_is_waited_for_a_moment_and_then_missed(world: World) -> None:
    unknown: list[Missing] = [Missing("there is no topic t yet", "t")]
    world.begin(missing=lambda request: unknown[0] if unknown else None)
    await world.until(lambda: any(one.waiting == "there is no topic t yet" for one in world.reports))
    unknown.clear()
    await world.until(world.busy)

    world.reports.clear()
    unknown.append(Missing("no agent is there"))
    world.begin(epoch=2, missing=lambda request: unknown[0] if unknown else None)
    await asyncio.sleep(0.6)
    assert world.states == [], "agents may come"
    unknown[0] = Missing("there is no topic t yet", "t")
    await world.until(lambda: world.states == [FAILED])
    error = world.reports[-1].error
    assert error is not None
    assert (error.reason, error.message, error.transient) == ("SOURCE_MISSING", "there is no topic t", False)


async def test_a_start_that_may_have_happened_spends_the_epoch(world: World) -> None:
    world.wires.lose_answers["StartFragment"] = 1
    world.begin()
    await world.until(lambda: world.states == [FAILED])
    error = world.reports[-1].error
    assert error is not None and (error.reason, error.transient) == ("ENGINE_LOST", True)
    assert len(world.busy()) == 1


async def test_the_run_of_a_dead_engine_fails_in_a_way_that_may_pass(world: World) -> None:
    await world.up()
    world.where().die()
    await world.until(lambda: world.states == [RUNNING, FAILED])
    error = world.reports[-1].error
    assert error is not None and (error.reason, error.transient) == ("ENGINE_LOST", True)


async def test_a_restarted_engine_is_noticed_though_it_answers(world: World) -> None:
    await world.up()
    one = world.where()
    one.die()
    one.start()
    await world.until(lambda: world.states == [RUNNING, FAILED])
    assert world.reports[-1].error is not None and world.reports[-1].error.reason == "ENGINE_LOST"


@pytest.mark.slow
async def test_a_run_that_nothing_fences_is_given_up_only_after_its_engine_must_have_stopped_it(world: World) -> None:
    await world.up(fenced=False)
    one = world.where()
    # It hears nothing, but lives: its own clock must stop the run first.
    world.wires.cut.add(one.address)
    await world.until(lambda: world.states == [RUNNING, FAILED])
    assert one.run.stops == [False]


async def test_a_run_that_ends_by_itself_is_terminated_and_one_that_was_drained_is_stopped(world: World) -> None:
    await world.up()
    world.where().run.report.state(engine.RUN_STATE_FINISHED)
    await world.until(lambda: world.states == [RUNNING, TERMINATED])

    world.reports.clear()
    world.where().works.clear()
    run = await world.up(epoch=2)
    run.drain()
    world.where().run.report.state(engine.RUN_STATE_FINISHED)
    await world.until(lambda: world.states == [RUNNING, STOPPED])


async def test_a_run_that_is_to_drain_is_told_and_stopped_when_it_has(world: World) -> None:
    run = await world.up()
    run.drain()
    await world.until(lambda: world.where().run.stops == [True])
    world.where().run.report.state(engine.RUN_STATE_STOPPED)
    await world.until(lambda: world.states == [RUNNING, STOPPED])


async def test_the_error_of_a_run_is_reported_with_its_reason(world: World) -> None:
    await world.up()
    failure = Failure(QUERY_FAILED, "division by zero", transient=False)
    world.where().run.report.state(engine.RUN_STATE_FAILED, failure)
    await world.until(lambda: world.states == [RUNNING, FAILED])
    error = world.reports[-1].error
    assert error is not None
    assert (error.reason, error.message, error.transient) == ("QUERY_FAILED", "division by zero", False)


async def test_a_stop_returns_when_the_engine_has_stopped_the_run(world: World) -> None:
    run = await world.up()
    one = world.where()
    await run.stop()
    assert one.run.stops[-1] is False
    assert world.states == [RUNNING]


@pytest.mark.slow
async def test_a_stop_ends_though_the_engine_is_silent(world: World) -> None:
    run = await world.up()
    one = world.where()
    world.wires.mute.add(one.address)
    await run.stop()
    await world.until(lambda: one.run.stops)
    assert world.states == [RUNNING]


async def test_a_stop_during_the_start_leaves_nothing_running(world: World) -> None:
    run = world.begin()
    await asyncio.sleep(0)
    await run.stop()
    assert all(work.stops for one in world.engines for work in one.works)
    assert world.states == []


async def test_a_restarted_agent_finds_its_run_where_it_is(world: World) -> None:
    await world.up()
    before = world.where()
    world.client = world._client()
    again = asyncio.create_task(world.client.run())
    world.begin(resumed=True)
    await world.until(lambda: world.states == [RUNNING, RUNNING])
    assert world.busy() == [before] and len(before.works) == 1
    again.cancel()


async def test_a_restarted_agent_whose_run_is_nowhere_asks_for_a_new_epoch(world: World) -> None:
    world.begin(resumed=True)
    await world.until(lambda: world.states == [FAILED])
    assert world.reports[-1].error is not None and world.reports[-1].error.transient
    assert world.busy() == []


async def test_progress_of_the_engine_is_passed_on(world: World) -> None:
    run = await world.up()
    world.where().run.report.progress(engine.RunProgress(rows_in=10, rows_out=3, lag=2, bad_records=1))
    await world.until(lambda: run.progress() is not None)
    progress = run.progress()
    assert progress is not None
    assert (progress.rows_in, progress.rows_out, progress.lag, progress.bad_records) == (10, 3, 2, 1)
    assert progress.engine == world.where().address
