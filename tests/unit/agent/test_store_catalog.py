"""The catalog that an object store is of."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from headgate_agent.errors import CATALOG_MISMATCH
from headgate_agent.log.local_objects import LocalObjects
from headgate_agent.log.objects import ObjectStoreFailed
from headgate_agent.log.store_identity import StorePatience, catalog_of, claim, identity, still_of
from headgate_common.backoff import Backoff
from headgate_common.errors import HeadgateError
from headgate_common.ids import RandomIds

ONE, TWO = (RandomIds().uid("catalog") for _ in range(2))


class Failing(LocalObjects):
    """Fails so many times."""

    failures = 0

    async def read(self, key: str, start: int, length: int) -> bytes:
        if self.failures:
            self.failures -= 1
            raise ObjectStoreFailed("it is away")
        return await super().read(key, start, length)


@pytest.fixture
def objects(tmp_path: Path) -> Failing:
    return Failing(tmp_path)


async def test_a_store_is_of_the_first_catalog_that_claims_it(objects: Failing) -> None:
    assert await catalog_of(objects) == ""
    await claim(objects, ONE, random.Random())
    await claim(objects, ONE, random.Random())
    assert await catalog_of(objects) == ONE


async def test_of_catalogs_that_claim_a_store_at_once_one_gets_it(objects: Failing) -> None:
    claims = [claim(objects, uid, random.Random()) for uid in (ONE, TWO) * 5]
    outcomes = await asyncio.gather(*claims, return_exceptions=True)
    assert {outcome is None for outcome in outcomes[::2]} != {outcome is None for outcome in outcomes[1::2]}
    assert await catalog_of(objects) == (ONE if outcomes[0] is None else TWO)


async def test_a_store_of_another_catalog_is_refused_and_left_as_it_is(objects: Failing) -> None:
    await claim(objects, ONE, random.Random())
    await objects.create("topic-x", [b"records"])
    with pytest.raises(HeadgateError) as refused:
        await claim(objects, TWO, random.Random())
    assert refused.value.reason is CATALOG_MISMATCH
    assert "--adopt-catalog" in refused.value.message
    assert await catalog_of(objects) == ONE
    assert await objects.read("topic-x", 0, 7) == b"records"


async def test_a_store_of_another_catalog_may_be_adopted(objects: Failing) -> None:
    before = await identity(objects, RandomIds(), random.Random())
    await claim(objects, ONE, random.Random())
    await claim(objects, TWO, random.Random(), adopt=True)
    assert await catalog_of(objects) == TWO
    assert await identity(objects, RandomIds(), random.Random()) == before, "it is the same store"


async def test_a_store_that_does_not_answer_is_waited_for_and_never_taken_for_unmarked(objects: Failing) -> None:
    await claim(objects, ONE, random.Random())
    objects.failures = 1
    assert await catalog_of(objects) == ""
    objects.failures = 20
    soon = StorePatience(backoff=Backoff(initial=0.001, cap=0.01))
    with pytest.raises(HeadgateError):
        await claim(objects, TWO, random.Random(), patience=soon)
    assert objects.failures == 0


async def test_an_agent_starts_without_a_store_that_does_not_answer_in_its_time(objects: Failing) -> None:
    soon = StorePatience(attempts=3, backoff=Backoff(initial=0.001, cap=0.01))
    objects.failures = 3
    assert await identity(objects, RandomIds(), random.Random(), soon) == ""
    assert objects.failures == 0
    objects.failures = 2
    assert await identity(objects, RandomIds(), random.Random(), soon) != ""


async def test_a_store_stays_of_its_catalog_until_another_has_taken_it(objects: Failing) -> None:
    await still_of(objects, ONE)
    assert await catalog_of(objects) == "", "looking claims nothing"
    await claim(objects, ONE, random.Random())
    await still_of(objects, ONE)
    objects.failures = 1
    with pytest.raises(ObjectStoreFailed):
        await still_of(objects, ONE)
    await claim(objects, TWO, random.Random(), adopt=True)
    with pytest.raises(HeadgateError) as refused:
        await still_of(objects, ONE)
    assert refused.value.reason is CATALOG_MISMATCH
    await still_of(objects, TWO)
