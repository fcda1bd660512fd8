"""A retried batch is never stored twice, and a missing one is never skipped."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_agent.log.producers import Producers, SequenceProblem, SequenceRefused
from headgate_agent.log.record_batch import BatchHeader, encode, header_at
from tests.examples import examples


def header(sequence: int, count: int = 1, producer: int = 7, epoch: int = 0) -> BatchHeader:
    return header_at(encode(b"", count, timestamp=1, producer=(producer, epoch, sequence)), 0)


def refusal(producers: Producers, batch: BatchHeader) -> SequenceProblem:
    with pytest.raises(SequenceRefused) as caught:
        producers.take(batch, 0)
    return caught.value.problem


def test_the_next_batch_is_taken_and_a_retry_gets_its_first_offset() -> None:
    producers = Producers()
    producers.take(header(0, 3), 100)
    producers.take(header(3, 2), 103)
    again = producers.duplicate(header(0, 3))
    assert again is not None
    assert again.base_offset == 100
    assert producers.duplicate(header(5)) is None


def test_a_gap_is_refused() -> None:
    producers = Producers()
    producers.take(header(0), 0)
    assert refusal(producers, header(5)) is SequenceProblem.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_is_neither_remembered_nor_next_is_never_called_stored() -> None:
    producers = Producers()
    for sequence in range(8):
        producers.take(header(sequence), sequence)
    assert producers.duplicate(header(0)) is None
    assert refusal(producers, header(0)) is SequenceProblem.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_second_batch_of_a_producer_waits_for_its_first() -> None:
    producers = Producers(forgotten=6)
    assert refusal(producers, header(1)) is SequenceProblem.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers.take(header(0), 0)
    producers.take(header(1), 1)


def test_a_producer_that_may_have_been_forgotten_goes_on_where_it_was() -> None:
    producers = Producers(forgotten=7)
    producers.take(header(5), 0)
    assert refusal(producers, header(4)) is SequenceProblem.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_after_an_accepted_loss_those_of_before_go_on_and_those_of_after_begin_at_zero() -> None:
    # The catalog forgets whoever had written, and says that all ids given out so far may have been known.
    producers = Producers(forgotten=7)
    producers.restore([])
    producers.take(header(40, producer=6), 100)
    producers.take(header(41, producer=6), 101)
    producers.take(header(9, epoch=3), 102)
    assert refusal(producers, header(1, producer=8)) is SequenceProblem.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers.take(header(0, producer=8), 103)


def test_an_older_instance_is_shut_out_and_a_newer_one_begins_at_zero() -> None:
    producers = Producers()
    producers.take(header(0, epoch=1), 0)
    assert refusal(producers, header(1, epoch=0)) is SequenceProblem.INVALID_PRODUCER_EPOCH
    assert refusal(producers, header(4, epoch=2)) is SequenceProblem.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers.take(header(0, epoch=2), 1)


def test_sequences_wrap() -> None:
    producers = Producers(forgotten=7)
    last = (1 << 31) - 1
    producers.take(header(last - 1, 2), 0)
    producers.take(header(0), 2)
    assert refusal(producers, header(last)) is SequenceProblem.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_least_recently_used_producer_is_forgotten_first() -> None:
    producers = Producers(most=2)
    for producer in (1, 2):
        producers.take(header(0, producer=producer), producer)
    producers.take(header(1, producer=1), 3)
    producers.take(header(0, producer=3), 4)
    assert {known.producer_id for known in producers} == {1, 3}
    producers.take(header(1, producer=2), 5)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6), st.integers(1, 3), st.booleans()), max_size=40))
@pytest.mark.slow
def test_forgetting_a_take_leaves_what_was_before(
    steps: list[tuple[int, int, int, bool]],
) -> None:
    producers = Producers()
    for producer, sequence, count, keep in steps:
        before = [(p.producer_id, p.epoch, list(p.batches)) for p in sorted(producers, key=lambda p: p.producer_id)]
        try:
            undo = producers.take(header(sequence, count, producer), 0)
        except SequenceRefused:
            keep = False
        else:
            if not keep:
                producers.forget(undo)
        if not keep:
            after = [(p.producer_id, p.epoch, list(p.batches)) for p in sorted(producers, key=lambda p: p.producer_id)]
            assert after == before
