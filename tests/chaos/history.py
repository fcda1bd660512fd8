"""What producers were told and what consumers saw, and what must hold between the two. Knows no server.

A record's value is `producer:number`, numbered from 0 by each producer for each partition, in the order of sending.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Place:
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Written:
    """A record as a producer knows it."""

    producer: str
    number: int


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets that were reported as lost: from the first to before the second."""

    start: int
    end: int

    def __contains__(self, offset: int) -> bool:
        return self.start <= offset < self.end


@dataclass(slots=True)
class History:
    """Filled by producers while the campaign runs."""

    acknowledged: dict[Place, dict[int, Written]] = field(default_factory=lambda: defaultdict(dict))
    # Those that were acknowledged without an offset: the client learned of them by a later one.
    unplaced: dict[Place, set[Written]] = field(default_factory=lambda: defaultdict(set))
    # How many each producer has sent, or is about to send: those that were not acknowledged may be there, or not.
    sent: dict[Place, dict[str, int]] = field(default_factory=lambda: defaultdict(dict))
    # Why each producer had to begin anew, or did not get a record in though its time was not over: an idempotent one
    # that keeps asking never should.
    broken: dict[Place, dict[str, list[str]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    @property
    def count(self) -> int:
        return sum(len(told) for places in (self.acknowledged, self.unplaced) for told in places.values())


# What one consumer read of one partition: (offset, value), in the order of reading.
Read = Sequence[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class Followed:
    """What a consumer read that went along from the first record on, while things broke, until it had caught up."""

    consumer: str
    read: Read


def parse(value: bytes) -> Written:
    producer, _, number = value.decode().rpartition(":")
    return Written(producer, int(number))


def violations(
    history: History,
    reads: Mapping[Place, Sequence[Read]],
    holes: Mapping[Place, Sequence[Hole]],
    first_offsets: Mapping[Place, int],
    accepted: Mapping[Place, Sequence[Hole]] = MappingProxyType({}),
    followed: Mapping[Place, Sequence[Followed]] = MappingProxyType({}),
) -> list[str]:
    """Everything that does not hold, in words; empty if all does. `reads` are of the end, when everything is healed,
    `followed` are of the time before. `holes` are reported in the end; they must be those that were `accepted` when a
    disk was lost, and no others. What was in one is gone for good, also for those who have seen it."""
    found: list[str] = []
    told = {*history.acknowledged, *history.unplaced}
    for place in sorted({*told, *reads}, key=lambda place: (place.topic, place.partition)):
        sequences = reads.get(place, ())
        if not sequences:
            found.append(f"{place}: nobody read it")
            continue
        found += _same(place, sequences)
        lost = holes.get(place, ())
        found += _holes_are_holes(place, sequences, lost, accepted.get(place, ()))
        found += _nothing_lost(place, history.acknowledged.get(place, {}), dict(sequences[0]), lost)
        found += _unplaced_are_there(place, history.unplaced.get(place, set()), sequences[0], lost)
        found += _dense(place, sequences[0], lost, first_offsets.get(place, 0))
        found += _once_and_in_order(place, sequences[0])
        found += _kept_going(place, history.broken.get(place, {}), accepted.get(place, ()))
        found += _was_sent(place, sequences[0], history.sent.get(place, {}))
        for one in followed.get(place, ()):
            found += _saw_the_same(place, one, sequences[0], lost)
        found += _saw_what_was_lost(place, followed.get(place, ()), history.acknowledged.get(place, {}), lost)
    return found


def _same(place: Place, sequences: Sequence[Read]) -> Iterable[str]:
    for other in sequences[1:]:
        if list(other) != list(sequences[0]):
            at = next(
                (i for i, (one, two) in enumerate(zip(sequences[0], other, strict=False)) if one != two),
                min(len(sequences[0]), len(other)),
            )
            yield f"{place}: two consumers saw different sequences, from record {at} on"


def _saw_the_same(place: Place, followed: Followed, final: Read, holes: Sequence[Hole]) -> Iterable[str]:
    """What was once shown stays where it is, unless it was lost with a disk: a consumer sees the final sequence, record
    by record, from the start."""
    in_the_end = dict(final)
    before = -1
    kept = [(offset, value) for offset, value in followed.read if not _in_any(offset, holes)]
    for (offset, value), expected in zip_longest(kept, final, fillvalue=(-1, b"")):
        if (offset, value) == expected:
            before = offset
            continue
        who = f"{place}: {followed.consumer}"
        if offset < 0:
            yield f"{who} saw nothing from offset {expected[0]} on"
        elif offset <= before:
            yield f"{who} saw offset {offset} after {before}"
        elif in_the_end.get(offset) != value:
            holds = parse(in_the_end[offset]) if offset in in_the_end else "nothing"
            yield f"{who} saw {parse(value)} at offset {offset}, which holds {holds} in the end"
        else:
            yield f"{who} did not see offset {expected[0]} before {offset}"
        return


def _saw_what_was_lost(
    place: Place, followed: Sequence[Followed], acknowledged: Mapping[int, Written], holes: Sequence[Hole]
) -> Iterable[str]:
    """What is in a hole was one sequence too, as long as it was there."""
    seen = dict(acknowledged)
    for one in followed:
        before = -1
        for offset, value in one.read:
            if offset <= before and (_in_any(offset, holes) or _in_any(before, holes)):
                yield f"{place}: {one.consumer} saw offset {offset} after {before}"
                break
            before = offset
            if not _in_any(offset, holes):
                continue
            written = parse(value)
            if seen.setdefault(offset, written) != written:
                yield f"{place}: {one.consumer} saw {written} at offset {offset}, which held {seen[offset]}"
                break


def _in_any(offset: int, holes: Sequence[Hole]) -> bool:
    return any(offset in hole for hole in holes)


def _nothing_lost(
    place: Place, acknowledged: Mapping[int, Written], read: Mapping[int, bytes], holes: Sequence[Hole]
) -> Iterable[str]:
    for offset, written in sorted(acknowledged.items()):
        if _in_any(offset, holes):
            continue
        value = read.get(offset)
        if value is None:
            yield f"{place}: acknowledged record {written} at offset {offset} is lost"
        elif parse(value) != written:
            yield f"{place}: offset {offset} was acknowledged for {written} and holds {parse(value)}"


def _unplaced_are_there(place: Place, unplaced: Iterable[Written], read: Read, holes: Sequence[Hole]) -> Iterable[str]:
    """Where such a record was is not known, so any hole may have been its place."""
    there = {parse(value) for _, value in read}
    for written in () if holes else sorted({*unplaced} - there, key=lambda one: (one.producer, one.number)):
        yield f"{place}: {written}, acknowledged without an offset, is lost"


def _dense(place: Place, read: Read, holes: Sequence[Hole], first: int) -> Iterable[str]:
    expected = first
    for offset, _ in read:
        if offset < expected:
            yield f"{place}: offset {offset} came after {expected - 1}"
            return
        while expected < offset:
            lost = next((hole for hole in holes if expected in hole), None)
            if lost is None:
                yield f"{place}: offset {expected} is missing, and no hole is reported"
                return
            expected = min(lost.end, offset)
        expected = offset + 1


def _holes_are_holes(
    place: Place, sequences: Sequence[Read], holes: Sequence[Hole], accepted: Sequence[Hole]
) -> Iterable[str]:
    if list(holes) != list(accepted):
        yield f"{place}: the holes {list(holes)} are reported, and {list(accepted)} were accepted"
    used = [offset for read in sequences for offset, _ in read if _in_any(offset, holes)]
    if used:
        yield f"{place}: offset {used[0]} holds a record, and is reported as part of a hole"


def _kept_going(place: Place, broken: Mapping[str, Sequence[str]], accepted: Sequence[Hole]) -> Iterable[str]:
    """An idempotent producer is broken only by the loss of what it was acknowledged, and by each loss once."""
    for producer, errors in sorted(broken.items()):
        if len(errors) > len(accepted):
            yield (
                f"{place}: {producer} was broken {len(errors)} times, and {len(accepted)} losses were accepted: "
                f"{'; '.join(errors)}"
            )


def _was_sent(place: Place, read: Read, sent: Mapping[str, int]) -> Iterable[str]:
    for offset, value in read:
        written = parse(value)
        if written.number >= sent.get(written.producer, 0):
            yield f"{place}: {written} at offset {offset} was never sent"
            return


def _once_and_in_order(place: Place, read: Read) -> Iterable[str]:
    """Idempotent producers: nothing twice, and each producer's records in the order in which it sent them."""
    last: dict[str, int] = {}
    for offset, value in read:
        written = parse(value)
        before = last.get(written.producer, -1)
        if written.number <= before:
            kind = "twice" if written.number == before else "out of order"
            yield f"{place}: {written} at offset {offset} came {kind}, after number {before}"
            return
        last[written.producer] = written.number
