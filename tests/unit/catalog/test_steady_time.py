"""The catalog's time as the leader saw it pass, and what it forgets by it while the catalog's clock jumps."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from headgate_common.ids import RandomIds
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.retention import Aged, Retention, RetentionSettings
from headgate_coordinator.catalog.steady_time import SteadyTime
from headgate_coordinator.catalog.tx import Tx

HOUR, WEEK = 3600.0, 7 * 86_400.0
START = 1_000_000_000


@dataclass
class JumpingClock:
    """`ahead` is how far the catalog's clock, and nothing else, has jumped."""

    passed: float = 50.0
    ahead: float = 0.0

    def monotonic(self) -> float:
        return self.passed

    def wall(self) -> datetime:
        return datetime.fromtimestamp(START + self.passed + self.ahead, UTC)


def micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def looked(clock: JumpingClock, time: SteadyTime, seconds: float, step: float = 600.0) -> None:
    """Looks every `step` while time passes."""
    for _ in range(round(seconds / step)):
        clock.passed += step
        time.see(micros(clock.wall().timestamp()))


def test_nothing_is_known_before_a_whole_window_was_seen() -> None:
    clock = JumpingClock()
    time = SteadyTime(clock, HOUR)
    assert time.read(0.0) is None
    time.see(micros(START))
    assert time.read(0.0) == micros(START)
    assert time.read(1.0) is None
    looked(clock, time, HOUR - 600.0)
    assert time.read(HOUR) is None
    looked(clock, time, 600.0)
    assert time.read(HOUR) == micros(START + HOUR)


def test_without_a_jump_it_is_the_catalogs_time_between_looks_too() -> None:
    clock = JumpingClock()
    time = SteadyTime(clock, HOUR)
    looked(clock, time, 5 * HOUR)
    clock.passed += 7.0
    assert time.read(HOUR) == time.read(60.0) == micros(START + clock.passed)


def test_a_jump_forward_counts_once_it_has_lasted_for_the_window_and_a_jump_back_at_once() -> None:
    clock = JumpingClock()
    time = SteadyTime(clock, HOUR)
    looked(clock, time, 2 * HOUR)
    clock.ahead = WEEK
    looked(clock, time, HOUR)
    assert time.read(HOUR) == micros(START + clock.passed), "the reading before the jump was good until the first after"
    assert time.read(600.0) == micros(START + clock.passed + WEEK), "for a shorter window it has lasted"
    looked(clock, time, 600.0)
    assert time.read(HOUR) == micros(START + clock.passed + WEEK)
    clock.ahead = 0.0
    looked(clock, time, 600.0)
    assert time.read(HOUR) == time.read(0.0) == micros(START + clock.passed)


def test_readings_are_not_kept_beyond_the_longest_window() -> None:
    clock = JumpingClock()
    time = SteadyTime(clock, HOUR)
    looked(clock, time, 100 * HOUR)
    assert len(time._readings) <= HOUR / 600.0 + 1


class Leader:
    """Things with a time, and a leader that forgets those older than a week."""

    def __init__(self) -> None:
        self.clock = JumpingClock()
        self.things: dict[str, int] = {}
        self.store = InlineStore(InlineDatabase(), clock=self.clock, ids=RandomIds())
        self.begin()

    def begin(self) -> None:
        settings = RetentionSettings(patience=HOUR)
        self.retention = Retention(self.store, settings, [Aged(WEEK, self._forget)], clock=self.clock)

    def touch(self, *names: str) -> None:
        self.things |= {name: micros(self.clock.wall().timestamp()) for name in names}

    async def leads(self, seconds: float) -> None:
        for _ in range(round(seconds / 600.0)):
            self.clock.passed += 600.0
            await self.retention.run_once()

    def _forget(self, tx: Tx, age: float, limit: int) -> int:
        old = [name for name, time in self.things.items() if time < tx.now - micros(age)][:limit]
        for name in old:
            del self.things[name]
        return len(old)


@pytest.mark.slow
async def test_what_nobody_touches_for_its_age_is_forgotten_then_and_not_before() -> None:
    leader = Leader()
    leader.touch("idle")
    await leader.leads(WEEK)
    assert set(leader.things) == {"idle"}
    await leader.leads(600.0)
    assert not leader.things


async def test_a_clock_that_jumps_a_month_and_back_within_the_patience_deletes_nothing() -> None:
    leader = Leader()
    leader.touch("idle", "used")
    await leader.leads(2 * HOUR)
    leader.clock.ahead = 30 * 86_400.0
    await leader.leads(HOUR)
    leader.clock.ahead = 0.0
    await leader.leads(24 * HOUR)
    assert set(leader.things) == {"idle", "used"}


async def test_after_a_jump_that_lasts_what_is_in_use_is_kept() -> None:
    leader = Leader()
    leader.touch("idle", "used")
    await leader.leads(2 * HOUR)
    leader.clock.ahead = 30 * 86_400.0
    leader.touch("used")
    await leader.leads(2 * HOUR)
    assert set(leader.things) == {"used"}


async def test_a_leader_that_begins_with_a_clock_that_is_ahead_deletes_nothing_at_once() -> None:
    leader = Leader()
    leader.touch("idle")
    leader.clock.ahead = 30 * 86_400.0
    leader.begin()
    await leader.leads(HOUR - 600.0)
    assert set(leader.things) == {"idle"}


async def test_each_term_looks_for_itself() -> None:
    """Between two terms another led: what this process saw before says nothing about that time."""
    leader = Leader()
    await leader.leads(2 * HOUR)
    assert leader.retention._time.read(HOUR) is not None
    running = asyncio.ensure_future(leader.retention.run(1))
    await asyncio.sleep(0)
    running.cancel()
    assert leader.retention._time.read(0.0) is None
