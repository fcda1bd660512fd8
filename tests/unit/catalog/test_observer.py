"""The observer of sessions: nothing is overdue before a whole TTL without renewal on its own clock."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_coordinator.catalog.sessions import Observer, Session


class HandClock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return datetime.fromtimestamp(0, UTC)


SESSION = Session("s", "one", "one:1", ttl=3.0, renewals=7)


def test_a_session_seen_for_the_first_time_gets_a_whole_ttl() -> None:
    clock = HandClock()
    observer = Observer(clock)
    observer.see([SESSION])
    clock.now += 2.9
    observer.see([SESSION])
    assert observer.overdue() == []
    assert observer.next_due() is not None
    clock.now += 0.2
    assert observer.overdue() == [SESSION]
    assert observer.next_due() == 0.0


def test_a_renewal_seen_starts_the_ttl_anew() -> None:
    clock = HandClock()
    observer = Observer(clock)
    observer.see([SESSION])
    clock.now += 2.9
    renewed = replace(SESSION, renewals=8)
    observer.see([renewed])
    clock.now += 2.9
    assert observer.overdue() == []
    clock.now += 0.1
    assert observer.overdue() == [renewed]


def test_a_renewal_learned_of_otherwise_counts_too() -> None:
    clock = HandClock()
    observer = Observer(clock)
    assert not observer.renewed("s")
    observer.see([SESSION])
    clock.now += 2.9
    assert observer.renewed("s")
    observer.see([SESSION])
    clock.now += 2.9
    assert observer.overdue() == []


def test_a_session_that_is_gone_is_forgotten() -> None:
    clock = HandClock()
    observer = Observer(clock)
    observer.see([SESSION])
    observer.see([])
    clock.now += 10
    assert observer.overdue() == []
    assert observer.next_due() is None
    observer.see([SESSION])
    assert observer.overdue() == []


@given(st.lists(st.tuples(st.floats(0, 5), st.booleans()), max_size=30))
@pytest.mark.slow
def test_overdue_exactly_when_a_whole_ttl_passed_since_the_last_change_seen(steps: list[tuple[float, bool]]) -> None:
    clock = HandClock()
    observer = Observer(clock)
    session = SESSION
    observer.see([session])
    changed = clock.now
    for wait, renewed in steps:
        clock.now += wait
        if renewed:
            session = replace(session, renewals=session.renewals + 1)
            changed = clock.now
        observer.see([session])
        assert bool(observer.overdue()) == (clock.now - changed >= session.ttl)
