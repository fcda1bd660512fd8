"""Agents with sessions, topics, and what their leaders do, as few words as tests need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from sqlalchemy import select

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.log import v1 as log
from headgate_common.errors import HeadgateError, Reason
from headgate_coordinator.catalog import endings, registration
from headgate_coordinator.catalog.changes import history
from headgate_coordinator.catalog.log import groups, handover, leads, segments, topics
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.registration import Registered
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Change, Tx

T = TypeVar("T")
OBJECT, WAL = log.DURABILITY_OBJECT, log.DURABILITY_WAL


@dataclass(frozen=True, slots=True)
class Member:
    """An agent's process: its name and session."""

    name: str
    session: str


async def joined(
    store: Store, name: str, *, volume: str | None = None, incarnation: str = "1", **fields: Any
) -> Member:
    """Registers an agent, in the place of whoever there was; its volume is named like it unless said otherwise."""
    port = 7000 + sum(name.encode())
    request = cluster.RegisterAgentRequest(
        name=name,
        address=f"127.0.0.1:{port}",
        incarnation=f"{name}-{incarnation}",
        slots=4,
        protocol_version=1,
        volume_id=f"volume-{name}" if volume is None else volume,
        **fields,
    )

    def register(tx: Tx) -> Registered:
        before = tx.connection.execute(select(agents.c.incarnation).where(agents.c.name == name)).scalar_one_or_none()
        request.replaces = before or ""
        return registration.register_agent(tx, request, 6.0)

    return Member(name, (await store.write(register)).session.uid)


async def gone(store: Store, member: Member) -> None:
    await store.write(lambda tx: endings.expire_session(tx, member.session, 0))


async def topic(
    store: Store, name: str = "orders", partitions: int = 1, rules: TopicRules | None = None, **settings: Any
) -> log.Topic:
    request = log.CreateTopicRequest(name=name, partitions=partitions, settings=log.TopicSettings(**settings))
    return await store.write(lambda tx: topics.create_topic(tx, request, rules or TopicRules()))


def ref(made: log.Topic, index: int = 0) -> log.PartitionRef:
    return log.PartitionRef(topic_uid=made.uid, index=index)


def leader(made: log.Topic, epoch: int, index: int = 0) -> log.LeaderRef:
    return log.LeaderRef(partition=ref(made, index), epoch=epoch)


async def acquire(
    store: Store,
    member: Member,
    made: log.Topic,
    indexes: Iterable[int] = (0,),
    max_bytes: int = leads.DEFAULT_ACQUIRED_BYTES,
    ended: Mapping[int, int] | None = None,
) -> Sequence[log.AcquiredPartition]:
    request = log.AcquirePartitionsRequest(
        session_id=member.session,
        partitions=[ref(made, index) for index in indexes],
        ended=[leader(made, epoch, index) for index, epoch in (ended or {}).items()],
    )
    return (await store.write(lambda tx: leads.acquire_partitions(tx, request, max_bytes))).partitions


async def lead(store: Store, member: Member, made: log.Topic, index: int = 0) -> log.LeaderRef:
    """Takes the lead; it must be granted."""
    (got,) = await acquire(store, member, made, [index])
    assert got.refusal == "" and got.epoch > 0
    return leader(made, got.epoch, index)


async def release(store: Store, member: Member, led: log.LeaderRef, *, flushed: bool = True) -> None:
    request = log.ReleasePartitionsRequest(
        session_id=member.session, partitions=[log.ReleasedPartition(leader=led, flushed=flushed)]
    )
    await store.write(lambda tx: leads.release_partitions(tx, request))


async def reserve(store: Store, member: Member, led: log.LeaderRef, until: int) -> None:
    request = log.ReserveOffsetsRequest(
        session_id=member.session, reservations=[log.OffsetReservation(leader=led, until_offset=until)]
    )
    await store.write(lambda tx: leads.reserve_offsets(tx, request))


def segment(base: int, following: int, epoch: int, uid: str = "", **fields: Any) -> log.Segment:
    uid = uid or f"s-{base}-{following}-{epoch}"
    values: dict[str, Any] = {"key": f"objects/{uid}", "bytes": 10 * (following - base)} | fields
    return log.Segment(uid=uid, base_offset=base, next_offset=following, epoch=epoch, **values)


def commit(led: log.LeaderRef, base: int, following: int, uid: str = "", **fields: Any) -> log.SegmentCommit:
    producers = fields.pop("producers", ())
    key = f"{led.partition.topic_uid}-{led.partition.index}"
    made = segment(base, following, led.epoch, uid or f"{key}-{base}-{following}-{led.epoch}", **fields)
    return log.SegmentCommit(leader=led, segment=made, producers=producers)


async def commits(
    store: Store, member: Member, *each: log.SegmentCommit, most_producers: int = segments.DEFAULT_PRODUCERS
) -> None:
    request = log.CommitSegmentsRequest(session_id=member.session, commits=each)
    await store.write(lambda tx: segments.commit_segments(tx, request, most_producers))


async def listed(
    store: Store, made: log.Topic, index: int = 0, from_offset: int = 0, limit: int = 0
) -> list[log.Segment]:
    request = log.ListSegmentsRequest(partition=ref(made, index), from_offset=from_offset, limit=limit)
    return list((await store.read(lambda tx: segments.list_segments(tx, request))).segments)


async def partitions(store: Store, made: log.Topic) -> list[log.Partition]:
    request = log.ListPartitionsRequest(topic=made.name)
    return list((await store.read(lambda tx: topics.list_partitions(tx, request))).partitions)


async def offsets(store: Store, made: log.Topic, index: int = 0) -> tuple[int, int, int]:
    """Log start, committed and reserved."""
    found = (await partitions(store, made))[index].offsets
    return found.log_start, found.committed, found.reserved


async def trim(store: Store, member: Member, led: log.LeaderRef, start: int) -> list[log.Segment]:
    request = log.TrimPartitionsRequest(
        session_id=member.session, trims=[log.PartitionTrim(leader=led, log_start=start)]
    )
    return list((await store.write(lambda tx: segments.trim_partitions(tx, request))).removed)


async def recover(store: Store, name: str, *indexes: int, accept_loss: bool = True) -> Sequence[log.Partition]:
    request = log.RecoverPartitionsRequest(topic=name, partitions=indexes, accept_loss=accept_loss)
    return (await store.write(lambda tx: leads.recover_partitions(tx, request))).partitions


async def start(store: Store, member: Member, led: log.LeaderRef, to: str) -> log.Transfer:
    request = log.StartTransfersRequest(session_id=member.session, offers=[log.TransferOffer(leader=led, to_agent=to)])
    (made,) = (await store.write(lambda tx: handover.start_transfers(tx, request))).transfers
    return made


async def answer(
    store: Store, member: Member, accepted: Iterable[str] = (), rejected: Iterable[str] = (), reason: str = ""
) -> Sequence[log.Transfer]:
    request = log.AnswerTransfersRequest(session_id=member.session, accepted=accepted, rejected=rejected, reason=reason)
    return (await store.write(lambda tx: handover.answer_transfers(tx, request))).transfers


async def complete(
    store: Store, member: Member, completed: Iterable[str] = (), failed: Iterable[str] = (), reason: str = ""
) -> Sequence[log.Transfer]:
    request = log.CompleteTransfersRequest(session_id=member.session, completed=completed, failed=failed, reason=reason)
    return (await store.write(lambda tx: handover.complete_transfers(tx, request))).transfers


async def acquire_group(
    store: Store, member: Member, name: str = "g", rules: TopicRules | None = None
) -> log.AcquireGroupResponse:
    request = log.AcquireGroupRequest(session_id=member.session, group=name)
    return await store.write(lambda tx: groups.acquire_group(tx, request, rules or TopicRules()))


async def changes_since(store: Store, revision: int) -> list[list[Change]]:
    """What each revision after `revision` changed."""
    return [list(each.changes) for each in await store.read(lambda tx: history(tx, revision, 10_000))]


async def revision_of(store: Store) -> int:
    return await store.read(lambda tx: tx.revision)


async def refused(store: Store, operation: Callable[[Tx], object], reason: Reason) -> HeadgateError:
    return await fails(store.write(operation), reason)


async def fails(awaitable: Any, reason: Reason) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        await awaitable
    assert caught.value.reason is reason, caught.value
    return caught.value


def roles(*names: str) -> list[catalog.AgentRole.ValueType]:
    return [catalog.AgentRole.Value(f"AGENT_ROLE_{name}") for name in names]
