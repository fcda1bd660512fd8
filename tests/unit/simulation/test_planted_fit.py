"""Every planted bug fits the code as it is. `tests/simulation/test_planted.py` hunts for them, which takes minutes."""

from __future__ import annotations

import pytest

from headgate_coordinator.catalog import fragments, store
from headgate_coordinator.query import states
from headgate_simulation.hunt import PLANTED
from headgate_simulation.planted import Planted, plant


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_a_planted_bug_can_be_planted_and_is_taken_out_again(planted: Planted) -> None:
    """Nothing of it is left behind for the next test."""
    before = (store.check_term, fragments.Changes.gone, states._stopping, states._take_down)
    with plant(planted):
        pass
    assert (store.check_term, fragments.Changes.gone, states._stopping, states._take_down) == before
