"""The order in which a campaign strikes."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.campaign import Outcome
from tests.chaos.faults import Fault, plan


def nothing() -> None:
    return


FAULTS = [Fault(f"agent{number} killed", nothing, nothing, (1.0, 4.0)) for number in range(5)]


@given(st.integers(0, 1000), st.floats(1.0, 300.0))
def test_every_fault_strikes_before_any_comes_again_and_all_end_in_time(seed: int, seconds: float) -> None:
    strokes = plan(FAULTS, seconds, random.Random(seed), (0.5, 2.0))
    for at in range(0, len(strokes), len(FAULTS)):
        struck = [one.fault.name for one in strokes[at : at + len(FAULTS)]]
        assert len(set(struck)) == len(struck)
    assert all(one.begins < one.ends <= seconds for one in strokes)
    assert strokes == plan(FAULTS, seconds, random.Random(seed), (0.5, 2.0)), "the same seed strikes the same"


def test_faults_are_summed_up_by_kind_over_all_campaigns() -> None:
    total = Outcome()
    for acknowledged in (10, 20):
        one = Outcome(acknowledged=acknowledged, followed=7, holes=1)
        one.strokes.update(fault.kind for fault in FAULTS)
        one.strokes["object store slow"] += 1
        total.add(one)
    assert str(total) == (
        "30 records acknowledged, 14 read while things broke, 2 holes; 12 faults: agent killed 10, object store slow 2"
    )
