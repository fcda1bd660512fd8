"""Whatever agents do, in whatever order: what the log's metadata promises holds after every step.

Random agents join, vanish, lead, reserve, commit, trim, hand over and are recovered from, with stale epochs and forged
sessions among them. A small model keeps what was acknowledged and by whom; it is compared with the catalog after every
step, and so is what a watcher would have seen.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest
from google.protobuf.message import Message

from headgate.log import v1 as log
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.snapshot import read_kinds
from tests.integration.catalog import log_kit as kit
from tests.integration.catalog.log_kit import Member

NAMES = ("a", "b", "c")
PARTITIONS = 3
# What a call may be refused with: it changed nothing, and the model knows nothing of it.
REFUSALS = {
    "STALE_EPOCH",
    "SESSION_EXPIRED",
    "OFFSET_CONFLICT",
    "OFFSET_OUT_OF_RANGE",
    "TRANSFER_NOT_FOUND",
    "PARTITION_LED",
}


@dataclass(slots=True)
class Led:
    """A lead as its holder believes in it, rightly or not."""

    member: Member
    ref: log.LeaderRef


@dataclass(slots=True)
class Truth:
    """What the model knows of one partition."""

    committed: int = 0
    log_start: int = 0
    reserved: int = 0
    epoch: int = 0
    volume: str = ""
    holes: list[tuple[int, int]] = field(default_factory=list)


class Model:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.store = InlineStore(InlineDatabase(), clock=SystemClock(), ids=RandomIds(random.Random(seed)))
        self.members: dict[str, Member] = {}
        self.former: list[Member] = []
        self.believed: list[Led] = []
        self.offered: list[tuple[log.Transfer, Member, Member]] = []
        self.truths = [Truth() for _ in range(PARTITIONS)]
        # Who leads which partition.
        self.leading: dict[int, Member] = {}
        self.incarnations = 0
        self.segments = 0
        self.seen: dict[tuple[str, str], Message] = {}
        self.revision = 0

    async def start(self) -> None:
        self.topic = await kit.topic(self.store, partitions=PARTITIONS, durability=kit.WAL)

    def any_member(self) -> Member | None:
        """Mostly one that lives, sometimes one that does not."""
        if self.former and self.random.random() < 0.15:
            return self.random.choice(self.former)
        return self.random.choice(list(self.members.values())) if self.members else None

    def any_lead(self) -> Led | None:
        return self.random.choice(self.believed) if self.believed else None

    def holds(self, led: Led) -> bool:
        truth = self.truths[led.ref.partition.index]
        return led.ref.epoch == truth.epoch and self.leading.get(led.ref.partition.index) == led.member

    async def step(self) -> None:
        actions: list[Callable[[], Awaitable[None]]] = [
            self.join,
            self.vanish,
            self.acquire,
            self.acquire,
            self.reserve,
            self.commit,
            self.commit,
            self.trim,
            self.release,
            self.recover,
            self.offer,
            self.answer,
            self.complete,
        ]
        action = self.random.choice(actions)
        try:
            await action()
        except HeadgateError as error:
            assert error.reason.name in REFUSALS, error

    async def join(self) -> None:
        name = self.random.choice(NAMES)
        self.incarnations += 1
        before = self.members.get(name)
        self.members[name] = await kit.joined(self.store, name, incarnation=str(self.incarnations))
        if before is not None:
            self.lost(before)

    async def vanish(self) -> None:
        if self.members and self.random.random() < 0.5:
            member = self.members.pop(self.random.choice(list(self.members)))
            await kit.gone(self.store, member)
            self.lost(member)

    def lost(self, member: Member) -> None:
        self.former.append(member)
        for index in [index for index, leader in self.leading.items() if leader == member]:
            del self.leading[index]

    async def acquire(self) -> None:
        member, index = self.any_member(), self.random.randrange(PARTITIONS)
        if member is None:
            return
        (got,) = await kit.acquire(self.store, member, self.topic, [index])
        truth, leader = self.truths[index], self.leading.get(index)
        if leader is not None:
            assert got.refusal == ("" if leader == member else "GRANT_CONFLICT")
        elif truth.reserved > truth.committed and truth.volume != f"volume-{member.name}":
            assert got.refusal == "WAITS_FOR_VOLUME"
        else:
            assert got.refusal == ""
            assert got.epoch == truth.epoch + 1
            truth.epoch, truth.volume = got.epoch, f"volume-{member.name}"
            self.leading[index] = member
            self.believed.append(Led(member, kit.leader(self.topic, got.epoch, index)))

    async def reserve(self) -> None:
        led = self.any_lead()
        if led is None:
            return
        truth = self.truths[led.ref.partition.index]
        until = truth.committed + self.random.randrange(20)
        rightly = self.holds(led)
        await kit.reserve(self.store, led.member, led.ref, until)
        assert rightly
        truth.reserved = max(truth.reserved, until)

    async def commit(self) -> None:
        led = self.any_lead()
        if led is None:
            return
        truth = self.truths[led.ref.partition.index]
        base = truth.committed + self.random.choice((0, 0, 0, 1, -1))
        if base < 0:
            return
        following = base + self.random.randrange(1, 8)
        rightly = self.holds(led) and base == truth.committed
        self.segments += 1
        await kit.commits(self.store, led.member, kit.commit(led.ref, base, following, f"segment-{self.segments}"))
        assert rightly
        truth.committed = following
        truth.reserved = max(truth.reserved, following) if truth.reserved else 0

    async def trim(self) -> None:
        led = self.any_lead()
        if led is None:
            return
        truth = self.truths[led.ref.partition.index]
        start = max(0, truth.committed + self.random.randrange(-10, 3))
        rightly = self.holds(led) and start <= max(truth.committed, truth.reserved)
        await kit.trim(self.store, led.member, led.ref, start)
        assert rightly
        truth.log_start = max(truth.log_start, start)
        truth.committed = max(truth.committed, start)
        truth.holes = [hole for hole in truth.holes if hole[1] > truth.log_start]

    async def release(self) -> None:
        led = self.any_lead()
        if led is None or self.random.random() < 0.5:
            return
        index, flushed = led.ref.partition.index, self.random.random() < 0.5
        truth, leads = self.truths[index], self.holds(led)
        await kit.release(self.store, led.member, led.ref, flushed=flushed)
        if leads:
            del self.leading[index]
            if flushed:
                truth.reserved = truth.committed if truth.reserved else 0
        else:
            assert led.ref.epoch == truth.epoch and index not in self.leading, "it was given back before"

    async def recover(self) -> None:
        index = self.random.randrange(PARTITIONS)
        if self.random.random() < 0.7:
            return
        truth, led = self.truths[index], index in self.leading
        await kit.recover(self.store, self.topic.name, index)
        assert not led
        if truth.reserved > truth.committed:
            truth.holes.append((truth.committed, truth.reserved))
            truth.committed = truth.reserved

    async def offer(self) -> None:
        led, name = self.any_lead(), self.random.choice(NAMES)
        if led is None:
            return
        rightly = self.holds(led)
        made = await kit.start(self.store, led.member, led.ref, name)
        assert rightly
        if made.uid and name in self.members:
            self.offered.append((made, led.member, self.members[name]))

    async def answer(self) -> None:
        if self.offered:
            made, _, other = self.random.choice(self.offered)
            accept = self.random.random() < 0.8
            await kit.answer(self.store, other, [made.uid] if accept else [], [] if accept else [made.uid])

    async def complete(self) -> None:
        if not self.offered:
            return
        made, member, _ = self.random.choice(self.offered)
        before = self.leading.get(made.index)
        already = await self.transfer_state(made.uid) == log.TRANSFER_STATE_COMPLETED
        (after,) = await kit.complete(self.store, member, [made.uid])
        if after.state == log.TRANSFER_STATE_COMPLETED and not already:
            truth = self.truths[made.index]
            assert before == member
            assert made.epoch == truth.epoch
            other = self.members[after.to_agent]
            truth.epoch += 1
            truth.volume = f"volume-{other.name}"
            truth.reserved = truth.committed if truth.reserved else 0
            self.leading[made.index] = other
            self.believed.append(Led(other, kit.leader(self.topic, truth.epoch, made.index)))

    async def transfer_state(self, uid: str) -> int:
        for _, message in await self.store.read(lambda tx: list(read_kinds(tx, ("TRANSFER",)))):
            if isinstance(message, log.Transfer) and message.uid == uid:
                return message.state
        raise AssertionError(uid)

    async def check(self) -> None:
        for partition, truth in zip(await kit.partitions(self.store, self.topic), self.truths, strict=True):
            leader = self.leading.get(partition.index)
            assert partition.leader == (leader.name if leader else "")
            assert bool(partition.waiting) == (leader is None)
            assert partition.epoch == truth.epoch
            offsets = partition.offsets
            assert (offsets.log_start, offsets.committed, offsets.reserved) == (
                truth.log_start,
                truth.committed,
                truth.reserved,
            )
            assert [(hole.from_offset, hole.to_offset) for hole in offsets.holes] == truth.holes
            await self.check_segments(partition.index, truth, offsets.bytes)
        await self.check_watch()

    async def check_segments(self, index: int, truth: Truth, size: int) -> None:
        """Dense from the start to the end, but for the holes."""
        segments = await kit.listed(self.store, self.topic, index)
        assert size == sum(segment.bytes for segment in segments)
        pieces = [(segment.base_offset, segment.next_offset) for segment in segments] + truth.holes
        at = None
        for base, following in sorted(pieces):
            assert at is None or base == at, "no gap and no overlap"
            at = following
        assert at is None or at == truth.committed
        if truth.log_start < truth.committed:
            assert min(pieces)[0] <= truth.log_start

    async def check_watch(self) -> None:
        """Whoever followed the changes has what a snapshot has."""
        for changes in await kit.changes_since(self.store, self.revision):
            self.revision += 1
            for change in changes:
                if change.after is None:
                    self.seen.pop((change.kind, change.uid), None)
                else:
                    self.seen[change.kind, change.uid] = change.after
        kinds = ("AGENT", "TOPIC", "PARTITION", "TRANSFER")
        there = await self.store.read(lambda tx: list(read_kinds(tx, kinds)))
        assert sorted(message.SerializeToString(deterministic=True) for _, message in there) == sorted(
            message.SerializeToString(deterministic=True) for message in self.seen.values()
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
async def test_the_promises_hold_after_every_step(seed: int) -> None:
    model = Model(seed)
    await model.start()
    for _ in range(120):
        await model.step()
        await model.check()
    await model.store.close()
