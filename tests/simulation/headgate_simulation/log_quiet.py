"""What must hold of the log once everything is healed: led, uploaded, read the same by all, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from headgate_agent.log.contract import PartitionKey
from headgate_simulation import group_clients
from headgate_simulation.log_clients import Consumer, LogClient
from headgate_simulation.log_invariants import Row
from headgate_simulation.log_promises import Record, number_of, producer_of
from headgate_simulation.plan import Operation
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.log_world import LogWorld


# Seconds between two looks at the catalog.
LOOK = 0.1


async def give_up_lost(log: LogWorld) -> None:
    """What lost disks held: nobody else can give it up, and whoever produces there waits for it."""
    client = LogClient(log, Operation(id="operator", at=0.0, client=0, kind="recover"))
    for topic in sorted({row.topic for row in log.checker.rows.values() if _stranded(log, row)}):
        await log.clients.recover(client, topic)


def _stranded(log: LogWorld, row: Row) -> bool:
    return row.reserved > row.committed and row.volume_id in log.lost_volumes


def unsettled(log: LogWorld) -> tuple[str, str] | None:
    """The first thing that is not as it should be: its name, and what is wrong with it."""
    agents = dict(log.alive())
    ends: dict[str, int] = {}
    for key, row in log.checker.rows.items():
        topic, _, index = key.rpartition("/")
        leaders = [
            (name, led)
            for name, agent in agents.items()
            if (led := agent.broker.led.get(PartitionKey(topic, int(index)))) is not None and led.partition.leads
        ]
        if len(leaders) != 1:
            return row.topic, f"{row.topic}/{index} is led by {[name for name, _ in leaders]}: {row}"
        ((name, led),) = leaders
        part = led.partition
        if part.epoch != row.epoch:
            return row.topic, f"{name} leads {row.topic}/{index} in epoch {part.epoch}, the catalog says {row.epoch}"
        if not part.committed == part.durable == part.next == row.committed:
            return row.topic, f"{name} has not uploaded all of {row.topic}/{index}: {part.next} of {row}"
        known = {segment.uid for segment in log.checker.history(key).segments}
        gone = [info.uid for info in led.segments._list if info.uid not in known]
        if gone:
            return row.topic, f"{name} reads {row.topic}/{index} by segments that the catalog has not: {gone}"
        ends[key] = row.committed
    for name, agent in agents.items():
        if agent.broker.held:
            return name, f"agent {name} keeps records of {list(agent.broker.held)} which it does not lead"
    for consumer in log.clients.consumers:
        if log.checker.readable_after(consumer.key, consumer.position):
            end = ends.get(consumer.key)
            return consumer.name, f"{consumer.name} is at {consumer.position} of {end} of {consumer.topic.name}"
    named = {segment.key for key in log.checker.rows for segment in log.checker.history(key).segments}
    left = sorted(key for key in log.store.objects if key not in named and key.startswith("topic-"))
    if left:
        return "store", f"{len(left)} objects that nobody names are not collected, {left[0]} for one"
    return None


async def read_back(log: LogWorld) -> None:
    """Reads everything with readers of its own, and holds it against what was promised and shown."""
    log.checker.everything()
    await group_clients.read_back(log, LogClient(log, Operation(id="group-reader", at=0.0, client=0, kind="consume")))
    for key, row in sorted(log.checker.rows.items()):
        made = (future.result() for future in log.clients.topics if future.done())
        topic = next((one for one in made if key.startswith(one.uid)), None)
        if topic is None:
            # An edge that a query made: nobody writes to it, because its runs follow a script.
            continue
        client = LogClient(log, Operation(id=f"reader-{topic.name}", at=0.0, client=0, kind="consume"))
        reader = Consumer(log, client, topic, int(key.rpartition("/")[2]))
        end = max((segment.next for segment in log.checker.history(key).segments), default=row.log_start)
        async with asyncio.timeout(60.0):
            await reader.run(until=end)
            # A leader shows a later start a moment before it has told the catalog of it.
            while log.checker.rows[key].log_start < reader.began:  # noqa: ASYNC110 - any commit may tell
                await asyncio.sleep(LOOK)
        log.world.check()
        # Some of it may have become too old meanwhile.
        _check(log, log.checker.rows[key], reader.seen)


def _check(log: LogWorld, row: Row, records: list[Record]) -> None:
    about = (row.key, row.topic)
    history, promises = log.checker.history(row.key), log.promises.of(row.key)
    lost = [(start, end) for start, end in history.holes.items()]
    found = {record.offset: record.value for record in records if record.offset >= row.log_start}

    def excused(offset: int) -> bool:
        return offset < row.log_start or any(start <= offset < end for start, end in lost)

    for offset in range(row.log_start, row.committed):
        if (offset in found) == excused(offset):
            fail("offsets are dense", f"{row.topic} at {offset}: {found.get(offset)}, holes {lost}", about)
    for offset, value in promises.acknowledged.items():
        if offset >= row.committed and log.checker.leads_up_to(row.key) > offset:
            continue  # (a request that came late: it is on its way to a segment)
        if found.get(offset) != value and not excused(offset):
            fail("nothing acknowledged is lost", f"{value}@{offset} of {row.topic} is {found.get(offset)}", about)
    for consumer in log.clients.consumers:
        if consumer.key != row.key:
            continue
        seen = {record.offset: record.value for record in consumer.seen}
        for offset in range(max(consumer.began, row.log_start), max(found, default=-1) + 1):
            if seen.get(offset) != found.get(offset) and not excused(offset):
                fail(
                    "every consumer sees the same",
                    f"{consumer.name} saw {seen.get(offset)} at {offset} of {row.topic}, which is {found.get(offset)}",
                    about,
                )
    _check_producers(log, row, found)


def _check_producers(log: LogWorld, row: Row, found: dict[int, str]) -> None:
    about = (row.key, row.topic)
    idempotent = log.clients.idempotent - log.clients.restarted
    holes = log.checker.history(row.key).holes
    last: dict[str, int] = {}
    at: dict[str, int] = {}
    for offset, value in sorted(found.items()):
        producer = producer_of(value)
        if producer in idempotent:
            number, follows = number_of(value), last.get(producer)
            # What an operator gave up is missing, and nothing of it comes again.
            missing = any(at.get(producer, -1) < start < offset for start in holes)
            if follows is not None and not (number == follows + 1 or (missing and number > follows)):
                fail(
                    "an idempotent producer's records are there once, in order",
                    f"{value}@{offset} of {row.topic} follows {follows}",
                    about,
                )
            last[producer], at[producer] = number, offset
    stored = Counter(value for value in found.values() if value in log.clients.sent)
    for value, times in stored.items():
        sent = log.clients.sent[value]
        if times > sent:
            fail(
                "a record is there no more often than it was sent",
                f"{value} of {row.topic} was sent {sent} times, without refusals, and is there {times} times",
                about,
            )
    writer, count = log.clients.committed.get(row.key, ("", 0))
    # What only a lost disk held is in a hole.
    if count and last.get(writer) != count - 1 and not holes:
        fail("a committed batch is there", f"{writer} committed {count}, {row.topic} ends with {last}", about)
    order: dict[str, tuple[int, int]] = {}
    promises = log.promises.of(row.key)
    for value, offset in promises.offsets.items():
        if value in promises.given_up:
            continue
        producer, number = producer_of(value), number_of(value)
        before = order.get(producer, (-1, -1))
        if (number > before[0]) != (offset > before[1]) and producer not in log.clients.restarted:
            fail("order per producer", f"{value}@{offset} of {row.topic} was acknowledged after {before}", about)
        order[producer] = (number, offset)
