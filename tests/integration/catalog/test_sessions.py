"""Sessions and grants: one holder at a time, epochs that only grow, and expiry only by what an observer saw."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

import pytest

from headgate_common.errors import HeadgateError, Reason
from headgate_coordinator.catalog import sessions
from headgate_coordinator.catalog.sessions import Session
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import GRANT_CONFLICT, SESSION_EXPIRED, STALE_EPOCH
from tests.integration.catalog.kit import Databases, create, names

T = TypeVar("T")


async def opened(store: Store, holder: str) -> Session:
    return await store.write(lambda tx: sessions.open_session(tx, holder, f"{holder}:7000", 3.0))


async def refused(store: Store, operation: Callable[[Tx], object], reason: Reason) -> HeadgateError:
    with pytest.raises(HeadgateError) as caught:
        await store.write(operation)
    assert caught.value.reason is reason
    return caught.value


async def test_renewals_are_counted_until_the_session_ends(store: Store) -> None:
    session = await opened(store, "one")
    assert await store.write(lambda tx: sessions.renew(tx, session.uid)) == 1
    assert await store.write(lambda tx: sessions.renew(tx, session.uid)) == 2
    assert [each.renewals for each in await store.read(sessions.list_sessions)] == [2]
    await store.write(lambda tx: sessions.close(tx, session.uid))
    await refused(store, lambda tx: sessions.renew(tx, session.uid), SESSION_EXPIRED)
    assert await store.write(lambda tx: sessions.close(tx, session.uid)) == []


async def test_a_grant_has_one_holder_and_the_other_is_told_who(store: Store) -> None:
    one, two = await opened(store, "one"), await opened(store, "two")
    assert await store.write(lambda tx: sessions.acquire(tx, "topic", "t", one.uid)) == 1
    assert await store.write(lambda tx: sessions.acquire(tx, "topic", "t", one.uid)) == 1, "held already"
    error = await refused(store, lambda tx: sessions.acquire(tx, "topic", "t", two.uid), GRANT_CONFLICT)
    assert error.metadata == {"holder": "one", "address": "one:7000", "epoch": "1"}
    assert await store.write(lambda tx: sessions.acquire(tx, "topic", "other", two.uid)) == 1
    await refused(store, lambda tx: sessions.acquire(tx, "topic", "new", "session-unknown"), SESSION_EXPIRED)


async def test_epochs_only_grow_over_release_transfer_close_and_expiry(store: Store) -> None:
    one, two = await opened(store, "one"), await opened(store, "two")
    epochs = [await store.write(lambda tx: sessions.acquire(tx, "topic", "t", one.uid))]
    await store.write(lambda tx: sessions.release(tx, "topic", "t", epochs[-1], one.uid))
    epochs.append(await store.write(lambda tx: sessions.acquire(tx, "topic", "t", one.uid)))
    epochs.append(await store.write(lambda tx: sessions.transfer(tx, "topic", "t", epochs[-1], one.uid, to=two.uid)))
    epochs.append(await store.write(lambda tx: sessions.transfer(tx, "topic", "t", epochs[-1], two.uid, to=two.uid)))
    released = await store.write(lambda tx: sessions.close(tx, two.uid))
    assert [(grant.kind, grant.key, grant.epoch) for grant in released] == [("topic", "t", epochs[-1])]
    epochs.append(await store.write(lambda tx: sessions.acquire(tx, "topic", "t", one.uid)))
    assert await store.write(lambda tx: sessions.expire(tx, one.uid, 0)) is not None
    three = await opened(store, "three")
    epochs.append(await store.write(lambda tx: sessions.acquire(tx, "topic", "t", three.uid)))
    assert epochs == [1, 2, 3, 4, 5, 6]


async def test_what_a_former_holder_does_is_refused_in_the_transaction_of_its_effect(store: Store) -> None:
    one, two = await opened(store, "one"), await opened(store, "two")
    epoch = await store.write(lambda tx: sessions.acquire(tx, "job", "j", one.uid))

    def effect(by: Session, epoch: int, name: str) -> Callable[[Tx], None]:
        def operation(tx: Tx) -> None:
            create(name)(tx)
            sessions.verify(tx, "job", "j", epoch, by.uid)

        return operation

    await store.write(effect(one, epoch, "first"))
    await refused(store, effect(two, epoch, "thief"), STALE_EPOCH)
    newer = await store.write(lambda tx: sessions.transfer(tx, "job", "j", epoch, one.uid, to=two.uid))
    error = await refused(store, effect(one, epoch, "late"), STALE_EPOCH)
    assert error.metadata == {"epoch": str(newer), "holder": "two", "address": "two:7000"}
    await refused(store, lambda tx: sessions.release(tx, "job", "j", epoch, one.uid), STALE_EPOCH)
    await refused(store, lambda tx: sessions.transfer(tx, "job", "j", epoch, one.uid, to=one.uid), STALE_EPOCH)
    await refused(store, lambda tx: sessions.verify(tx, "job", "unknown", 1, one.uid), STALE_EPOCH)
    await store.write(effect(two, newer, "second"))
    assert await store.read(names) == ["first", "second"]


async def test_a_renewal_in_the_last_moment_beats_the_observer(store: Store) -> None:
    session = await opened(store, "one")
    epoch = await store.write(lambda tx: sessions.acquire(tx, "topic", "t", session.uid))
    await store.write(lambda tx: sessions.renew(tx, session.uid))
    assert await store.write(lambda tx: sessions.expire(tx, session.uid, 0)) is None
    await store.read(lambda tx: sessions.verify(tx, "topic", "t", epoch, session.uid))
    ended = await store.write(lambda tx: sessions.expire(tx, session.uid, 1))
    assert ended is not None
    assert [grant.key for grant in ended] == ["t"]
    await refused(store, lambda tx: sessions.verify(tx, "topic", "t", epoch, session.uid), STALE_EPOCH)
    assert await store.write(lambda tx: sessions.expire(tx, session.uid, 1)) is None


async def test_of_many_that_reach_for_a_grant_at_once_one_gets_it(databases: Databases) -> None:
    first, second = await databases.open(), await databases.open()
    held = [await opened(first, f"h{number}") for number in range(16)]

    def reach(session: Session) -> Callable[[Tx], int]:
        return lambda tx: sessions.acquire(tx, "coordinator", "leader", session.uid)

    answers = await asyncio.gather(
        *((first, second)[number % 2].write(reach(session)) for number, session in enumerate(held)),
        return_exceptions=True,
    )
    assert [answer for answer in answers if isinstance(answer, int)] == [1]
    refusals = [answer.reason for answer in answers if isinstance(answer, HeadgateError)]
    assert refusals == [GRANT_CONFLICT] * 15


async def test_grants_of_a_session_are_listed_and_an_unheld_one_keeps_its_epoch(store: Store) -> None:
    session = await opened(store, "one")
    for key in ("b", "a"):
        await store.write(lambda tx, key=key: sessions.acquire(tx, "topic", key, session.uid))  # type: ignore[misc]
    assert [grant.key for grant in await store.read(lambda tx: sessions.list_grants(tx, session.uid))] == ["a", "b"]
    await store.write(lambda tx: sessions.release(tx, "topic", "a", 1, session.uid))
    grant = await store.read(lambda tx: sessions.get_grant(tx, "topic", "a"))
    assert grant is not None
    assert (grant.epoch, grant.session, grant.holder) == (1, "", "")
    assert await store.read(lambda tx: sessions.get_grant(tx, "topic", "never")) is None
