"""What must hold of the log after every commit, with every answer of a leader, and whenever an object is deleted.

The catalog's side is read from its tables: partitions after every commit, the segments of a partition when it has
changed. The agents' side is what their brokers believe at that moment. What was promised is kept in `log_promises`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.partition import Partition
from headgate_agent.log.record_batch import headers
from headgate_coordinator.catalog.agent_rows import agent_of
from headgate_coordinator.catalog.log.partitions import GRANT
from headgate_simulation.log_promises import Record, producer_of, records_of
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.log_world import LogWorld

FULL_EVERY = 50

_PARTITIONS = f"""
SELECT p.key, p.log_start, p.committed, p.reserved, p.bytes, p.volume_id, g.epoch, g.session_uid, t.durability, t.name
FROM partitions p JOIN topics t ON t.uid = p.topic_uid LEFT JOIN grants g ON g.kind = '{GRANT}' AND g.key = p.key
"""
_SEGMENTS = """
SELECT base_offset, next_offset, uid, object_key, bytes, epoch, max_timestamp
FROM segments WHERE partition_key = ? ORDER BY base_offset
"""
_HOLES = "SELECT from_offset, to_offset FROM partition_holes WHERE partition_key = ? ORDER BY from_offset"


class Row(NamedTuple):
    """A partition in the catalog."""

    key: str
    log_start: int
    committed: int
    reserved: int
    bytes: int
    volume_id: str
    epoch: int | None
    session: str | None
    durability: str
    topic: str


class Segment(NamedTuple):
    base: int
    next: int
    uid: str
    key: str
    bytes: int
    epoch: int
    # Of its records, in milliseconds.
    newest: int


@dataclass(slots=True)
class History:
    """What is remembered of one partition."""

    holes: dict[int, int] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    # When a segment was there first, by its uid, and all that there ever were, by where they begin.
    since: dict[str, float] = field(default_factory=dict)
    ever: dict[int, list[Segment]] = field(default_factory=lambda: defaultdict(list))
    # By epoch: who acted in it, and one above the highest offset that it promised.
    acted: dict[int, tuple[str, int]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    # By epoch, too: the one leadership that answered in it.
    leaderships: dict[int, Partition] = field(default_factory=dict)
    # The highest start that somebody asked for.
    trimmed: int = 0

    def parts(self, segment: Segment, until: int) -> list[Segment]:
        """What the records of a segment before an offset were in: itself, or those that it was merged from. Empty where
        it was not merged there."""
        if segment.next <= until:
            return [segment]
        found: list[Segment] = []
        at = segment.base
        while at < until:
            smaller = [one for one in self.ever[at] if one.next <= until]
            if not smaller:
                return []
            found.append(min(smaller, key=lambda one: one.next))
            at = found[-1].next
        return found


class LogChecker:
    def __init__(self, log: LogWorld) -> None:
        self._log = log
        self._raw = log.world.database.raw
        self._writes = log.world.database.writes
        self._seen = -1
        self._commits = 0
        self.rows: dict[str, Row] = {}
        # As they were read.
        self._found: list[Any] = []
        self._histories: dict[str, History] = {}
        # Topics of which an operator was asked to give up what is lost.
        self.given_up: set[str] = set()
        # Of topics that have one, in milliseconds.
        self._retention = {
            str(one["topic"]): int(str(one.get("retention") or 0))
            for one in log.world.plan.operations
            if one.kind == "create_topic"
        }
        log.store.deleted = self._deleted

    def history(self, key: str) -> History:
        found = self._histories.get(key)
        if found is None:
            found = self._histories[key] = History()
        return found

    def readable_after(self, key: str, offset: int) -> bool:
        """Whether a segment has records at the offset or after it."""
        return any(segment.next > offset for segment in self.history(key).segments)

    def leads_up_to(self, key: str) -> int:
        """The high watermark of whoever leads the partition; 0 if nobody does."""
        key_ = _key(key)
        leds = [log.broker.led.get(key_) for _, log in self._log.alive()]
        return max((led.partition.durable for led in leds if led is not None and led.partition.leads), default=0)

    # After every commit

    def committed(self) -> None:
        self._commits += 1
        writes = self._writes["partitions"] + self._writes["topics"] + self._writes["grants"]
        if writes != self._seen:
            self._seen = writes
            self._look()
        if self._commits % FULL_EVERY == 0:
            self.everything()

    def _look(self) -> None:
        found = self._raw.execute(_PARTITIONS).fetchall()
        if found == self._found:
            return
        self._found = found
        before, self.rows = self.rows, {row[0]: Row(*row) for row in found}
        for key, row in self.rows.items():
            was = before.get(key)
            if was != row:
                self._changed(was, row)

    def everything(self) -> None:
        for row in self.rows.values():
            self._segments(row)
            self._leads_alone(row)

    def _changed(self, was: Row | None, row: Row) -> None:
        about = (row.key, row.topic)
        if was is not None:
            if (row.epoch or 0) < (was.epoch or 0):
                fail("epochs only grow", f"{row.topic}: {was} became {row}", about)
            if row.session not in (None, was.session) and row.epoch == was.epoch:
                fail("a grant that passes on has a new epoch", f"{row.topic}: {was} became {row}", about)
            if row.committed < was.committed or row.log_start < was.log_start:
                fail("offsets only grow", f"{row.topic}: {was} became {row}", about)
        if row.log_start > max(self.history(row.key).trimmed, 0 if was is None else was.log_start):
            self._expired(row)
        if was is None or (row.committed, row.log_start, row.bytes) != (was.committed, was.log_start, was.bytes):
            self._segments(row)
        if was is None or (row.epoch, row.session) != (was.epoch, was.session):
            self._leads_alone(row)

    def _expired(self, row: Row) -> None:
        """What nobody asked to trim is older than the topic's retention, by the clock of the agent that leads, if that
        was ahead at some time as far as it was then. What is of a time to come by that clock was there for so long."""
        about, history = (row.key, row.topic), self.history(row.key)
        retention = self._retention.get(row.topic, 0)
        if not retention:
            fail("nobody trims but who was asked to", f"{row.topic} begins at {row.log_start}", about)
        session = self._raw.execute("SELECT holder FROM sessions WHERE uid = ?", (row.session,)).fetchone()
        clock = self._log.world.processes[agent_of(session[0])].clock
        there_before = self._log.world.loop.time() - retention / 1000

        def is_old(segment: Segment) -> bool:
            seen_long = segment.newest > clock.earliest() and history.since[segment.uid] < there_before
            return seen_long or segment.newest + retention < clock.latest()

        for segment in history.segments:
            if not history.trimmed <= segment.base < row.log_start:
                continue
            # It may have been merged since its leader looked at it.
            parts = history.parts(segment, row.log_start)
            if not parts or not all(map(is_old, parts)):
                fail("retention takes what is old", f"{row.topic} begins at {row.log_start}, behind {segment}", about)

    def _segments(self, row: Row) -> None:
        history, about = self.history(row.key), (row.key, row.topic)
        for start, end in self._raw.execute(_HOLES, (row.key,)):
            if start not in history.holes and row.topic not in self.given_up:
                fail("a loss is accepted before it is one", f"{row.topic} has a hole from {start} to {end}", about)
            history.holes[start] = end
        found = [Segment(*each) for each in self._raw.execute(_SEGMENTS, (row.key,))]
        known = {segment.uid for segment in history.segments}
        history.segments = found
        at, epoch = row.log_start, 0
        for number, segment in enumerate(found):
            at = self._after_holes(history, at)
            if number == 0 and segment.base <= at < segment.next:
                at = segment.base
            if segment.base != at:
                fail("segments are dense", f"{row.topic}: {segment} where {at} is next", about)
            if segment.epoch < epoch:
                fail("segments are ordered by epoch", f"{row.topic}: {segment} after epoch {epoch}", about)
            at, epoch = segment.next, segment.epoch
            if segment.uid not in known:
                history.since[segment.uid] = self._log.world.loop.time()
                history.ever[segment.base].append(segment)
                self._shown(row, segment)
        if self._after_holes(history, at) != row.committed:
            fail("segments are dense", f"{row.topic} has segments up to {at}, and committed {row.committed}", about)
        if sum(segment.bytes for segment in found) != row.bytes:
            fail("segments are counted", f"{row.topic} has {row.bytes} bytes in {found}", about)

    @staticmethod
    def _after_holes(history: History, at: int) -> int:
        for start, end in sorted(history.holes.items()):
            if start <= at < end:
                at = end
        return at

    def _shown(self, row: Row, segment: Segment) -> None:
        """A segment has become visible: by the leader of this moment, and its object is there."""
        about = (row.key, row.topic)
        stored = self._log.store.objects.get(segment.key)
        if stored is None or len(stored.data) != segment.bytes:
            fail("a visible segment has its object", f"{row.topic}: {segment}", about)
        if "/stages-" in segment.key:
            return
        made_in = int(segment.key.split("/")[2])
        if row.session is None or made_in != row.epoch or segment.epoch > made_in:
            fail("only the leader publishes", f"{row.topic}: {segment} under epoch {row.epoch}", about)

    def _leads_alone(self, row: Row) -> None:
        """Nobody serves under a grant that has passed on, by its own clock; whoever handed over takes no records."""
        key = _key(row.key)
        for name, log in self._log.alive():
            led = log.broker.led.get(key)
            if led is None or not led.partition.leads:
                continue
            part = led.partition
            if (part.epoch, led.session) != (row.epoch, row.session) and part._tenure._sealed is None:
                fail(
                    "a leader stops before its grant passes on",
                    f"{name} leads {row.topic}/{key.index} in epoch {part.epoch}; the catalog says {row.epoch} of "
                    f"{row.session}",
                    (row.key, row.topic, name),
                )

    def _deleted(self, key: str) -> None:
        named = self._raw.execute("SELECT partition_key FROM segments WHERE object_key = ?", (key,)).fetchone()
        if named is not None:
            with self._log.world.checking():
                fail("what a segment names is not deleted", f"{key} of {named[0]}", (named[0],))

    # With every answer of a leader

    def produced(self, server: str, request: Any, told: Any) -> None:
        for part, answer in zip(request.parts, told.parts, strict=True):
            if answer.error_reason:
                continue
            records: list[Record] = []
            base = answer.base_offset
            for header in headers(part.batches):
                own = part.batches[header.position : header.position + header.size]
                records += [Record(base + one.offset, one.value, 0, one.idempotent) for one in records_of(own)]
                base += header.last_offset_delta + 1
            self._acknowledged(server, f"{part.topic_uid}/{part.partition}", records)

    def produced_records(self, server: str, request: Any, told: Any) -> None:
        """Acknowledged by the agent that was asked, or by the one that it has asked."""
        topic = next((row.key.rpartition("/")[0] for row in self.rows.values() if row.topic == request.topic), "")
        for record, place in zip(request.records, told.positions, strict=True):
            one = Record(place.offset, record.value.decode(), 0, False)
            self._promised("acknowledged", f"{topic}/{place.partition}", [one])

    def _acknowledged(self, server: str, key: str, records: Sequence[Record]) -> None:
        row = self.rows.get(key)
        if row is None:
            return  # (the topic was dropped meanwhile)
        about = (key, row.topic, server)
        names = ", ".join(f"{one.value}@{one.offset}" for one in records)
        self._log.world.trace.note(server, "acknowledges", key, row.topic, detail=names)
        # By its session, not by the agent's row: that of a dropped agent lives on until it has run out.
        session = self._raw.execute("SELECT holder FROM sessions WHERE uid = ?", (row.session,)).fetchone()
        leads = session is not None and agent_of(session[0]) == server
        # What segments hold is so, whoever leads by now: an answer for several partitions waits for the slowest.
        if not leads and records[-1].offset >= row.committed:
            fail(
                "acknowledged under the grant",
                f"{server} acknowledged {names} of {row.topic}, which {row.session} leads in epoch {row.epoch}",
                about,
            )
        if leads:
            self._acts(server, row)
        for one in records:
            self._is_durable(server, row, one, "acknowledged")
            if any(start <= one.offset < end for start, end in self.history(key).holes.items()):
                fail("a hole is not used again", f"{one} of {row.topic} was acknowledged in a hole", about)
            if row.durability == "WAL" and one.offset >= max(row.reserved, row.committed):
                fail("acknowledged within what is reserved", f"{one} of {row.topic}, reserved {row.reserved}", about)
        self._promised("acknowledged", key, records)

    def _acts(self, server: str, row: Row) -> None:
        """One process acts in an epoch, in one leadership."""
        assert row.epoch is not None
        history = self.history(row.key)
        who = (server, self._log.world.processes[server].lives)
        acted = history.acted.setdefault(row.epoch, who)
        if acted != who:
            fail("one leader acts in an epoch", f"{row.topic}, epoch {row.epoch}: {acted} and {who}", (row.key,))
        log = dict(self._log.alive()).get(server)
        led = None if log is None else log.broker.led.get(_key(row.key))
        if led is not None and history.leaderships.setdefault(row.epoch, led.partition) is not led.partition:
            fail(
                "whoever leads again does so in a new epoch",
                f"{server} stopped leading {row.topic} in epoch {row.epoch}, and answers in it again",
                (row.key, row.topic, server),
            )

    def _is_durable(self, server: str, row: Row, record: Record, what: str) -> None:
        """As durable as the topic promises, at the moment when somebody is told of it."""
        if record.offset < row.committed:
            return
        if row.durability == "WAL":
            value = record.value.encode()
            if any(value in file.certain for file in self._log.disk(server).files.values()):
                return
        fail(
            "told only of what is durable",
            f"{server} {what} {record} of {row.topic} ({row.durability}), committed {row.committed}",
            (row.key, row.topic, server),
        )

    def _promised(self, what: str, key: str, records: Sequence[Record]) -> None:
        promises, row = self._log.promises.of(key), self.rows.get(key)
        about = (key, row.topic if row is not None else "")
        for one in records:
            for kind, known in (("acknowledged", promises.acknowledged), ("shown", promises.shown)):
                other = known.get(one.offset, one.value)
                if other != one.value:
                    fail("an offset has one record", f"{one} {what}, {other} was {kind}, in {about[1]}", about)
            promises.end = max(promises.end, one.offset + 1)
            if what == "shown":
                promises.shown[one.offset] = one.value
                continue
            promises.acknowledged[one.offset] = one.value
            first = promises.offsets.setdefault(one.value, one.offset)
            if any(start <= first < end for start, end in self.history(key).holes.items()):
                # Given up with the disk that had it: it is not there twice.
                first = promises.offsets[one.value] = one.offset
                promises.given_up.add(one.value)
            if one.idempotent and first != one.offset and producer_of(one.value) not in self._log.clients.restarted:
                fail("a retry is stored once", f"{one.value} of {about[1]} at {first} and {one.offset}", about)
        if records and row is not None and row.epoch is not None:
            ends = self.history(key).ends
            ends[row.epoch] = max(ends.get(row.epoch, 0), records[-1].offset + 1)

    def fetched(self, server: str, request: Any, told: Any) -> None:
        for part, answer in zip(request.parts, told.parts, strict=True):
            key = f"{part.topic_uid}/{part.partition}"
            row = self.rows.get(key)
            if answer.error_reason or row is None:
                continue
            records = records_of(answer.batches)
            about = (key, row.topic, server)
            if records and records[-1].offset >= answer.high_watermark:
                fail("never past the high watermark", f"{records[-1]} of {row.topic}: {answer.high_watermark}", about)
            for one in records:
                self._is_durable(server, row, one, "showed")
            self._promised("shown", key, records)
            led = self._leading(server, key)
            if led is not None and led.epoch == row.epoch:
                before = max((end for epoch, end in self.history(key).ends.items() if epoch < led.epoch), default=0)
                if answer.high_watermark < before:
                    fail(
                        "the high watermark only grows",
                        f"{server} says {answer.high_watermark} of {row.topic} in epoch {led.epoch}, {before} was "
                        "promised before",
                        about,
                    )

    def _leading(self, server: str, key: str) -> Partition | None:
        opened = self._log.agents.get(server)
        led = opened.log.broker.led.get(_key(key)) if opened is not None else None
        return led.partition if led is not None else None


def _key(key: str) -> PartitionKey:
    topic, _, index = key.rpartition("/")
    return PartitionKey(topic, int(index))
