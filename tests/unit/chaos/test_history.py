"""The checker of the fault campaign notices what it is there for."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.chaos.history import Followed, History, Hole, Place, Read, Written, violations

P = Place("t", 0)
GOOD: Read = [(0, b"a:0"), (1, b"b:0"), (2, b"a:1"), (3, b"a:2")]


def history() -> History:
    made = History()
    made.acknowledged[P] = {0: Written("a", 0), 1: Written("b", 0), 2: Written("a", 1)}
    made.sent[P] = {"a": 4, "b": 1}
    return made


def check(*reads: Read, holes: tuple[Hole, ...] = (), accepted: tuple[Hole, ...] | None = None) -> list[str]:
    """What holes are reported in the end was accepted, unless said otherwise."""
    return violations(history(), {P: reads}, {P: holes}, {}, {P: holes if accepted is None else accepted})


def test_a_right_sequence_passes_also_with_records_that_nobody_was_told_of() -> None:
    assert check(GOOD, GOOD) == []


def test_a_lost_record_is_noticed() -> None:
    assert "a" in check(GOOD[:2])[0] and "is lost" in check(GOOD[:2])[0]


def test_a_lost_record_is_noticed_also_if_it_was_acknowledged_without_an_offset() -> None:
    made = history()
    made.unplaced[P] = {Written("a", 2), Written("a", 3)}
    found = violations(made, {P: [GOOD]}, {}, {})
    assert len(found) == 1 and "number=3" in found[0] and "is lost" in found[0]
    hole = {P: (Hole(4, 6),)}
    assert violations(made, {P: [GOOD]}, hole, {}, hole) == [], "it may have been in there"


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


def test_a_hole_that_nobody_accepted_or_another_than_was_accepted_is_noticed() -> None:
    gap: Read = [*GOOD, (6, b"a:3")]
    assert check(gap, holes=(Hole(4, 6),), accepted=(Hole(4, 6),)) == []
    for accepted in ((), (Hole(4, 5),), (Hole(3, 6),), (Hole(4, 6), Hole(7, 9))):
        assert any("were accepted" in found for found in check(gap, holes=(Hole(4, 6),), accepted=accepted))
    assert any("were accepted" in found for found in check(GOOD, accepted=(Hole(4, 6),))), "it is not reported any more"


def test_a_gap_beside_a_hole_is_noticed() -> None:
    gap: Read = [*GOOD, (9, b"a:3")]
    assert check(gap, holes=(Hole(4, 6), Hole(6, 9))) == []
    assert any("offset 6 is missing" in found for found in check(gap, holes=(Hole(4, 6), Hole(7, 9))))
    assert any("offset 8 is missing" in found for found in check(gap, holes=(Hole(4, 8),)))


def test_a_record_in_a_hole_is_noticed() -> None:
    assert any("offset 3 holds a record" in found for found in check(GOOD, holes=(Hole(3, 4),)))


def test_a_record_that_nobody_sent_is_noticed() -> None:
    assert any("was never sent" in found for found in check([*GOOD, (4, b"c:0")]))
    assert any("was never sent" in found for found in check([*GOOD, (4, b"a:4")]))


def test_an_offset_that_comes_again_is_noticed() -> None:
    assert any("came after" in found for found in check([*GOOD, (3, b"a:3")]))


def test_what_only_the_second_consumer_saw_is_noticed() -> None:
    assert any("different sequences" in found for found in check(GOOD, [*GOOD, (4, b"a:3")]))
    assert any("different sequences" in found for found in check(GOOD, [*GOOD[:2], (2, b"a:2"), (3, b"a:1")]))


def follow(read: Read, final: Read = GOOD) -> list[str]:
    return violations(
        history(), {P: [final, final]}, {}, {}, followed={P: [Followed("one", GOOD), Followed("two", read)]}
    )


def test_a_consumer_that_followed_all_along_and_saw_the_final_sequence_passes() -> None:
    assert follow(GOOD) == []


def test_a_consumer_that_saw_a_record_which_was_taken_back_is_noticed() -> None:
    (found,) = follow([*GOOD, (4, b"a:3")])
    assert "two saw" in found and "holds nothing in the end" in found


def test_a_consumer_that_saw_a_record_where_another_is_in_the_end_is_noticed() -> None:
    (found,) = follow([*GOOD[:3], (3, b"a:3")])
    assert "two saw" in found and "offset 3, which holds" in found


def test_a_consumer_that_was_taken_back_and_saw_records_again_is_noticed() -> None:
    (found,) = follow([*GOOD[:3], GOOD[1], *GOOD[2:]])
    assert "two saw offset 1 after 2" in found


def test_a_consumer_that_saw_records_in_another_order_is_noticed() -> None:
    (found,) = follow([GOOD[0], GOOD[2], GOOD[1], GOOD[3]])
    assert "two did not see offset 1 before 2" in found


def test_a_consumer_that_was_led_past_a_record_is_noticed() -> None:
    (found,) = follow([*GOOD[:2], GOOD[3]])
    assert "two did not see offset 2 before 3" in found


def test_a_consumer_that_stopped_before_the_end_is_noticed() -> None:
    (found,) = follow(GOOD[:2])
    assert "two saw nothing from offset 2 on" in found
    (found,) = follow([])
    assert "two saw nothing from offset 0 on" in found


def lost(*followed: Read) -> list[str]:
    """After the record at offset 2 went with a disk."""
    final, holes = [*GOOD[:2], GOOD[3]], {P: [Hole(2, 3)]}
    named = [Followed(f"number {number}", read) for number, read in enumerate(followed)]
    return violations(history(), {P: [final, final]}, holes, {}, holes, {P: named})


def test_a_consumer_may_have_seen_what_was_lost_with_a_disk_or_not() -> None:
    assert lost(GOOD, [*GOOD[:2], GOOD[3]], GOOD) == []


def test_consumers_that_saw_different_records_where_a_hole_is_now_are_noticed() -> None:
    (found,) = lost([*GOOD[:2], (2, b"b:1"), GOOD[3]])
    assert "number 0 saw" in found and "which held" in found
    hidden: Read = [*GOOD, (4, b"a:3"), (6, b"a:4")]
    other: Read = [*GOOD, (4, b"b:1"), (6, b"a:4")]
    final: Read = [*GOOD, (6, b"a:4")]
    made, holes = history(), {P: [Hole(4, 6)]}
    made.sent[P]["a"] = 5
    followed = [Followed("one", hidden), Followed("two", other)]
    (found,) = violations(made, {P: [final, final]}, holes, {}, holes, {P: followed})
    assert "two saw" in found and "which held" in found


def test_a_consumer_that_saw_what_was_lost_after_what_follows_it_is_noticed() -> None:
    (found,) = lost([*GOOD[:2], GOOD[3], GOOD[2]])
    assert "saw offset 2 after 3" in found


PRODUCERS = st.lists(st.sampled_from(["a", "b", "c"]), min_size=2, max_size=30)


def run(producers: list[str]) -> tuple[History, list[tuple[int, bytes]]]:
    """What happens when nothing goes wrong: every record acknowledged, at the next offset."""
    made, read = History(), []
    for offset, producer in enumerate(producers):
        number = made.sent[P].get(producer, 0)
        made.sent[P][producer] = number + 1
        made.acknowledged[P][offset] = Written(producer, number)
        read.append((offset, f"{producer}:{number}".encode()))
    return made, read


def lose(read: list[tuple[int, bytes]], at: int) -> Read:
    return read[:at] + read[at + 1 :]


def close_up(read: list[tuple[int, bytes]], at: int) -> Read:
    """A lost record whose place the others took."""
    return [(offset - (offset > at), value) for offset, value in lose(read, at)]


def double(read: list[tuple[int, bytes]], at: int) -> Read:
    return [*read, (len(read), read[at][1])]


def swap(read: list[tuple[int, bytes]], at: int) -> Read:
    other = (at + 1) % len(read)
    changed = list(read)
    changed[at], changed[other] = (at, read[other][1]), (other, read[at][1])
    return changed


def skip(read: list[tuple[int, bytes]], at: int) -> Read:
    """Offsets that nobody reported as lost."""
    return [(offset + (offset >= at), value) for offset, value in read]


@given(PRODUCERS)
def test_a_run_without_faults_has_no_violations(producers: list[str]) -> None:
    made, read = run(producers)
    followed = {P: [Followed("one", list(read))]}
    assert violations(made, {P: [read, list(read)]}, {}, {}, followed=followed) == []


@pytest.mark.parametrize("fault", [lose, close_up, double, swap, skip])
@given(producers=PRODUCERS, data=st.data())
@pytest.mark.slow
def test_a_planted_fault_is_noticed_wherever_it_is(
    fault: Callable[[list[tuple[int, bytes]], int], Read], producers: list[str], data: st.DataObject
) -> None:
    made, read = run(producers)
    broken = fault(read, data.draw(st.integers(0, len(read) - 1)))
    assert violations(made, {P: [broken, broken]}, {}, {}), "both consumers saw the same wrong thing"
    assert violations(made, {P: [read, broken]}, {}, {}), "one of them saw it"
    followed = {P: [Followed("good", read), Followed("bad", broken)]}
    assert violations(made, {P: [read, read]}, {}, {}, followed=followed), "one saw it while it lasted"


def broken(errors: int, holes: tuple[Hole, ...]) -> list[str]:
    made = history()
    made.broken[P]["a"] = [f"a.{number}: the sequence is refused" for number in range(errors)]
    read = [one for one in GOOD if not any(one[0] in hole for hole in holes)]
    return violations(made, {P: [read]}, {P: holes}, {}, {P: holes})


def test_a_producer_that_had_to_begin_anew_is_noticed_unless_a_loss_was_accepted_each_time() -> None:
    assert any("a was broken 1 times" in found for found in broken(1, ()))
    assert broken(1, (Hole(2, 3),)) == []
    assert any("a was broken 2 times, and 1 losses" in found for found in broken(2, (Hole(2, 3),)))
