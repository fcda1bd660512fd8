"""What a partition knows of its idempotent producers: which batches it has, so that a retry is never stored twice.

As in Kafka, a producer's last five batches are remembered: a retried one is answered with the offset that it got the
first time, the next one in sequence is taken, anything else is refused. Clients have at most five on their way, so
what is neither remembered nor next has not been stored, whatever its number: nobody is told that it has.

A producer that is not known begins at 0: a later batch of it that comes first, because the first one was refused a
moment before, waits for it. Only those that may have been forgotten, which ids up to a mark tell, begin anywhere.

Pure: the partition decides when what is taken becomes durable, and `forget` takes it back where it did not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from headgate_agent.log.record_batch import BatchHeader

REMEMBERED_BATCHES = 5
DEFAULT_MOST_PRODUCERS = 10_000
_SEQUENCES = 1 << 31


class SequenceProblem(Enum):
    """Why a batch was refused; named as in the Kafka protocol."""

    OUT_OF_ORDER_SEQUENCE_NUMBER = "it is not the next batch, and none of the last ones"
    INVALID_PRODUCER_EPOCH = "a newer instance of this producer has written"


class SequenceRefused(ValueError):
    def __init__(self, problem: SequenceProblem, header: BatchHeader, expected: int) -> None:
        super().__init__(
            f"producer {header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}: "
            f"{problem.value} (expected {expected})"
        )
        self.problem = problem
        self.expected = expected


@dataclass(frozen=True, slots=True)
class TakenBatch:
    base_sequence: int
    last_sequence: int
    base_offset: int
    timestamp: int


@dataclass(slots=True)
class Producer:
    producer_id: int
    epoch: int
    batches: list[TakenBatch] = field(default_factory=list)

    @property
    def next_sequence(self) -> int:
        return (self.batches[-1].last_sequence + 1) % _SEQUENCES if self.batches else 0


@dataclass(slots=True)
class Undo:
    """What `take` changed."""

    producer_id: int
    before: Producer | None


class Producers:
    """The producers of one partition, the least recently used forgotten first where there are too many. Those with an
    id up to `forgotten` may have been known before."""

    def __init__(self, most: int = DEFAULT_MOST_PRODUCERS, forgotten: int = -1) -> None:
        self._most = most
        self._forgotten = forgotten
        self._known: OrderedDict[int, Producer] = OrderedDict()

    def duplicate(self, header: BatchHeader) -> TakenBatch | None:
        """The batch as it was first taken, if this is a retry of one that is remembered."""
        producer = self._known.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        for batch in producer.batches:
            if (batch.base_sequence, batch.last_sequence) == (header.base_sequence, header.last_sequence):
                return batch
        return None

    def take(self, header: BatchHeader, base_offset: int) -> Undo:
        """Notes a batch that will be stored at `base_offset`; raises `SequenceRefused` if it may not be."""
        producer = self._known.get(header.producer_id)
        self._check(header, producer)
        undo = Undo(header.producer_id, _copy(producer))
        if producer is None or header.producer_epoch != producer.epoch:
            producer = Producer(header.producer_id, header.producer_epoch)
            self._known[header.producer_id] = producer
        taken = TakenBatch(header.base_sequence, header.last_sequence, base_offset, header.max_timestamp)
        producer.batches = [*producer.batches[-(REMEMBERED_BATCHES - 1) :], taken]
        self._known.move_to_end(header.producer_id)
        while len(self._known) > self._most:
            producer_id, _ = self._known.popitem(last=False)
            self._forgotten = max(self._forgotten, producer_id)
        return undo

    def forget(self, undo: Undo) -> None:
        """Makes the last `take` not have happened."""
        if undo.before is None:
            self._known.pop(undo.producer_id, None)
        else:
            self._known[undo.producer_id] = undo.before

    def restore(self, producers: Iterable[Producer]) -> None:
        """Takes over what a former leader knew."""
        for producer in producers:
            self._known[producer.producer_id] = Producer(
                producer.producer_id, producer.epoch, producer.batches[-REMEMBERED_BATCHES:]
            )

    def restore_batch(self, header: BatchHeader) -> None:
        """Takes over a batch that is stored already, whatever came before it."""
        producer = self._known.get(header.producer_id)
        if header.producer_id < 0:
            return
        if producer is None or producer.epoch != header.producer_epoch:
            producer = Producer(header.producer_id, header.producer_epoch)
            self._known[header.producer_id] = producer
        taken = TakenBatch(header.base_sequence, header.last_sequence, header.base_offset, header.max_timestamp)
        producer.batches = [*producer.batches[-(REMEMBERED_BATCHES - 1) :], taken]

    def before(self, offset: int, since: int = 0) -> list[Producer]:
        """What is known of batches below `offset`, of producers with one at or above `since`. (A successor must not
        take a batch for stored that is not.)"""
        known = (
            Producer(
                producer.producer_id,
                producer.epoch,
                [batch for batch in producer.batches if batch.base_offset < offset],
            )
            for producer in self._known.values()
        )
        return [producer for producer in known if producer.batches and producer.batches[-1].base_offset >= since]

    def __iter__(self) -> Iterator[Producer]:
        return iter(list(self._known.values()))

    def _check(self, header: BatchHeader, producer: Producer | None) -> None:
        if producer is not None and header.producer_epoch < producer.epoch:
            raise SequenceRefused(SequenceProblem.INVALID_PRODUCER_EPOCH, header, producer.next_sequence)
        if producer is None and header.producer_id <= self._forgotten:
            return
        anew = producer is None or header.producer_epoch > producer.epoch
        expected = 0 if producer is None or anew else producer.next_sequence
        if header.base_sequence != expected:
            raise SequenceRefused(SequenceProblem.OUT_OF_ORDER_SEQUENCE_NUMBER, header, expected)


def _copy(producer: Producer | None) -> Producer | None:
    return None if producer is None else Producer(producer.producer_id, producer.epoch, list(producer.batches))
