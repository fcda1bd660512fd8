"""The checker of the fault campaign notices what it is there for."""

from __future__ import annotations

from tests.chaos.history import History, Hole, Place, Read, Written, violations

P = Place("t", 0)
GOOD: Read = [(0, b"a:0"), (1, b"b:0"), (2, b"a:1"), (3, b"a:2")]


def history() -> History:
    made = History()
    made.acknowledged[P] = {0: Written("a", 0), 1: Written("b", 0), 2: Written("a", 1)}
    return made


def check(*reads: Read, holes: tuple[Hole, ...] = ()) -> list[str]:
    return violations(history(), {P: reads}, {P: holes}, {})


def test_a_right_sequence_passes_also_with_records_that_nobody_was_told_of() -> None:
    assert check(GOOD, GOOD) == []


def test_a_lost_record_is_noticed() -> None:
    assert "a" in check(GOOD[:2])[0] and "is lost" in check(GOOD[:2])[0]


def test_a_record_at_another_place_is_noticed() -> None:
    assert any("was acknowledged for" in found for found in check([(0, b"b:0"), (1, b"a:0"), (2, b"a:1")]))


def test_a_gap_is_noticed_unless_it_is_reported() -> None:
    gap: Read = [*GOOD, (6, b"a:3")]
    assert any("offset 4 is missing" in found for found in check(gap))
    assert check(gap, holes=(Hole(4, 6),)) == []


def test_what_is_lost_in_a_reported_hole_is_no_violation() -> None:
    assert check([*GOOD[:2], (3, b"a:2")], holes=(Hole(2, 3),)) == []


def test_a_duplicate_is_noticed() -> None:
    assert any("twice" in found for found in check([*GOOD, (4, b"a:2")]))


def test_a_changed_order_is_noticed() -> None:
    assert any("out of order" in found for found in check([*GOOD, (4, b"a:1")]))


def test_consumers_that_see_different_things_are_noticed() -> None:
    assert any("different sequences" in found for found in check(GOOD, GOOD[:3]))


def test_a_partition_that_nobody_read_is_noticed() -> None:
    assert violations(history(), {}, {}, {}) == [f"{P}: nobody read it"]
