"""The passed-in clock and ids of production."""

from __future__ import annotations

import random
from datetime import UTC

from headgate_common.clock import SystemClock
from headgate_common.ids import ALPHABET, UID_LENGTH, RandomIds


def test_the_monotonic_clock_does_not_go_back_and_the_wall_clock_is_in_utc() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(1000)]
    assert readings == sorted(readings)
    assert clock.wall().tzinfo is UTC


def test_ids_say_what_they_name_and_are_safe_everywhere() -> None:
    uid = RandomIds().uid("query")
    prefix, _, rest = uid.partition("-")
    assert prefix == "query"
    assert len(rest) == UID_LENGTH
    assert set(rest) <= set(ALPHABET)


def test_the_same_source_gives_the_same_ids_and_two_are_never_equal() -> None:
    one, other = RandomIds(random.Random(1)), RandomIds(random.Random(1))
    made = [one.uid("x") for _ in range(1000)]
    assert made == [other.uid("x") for _ in range(1000)]
    assert len(set(made)) == 1000
