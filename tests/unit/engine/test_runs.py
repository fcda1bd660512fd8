"""The registry of runs: epochs, keep-alive, states, watching."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest

from headgate.engine import v1 as engine
from headgate_common.errors import HeadgateError
from headgate_engine.errors import NO_SLOT, QUERY_FAILED
from headgate_engine.fragments.errors import Failure
from headgate_engine.fragments.realtime import Slots
from headgate_engine.fragments.run import Report
from headgate_engine.fragments.runs import Runs


@dataclass
class ManualClock:
    now: float = 100.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Scripted:
    """A run that does what the test says; a hard stop ends it unless it hangs."""

    report: Report
    hangs: bool = False
    started: bool = False
    stops: list[bool] = field(default_factory=list)

    def start(self) -> None:
        self.started = True

    def stop(self, *, soft: bool) -> None:
        self.stops.append(soft)
        if not soft and not self.hangs:
            self.report.state(engine.RUN_STATE_STOPPED)


class Fixture:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.works: list[Scripted] = []
        self.taken = 0
        self.given_back = 0
        self.full = False
        # Closed, it keeps whoever asks for slots waiting, as brokers do that do not answer.
        self.open = asyncio.Event()
        self.open.set()
        self.runs = Runs(self._launch, self._admit, self.clock, keep_alive=10.0, stop_timeout=0.05, forget_after=60.0)

    def _launch(self, request: engine.StartFragmentRequest, report: Report) -> Scripted:
        self.works.append(Scripted(report))
        return self.works[-1]

    async def _admit(self, request: engine.StartFragmentRequest) -> Callable[[], None]:
        return await asyncio.ensure_future(self._thread())

    async def _thread(self) -> Callable[[], None]:
        """Goes on, as a thread does, though nobody waits for it any more."""
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            await self.open.wait()
        if self.full:
            raise HeadgateError(NO_SLOT, "full")
        self.taken += 1
        return self._give_back

    def _give_back(self) -> None:
        self.given_back += 1

    async def start(self, uid: str = "f", epoch: int = 1) -> engine.Run:
        return await self.runs.start(engine.StartFragmentRequest(run=ref(uid, epoch), query="q"))


def ref(uid: str = "f", epoch: int = 1) -> engine.RunRef:
    return engine.RunRef(fragment_uid=uid, epoch=epoch)


@pytest.fixture
def fixture() -> Fixture:
    return Fixture()


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_the_same_epoch_again_is_the_same_run(fixture: Fixture) -> None:
    await fixture.start()
    again = await fixture.start()
    assert again.state == engine.RUN_STATE_STARTING
    assert len(fixture.works) == 1


async def test_a_later_epoch_stops_the_earlier_run_before_it_starts(fixture: Fixture) -> None:
    await fixture.start(epoch=1)
    await fixture.start(epoch=2)
    assert fixture.works[0].stops == [False]
    assert fixture.works[1].started
    with pytest.raises(HeadgateError, match="STALE_EPOCH"):
        await fixture.start(epoch=1)
    with pytest.raises(HeadgateError, match="STALE_EPOCH"):
        fixture.runs.stop(ref(epoch=1), soft=False)
    assert fixture.works[1].stops == []


async def test_a_later_epoch_does_not_start_while_the_earlier_run_hangs(fixture: Fixture) -> None:
    await fixture.start(epoch=1)
    fixture.works[0].hangs = True
    with pytest.raises(HeadgateError, match="does not stop"):
        await fixture.start(epoch=2)
    assert len(fixture.works) == 1


async def test_a_run_is_stopped_when_its_time_is_over_and_not_before(fixture: Fixture) -> None:
    await fixture.start()
    fixture.clock.now += 9.9
    fixture.runs.expire()
    assert fixture.works[0].stops == []
    assert fixture.runs.keep([ref()]) == []
    fixture.clock.now += 9.9
    fixture.runs.expire()
    assert fixture.works[0].stops == []
    fixture.clock.now += 0.2
    fixture.runs.expire()
    await settle()
    run = fixture.runs.get(ref())
    assert (run.state, run.error.reason) == (engine.RUN_STATE_FAILED, "KEEP_ALIVE_MISSED")
    assert fixture.runs.keep([ref()]) == [ref()]
    assert fixture.given_back == 1


async def test_keep_alive_answers_what_is_not_running_here(fixture: Fixture) -> None:
    await fixture.start("a")
    missing = fixture.runs.keep([ref("a"), ref("a", 2), ref("b")])
    assert missing == [ref("a", 2), ref("b")]


async def test_the_end_of_a_run_is_final_and_what_it_held_is_given_back_once(fixture: Fixture) -> None:
    await fixture.start()
    report = fixture.works[0].report
    report.state(engine.RUN_STATE_RUNNING)
    report.state(engine.RUN_STATE_FAILED, Failure(QUERY_FAILED, "no"))
    report.state(engine.RUN_STATE_RUNNING)
    report.state(engine.RUN_STATE_STOPPED)
    await settle()
    run = fixture.runs.get(ref())
    assert (run.state, run.error.reason, run.error.message) == (engine.RUN_STATE_FAILED, "QUERY_FAILED", "no")
    assert fixture.given_back == 1


async def test_a_draining_run_is_not_running_again(fixture: Fixture) -> None:
    await fixture.start()
    fixture.works[0].report.state(engine.RUN_STATE_RUNNING)
    await settle()
    fixture.runs.stop(ref(), soft=True)
    fixture.works[0].report.state(engine.RUN_STATE_RUNNING)
    await settle()
    assert fixture.runs.get(ref()).state == engine.RUN_STATE_DRAINING


async def test_a_run_that_is_not_admitted_leaves_nothing_behind(fixture: Fixture) -> None:
    fixture.full = True
    with pytest.raises(HeadgateError, match="NO_SLOT"):
        await fixture.start()
    assert fixture.works == []
    with pytest.raises(HeadgateError, match="RUN_NOT_FOUND"):
        fixture.runs.get(ref())


async def test_what_was_taken_for_a_caller_who_gave_up_meanwhile_is_given_back(fixture: Fixture) -> None:
    fixture.open.clear()
    start = asyncio.ensure_future(fixture.start())
    await settle()
    start.cancel()
    await settle()
    fixture.open.set()
    await settle()
    assert (fixture.taken, fixture.given_back) == (1, 1)
    assert start.cancelled() and fixture.works == []
    await fixture.start()
    assert (fixture.taken, fixture.given_back) == (2, 1)


async def test_two_starts_of_one_fragment_come_one_after_the_other_though_its_ended_run_is_forgotten(
    fixture: Fixture,
) -> None:
    await fixture.start(epoch=1)
    fixture.runs.stop(ref(epoch=1), soft=False)
    await settle()
    fixture.open.clear()
    first = asyncio.ensure_future(fixture.start(epoch=2))
    await settle()
    fixture.clock.now += 61.0
    fixture.runs.expire()
    second = asyncio.ensure_future(fixture.start(epoch=2))
    await settle()
    fixture.open.set()
    await asyncio.gather(first, second)
    assert (fixture.taken, len(fixture.works)) == (2, 2)


async def test_an_ended_run_is_forgotten_in_time(fixture: Fixture) -> None:
    await fixture.start()
    fixture.runs.stop(ref(), soft=False)
    await settle()
    fixture.clock.now += 59.0
    fixture.runs.expire()
    assert fixture.runs.get(ref()).state == engine.RUN_STATE_STOPPED
    fixture.clock.now += 2.0
    fixture.runs.expire()
    assert fixture.runs.stop(ref(), soft=False) is None


async def test_pages_have_every_run_once(fixture: Fixture) -> None:
    for uid in "cabed":
        await fixture.start(uid)
    found, token = [], ""
    while True:
        page, token = fixture.runs.page(token, 2)
        found += [run.ref.fragment_uid for run in page]
        if not token:
            break
    assert found == ["a", "b", "c", "d", "e"]


async def test_a_watcher_sees_what_is_there_and_every_last_state(fixture: Fixture) -> None:
    await fixture.start("a")
    await fixture.start("b")
    watching = fixture.runs.watch([])
    assert {(await anext(watching)).ref.fragment_uid for _ in range(2)} == {"a", "b"}
    waiting = asyncio.ensure_future(anext(watching))
    await settle()
    assert not waiting.done()
    for state in (engine.RUN_STATE_RUNNING, engine.RUN_STATE_FINISHED):
        fixture.works[1].report.state(state)
    run = await asyncio.wait_for(waiting, 60)
    assert run.ref.fragment_uid == "b"
    if run.state != engine.RUN_STATE_FINISHED:
        run = await asyncio.wait_for(anext(watching), 60)
    assert run.state == engine.RUN_STATE_FINISHED
    await watching.aclose()


async def test_what_a_start_waits_for_is_told_when_it_takes_longer_than_a_moment(
    fixture: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate_engine.fragments.runs._MOMENT", 0.05)
    run = await fixture.start()
    report = fixture.works[0].report
    report.step("it opens its output")
    report.step("it asks the brokers")
    await settle()
    assert run.waiting == "", "most steps are over by then"
    await asyncio.sleep(0.1)
    assert fixture.runs.get(ref()).waiting == "it asks the brokers"
    report.step("it opens its checkpoint")
    await settle()
    assert fixture.runs.get(ref()).waiting == "it opens its checkpoint"
    report.step("Spark plans it", own=True)
    await asyncio.sleep(0.1)
    assert fixture.runs.get(ref()).waiting == "", "it waits for nobody"
    report.step("it asks again")
    await asyncio.sleep(0.1)
    report.state(engine.RUN_STATE_RUNNING)
    await settle()
    assert fixture.runs.get(ref()).waiting == ""


def test_more_slots_than_there_will_ever_be_are_told_from_those_that_others_have() -> None:
    fixed, growing = Slots(lambda: 8, 2), Slots(lambda: 8, 2, grows=True)
    fixed.take(4)
    with pytest.raises(HeadgateError, match="NO_SLOT"):
        fixed.take(6)
    with pytest.raises(HeadgateError, match="TOO_FEW_SLOTS"):
        fixed.take(7)
    with pytest.raises(HeadgateError, match="NO_SLOT"):
        growing.take(7)


def test_slots_are_counted_and_given_back_once() -> None:
    slots = Slots(lambda: 8, 2)
    first = slots.take(4)
    with pytest.raises(HeadgateError, match="NO_SLOT") as refused:
        slots.take(3)
    assert refused.value.metadata == {"wanted": "3", "free": "2"}
    first()
    first()
    slots.take(6)
    with pytest.raises(HeadgateError, match="NO_SLOT"):
        slots.take(1)
