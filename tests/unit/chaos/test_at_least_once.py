"""What passes for at least once, and what does not."""

from __future__ import annotations

import pytest

from tests.e2e.queries.at_least_once import Stretch, at_least_once, stretches

EXPECTED = [(letter,) for letter in "abcdef"]


@pytest.mark.parametrize(
    ("found", "runs"),
    [
        ("abcdef", 1),
        # A batch was cut off, then done.
        ("ababcdef", 2),
        # Tasks of a batch write in any order.
        ("abbcadef", 2),
        # Twice the same batch, then another one.
        ("aababcdedef", 4),
        ("abcdef", 9),
    ],
)
def test_what_runs_that_were_cut_off_wrote_again_is_allowed(found: str, runs: int) -> None:
    at_least_once("q", [(letter,) for letter in found], EXPECTED, runs)


@pytest.mark.parametrize(
    ("found", "runs", "why"),
    [
        ("abcde", 2, "lost 1 rows"),
        ("abcdefg", 2, "should not be there"),
        ("ababcdef", 1, "came again"),
        ("aabcddef", 2, "came again"),
        ("aaabcdef", 2, "came again"),
    ],
)
def test_anything_else_is_told(found: str, runs: int, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        at_least_once("q", [(letter,) for letter in found], EXPECTED, runs)


def test_the_attempts_at_one_batch_are_one_stretch() -> None:
    assert stretches([(letter,) for letter in "xabacbcdeed"]) == [Stretch(1, 6, 2), Stretch(7, 10, 2)]
