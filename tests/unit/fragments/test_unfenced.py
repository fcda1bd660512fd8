"""Runs whose output nothing fences, over agents and processes; and what is added up over the runs of a fragment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headgate.catalog import v1 as catalog
from headgate.engine import v1 as engine
from headgate_agent.fragments.compute_run import ComputeRun
from headgate_agent.fragments.earlier import EarlierRuns
from headgate_agent.fragments.runner import Assignment
from headgate_common.clock import SystemClock
from tests.unit.agent.test_compute_run import FAILED, TIMINGS, World


class Agent(World):
    """An agent whose runs know of those before them."""

    def __init__(self) -> None:
        super().__init__()
        self.earlier = EarlierRuns()

    def begin(self, epoch: int = 1, *, fenced: bool = True, resumed: bool = False) -> ComputeRun:
        plan = catalog.ComputeFragment(spark_sql="SELECT 1")
        ref = engine.RunRef(fragment_uid="f", epoch=epoch)
        request = engine.StartFragmentRequest(run=ref, query="q", plan=plan, checkpoint="/tmp/none")
        request.settings.keep_alive.FromMilliseconds(int(TIMINGS.keep_alive * 1000))
        if fenced:
            request.output.CopyFrom(engine.EdgeAccess(edge=1, topic_uid="t", partitions=1, address="a:1"))
        assignment = Assignment("f", epoch, "q", "uq", catalog.FragmentPlan(ordinal=2, compute=plan), resumed=resumed)
        run = ComputeRun(assignment, request, self.client, self.reports.append, SystemClock(), earlier=self.earlier)
        self.runs.append(run)
        return run


@pytest.fixture
async def world() -> AsyncIterator[Agent]:
    made = Agent()
    yield made
    await made.close()


async def begun_after(world: Agent) -> float:
    """Seconds until an engine has the run that was just begun."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    await world.until(lambda: any(one.works for one in world.engines))
    return loop.time() - began


@pytest.mark.slow
async def test_an_agent_starts_a_later_epoch_that_nothing_fences_only_when_a_lost_agents_run_must_be_over(
    world: Agent,
) -> None:
    world.begin(epoch=2, fenced=False)
    assert await begun_after(world) >= TIMINGS.outlives - 0.01
    assert any("without a fence" in report.waiting for report in world.reports)


@pytest.mark.parametrize(("epoch", "fenced"), [(1, False), (2, True)])
async def test_the_first_epoch_and_one_that_is_fenced_do_not_wait(world: Agent, epoch: int, fenced: bool) -> None:
    world.begin(epoch=epoch, fenced=fenced)
    await begun_after(world)
    assert not any(report.waiting for report in world.reports)


async def test_an_agent_that_saw_the_run_before_end_does_not_wait(world: Agent) -> None:
    first = await world.up(fenced=False)
    await first.stop()
    world.where().works.clear()
    world.begin(epoch=2, fenced=False)
    await begun_after(world)
    assert not any(report.waiting for report in world.reports)


@pytest.mark.slow
async def test_a_run_that_was_stopped_while_it_waited_is_no_proof_that_those_before_it_are_over(world: Agent) -> None:
    second = world.begin(epoch=2, fenced=False)
    await asyncio.sleep(TIMINGS.outlives / 4)
    await second.stop()
    world.begin(epoch=3, fenced=False)
    assert await begun_after(world) >= TIMINGS.outlives - 0.01


@pytest.mark.slow
async def test_a_restarted_agent_gives_up_an_unfenced_run_only_when_it_must_be_over(world: Agent) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    world.begin(fenced=False, resumed=True)
    await world.until(lambda: world.states == [FAILED])
    assert loop.time() - began >= TIMINGS.outlives - 0.01


def test_what_is_remembered_of_a_fragment_goes_with_it() -> None:
    earlier = EarlierRuns()
    earlier.ended("f", 3)
    assert earlier.has_ended("f", 2) and not earlier.has_ended("f", 4)
    earlier.forget("f")
    assert not earlier.has_ended("f", 1)
