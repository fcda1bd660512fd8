"""Remembered requests: a retry gets the first answer again, and only if what it tells of was committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from sqlalchemy import update

from headgate.catalog.v1 import resources_pb2 as pb
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import requests, schema
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import ALREADY_EXISTS, REQUEST_ID_CONFLICT
from tests.integration.catalog.kit import create, names

METHOD = "/headgate.catalog.v1.SourceService/CreateLogicalSource"


def create_once(name: str, request_id: str, method: str = METHOD) -> Callable[[Tx], bytes]:
    """As the API does it: look up, do, remember, in one transaction."""

    def operation(tx: Tx) -> bytes:
        digest = requests.digest_of(pb.LogicalSource(name=name))
        answered = requests.lookup(tx, request_id, method, digest)
        if answered is not None:
            return answered
        answer = create(name)(tx).SerializeToString()
        requests.remember(tx, request_id, method, digest, answer)
        return answer

    return operation


async def test_a_retry_gets_the_first_answer_and_changes_nothing(store: Store) -> None:
    first = await store.write(create_once("a", "r1"))
    again = await asyncio.gather(*(store.write(create_once("a", "r1")) for _ in range(10)))
    assert set(again) == {first}
    assert await store.read(lambda tx: tx.revision) == 1


async def test_another_body_or_method_under_the_same_id_is_refused(store: Store) -> None:
    await store.write(create_once("a", "r1"))
    for other in (create_once("b", "r1"), create_once("a", "r1", METHOD + "2")):
        with pytest.raises(HeadgateError) as caught:
            await store.write(other)
        assert caught.value.reason is REQUEST_ID_CONFLICT
    assert await store.read(names) == ["a"]


async def test_what_failed_is_not_remembered(store: Store) -> None:
    await store.write(create("a"))
    for _ in range(2):
        with pytest.raises(HeadgateError) as caught:
            await store.write(create_once("a", "r1"))
        assert caught.value.reason is ALREADY_EXISTS
    await store.write(create_once("b", "r1"))


async def test_old_answers_are_forgotten_in_bounded_parts(store: Store) -> None:
    for number in range(10):
        await store.write(create_once(f"s{number}", f"r{number}"))
    an_hour_ago = schema.requests.c.time - 3600 * 1_000_000
    old = schema.requests.c.request_id.in_([f"r{number}" for number in range(7)])
    await store.write(lambda tx: tx.connection.execute(update(schema.requests).where(old).values(time=an_hour_ago)))
    removed = [await store.write(lambda tx: requests.forget(tx, 1800.0, 3)) for _ in range(4)]
    assert removed == [3, 3, 1, 0]
    digest = requests.digest_of(pb.LogicalSource(name="s9"))
    assert await store.read(lambda tx: requests.lookup(tx, "r9", METHOD, digest)) is not None
    assert await store.read(lambda tx: requests.lookup(tx, "r0", METHOD, digest)) is None
