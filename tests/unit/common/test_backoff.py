"""How long to wait before trying again."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_common.backoff import Backoff


@given(attempt=st.integers(min_value=0, max_value=10**6), seed=st.integers())
def test_no_delay_exceeds_the_cap_or_its_ceiling(attempt: int, seed: int) -> None:
    backoff = Backoff(initial=0.1, cap=5.0)
    delay = backoff.delay(attempt, random.Random(seed))
    assert 0 <= delay <= backoff.ceiling(attempt) <= 5.0


def test_the_ceiling_doubles_up_to_the_cap() -> None:
    backoff = Backoff(initial=0.5, cap=3.0)
    assert [backoff.ceiling(attempt) for attempt in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_a_factor_of_one_stays_where_it_is() -> None:
    assert Backoff(initial=0.5, cap=3.0, factor=1.0).ceiling(10**9) == 0.5


def test_the_jitter_is_full_and_comes_from_the_source() -> None:
    backoff = Backoff(initial=1.0, cap=1.0)
    drawn = [backoff.delay(0, random.Random(seed)) for seed in range(200)]
    assert min(drawn) < 0.1
    assert max(drawn) > 0.9
    assert drawn == [backoff.delay(0, random.Random(seed)) for seed in range(200)]


@pytest.mark.parametrize("arguments", [{"initial": 0}, {"initial": 2, "cap": 1}, {"factor": 0.5}])
def test_senseless_settings_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Backoff(**arguments)
