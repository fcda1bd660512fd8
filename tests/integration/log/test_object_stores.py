"""One contract for every object store: the local folder, memory, and S3 on a real MinIO."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from headgate_agent.log.guarded_objects import GuardedObjects
from headgate_agent.log.local_objects import LocalObjects
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.objects import ObjectExists, ObjectMissing, Objects, ObjectStoreFailed, StoredObject
from headgate_agent.log.remote_objects import RemoteObjects, remote_objects
from headgate_agent.log.store_identity import identity
from headgate_common.backoff import Backoff
from headgate_common.ids import RandomIds
from tests.servers.minio import Bucket


def s3(bucket: Bucket, timeout: float = 10.0) -> RemoteObjects:
    options = {
        "endpoint": bucket.endpoint,
        "region": bucket.region,
        "access_key_id": bucket.access_key,
        "secret_access_key": bucket.secret_key,
        "allow_http": "true",
    }
    return remote_objects(f"s3://{bucket.name}/log", options, timeout)


@pytest.fixture(params=["folder", "memory", pytest.param("s3", marks=pytest.mark.minio)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "folder":
        return LocalObjects(tmp_path)
    if request.param == "memory":
        return remote_objects("memory://", {}, 10.0)
    return s3(request.getfixturevalue("minio"))


async def test_an_object_is_created_once_read_by_range_found_and_deleted(store: Objects) -> None:
    await store.create("topic-1/0/a", [b"0123", b"456789"])
    with pytest.raises(ObjectExists):
        # Of the same size: what is there is what an earlier attempt has put there.
        await store.create("topic-1/0/a", [b"0123456789"])
    assert await store.read("topic-1/0/a", 2, 5) == b"23456"
    await store.create("topic-2/0/b", [b"x"])
    with pytest.raises(ObjectExists):
        await store.create("topic-1/0/a", [b"of another size"])
    await store.create("topic-1/0/ab/c", [b"y"])
    found = [one async for one in store.find("topic-1/")]
    assert sorted((one.key, one.size) for one in found) == [("topic-1/0/a", 10), ("topic-1/0/ab/c", 1)]
    assert [one.key async for one in store.find("topic-1/0/ab/")] == ["topic-1/0/ab/c"]
    assert sorted([one.key async for one in store.find("topic-1/0/a")]) == ["topic-1/0/a", "topic-1/0/ab/c"]
    assert [one.key async for one in store.find("topic-9/0/")] == []
    await store.delete("topic-1/0/ab/c")
    await store.delete("topic-1/0/a")
    await store.delete("topic-1/0/a")
    with pytest.raises(ObjectMissing):
        await store.read("topic-1/0/a", 0, 1)
    assert [one.key async for one in store.find("")] == ["topic-2/0/b"]


async def test_only_one_of_many_creates_of_a_key_succeeds(store: Objects) -> None:
    async def create(number: int) -> bool:
        try:
            await store.create("topic-1/0/contended", [b"%d" % number])
        except (ObjectExists, ObjectStoreFailed):
            return False
        return True

    done = await asyncio.gather(*(create(number) for number in range(8)))
    assert sum(done) == 1
    assert await store.read("topic-1/0/contended", 0, 1) == b"%d" % done.index(True)


async def test_bytes_beyond_the_end_are_an_error_and_not_a_short_answer(store: Objects) -> None:
    await store.create("topic-1/0/short", [b"abc"])
    with pytest.raises(ObjectStoreFailed):
        await store.read("topic-1/0/short", 0, 10)


async def test_a_store_that_is_away_fails_and_does_not_hang() -> None:
    nowhere = Bucket("http://127.0.0.1:9", "bucket")
    store = s3(nowhere, timeout=1.0)
    with pytest.raises(ObjectStoreFailed):
        await asyncio.wait_for(store.create("k", [b"x"]), 30)
    with pytest.raises(ObjectStoreFailed):
        await asyncio.wait_for(store.read("k", 0, 1), 30)


async def test_a_conflict_without_an_object_is_a_failure_to_be_tried_again() -> None:
    """A store may answer that a key is taken while a write to it is under way, which may yet fail."""

    class Conflicting(RemoteObjects):
        async def _size(self, key: str) -> int | None:
            return None

    store = Conflicting(remote_objects("memory://", {}, 1.0)._store)
    await store.create("k", [b"x"])
    with pytest.raises(ObjectStoreFailed, match="conflict"):
        await store.create("k", [b"x"])


async def test_a_store_has_one_identity_for_all_who_ask(store: Objects) -> None:
    asked = await asyncio.gather(
        *(identity(store, RandomIds(random.Random(seed)), random.Random(seed)) for seed in range(5))
    )
    assert len(set(asked)) == 1 and asked[0].startswith("store-")
    assert await identity(store, RandomIds(random.Random(9)), random.Random(9)) == asked[0]


def test_an_unknown_option_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="cannot be used"):
        remote_objects("s3://bucket", {"no_such_option": "x"}, 1.0)


class Flaky:
    """Fails so many reads, then answers; counts what runs at once."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.running = self.most = 0
        self.hang = False

    async def create(self, key: str, buffers: Sequence[bytes]) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.001)
        self.running -= 1
        if self.hang:
            await asyncio.Event().wait()

    async def read(self, key: str, start: int, length: int) -> bytes:
        if self.failures:
            self.failures -= 1
            raise ObjectStoreFailed("503 Slow Down")
        return b"x" * length

    async def delete(self, key: str) -> None:
        raise ObjectStoreFailed("503 Slow Down")

    async def find(self, prefix: str) -> AsyncIterator[StoredObject]:
        for _ in ():
            yield _


def guarded(inner: Flaky, registry: CollectorRegistry | None = None) -> GuardedObjects:
    metrics = LogMetrics(registry or CollectorRegistry())
    backoff = Backoff(initial=0.001, cap=0.002)
    return GuardedObjects(inner, metrics, uploads=3, reads=3, timeout=0.5, source=random.Random(1), backoff=backoff)


async def test_uploads_at_once_are_bounded() -> None:
    inner = Flaky(0)
    store = guarded(inner)
    await asyncio.gather(*(store.create(f"k{number}", [b"x"]) for number in range(20)))
    assert inner.most == 3


async def test_reads_are_tried_again_and_in_the_end_fail() -> None:
    registry = CollectorRegistry()
    assert await guarded(Flaky(3), registry).read("k", 0, 2) == b"xx"
    labels = {"operation": "read", "outcome": "ObjectStoreFailed"}
    assert registry.get_sample_value("headgate_log_object_requests_total", labels) == 3
    with pytest.raises(ObjectStoreFailed):
        await guarded(Flaky(4)).read("k", 0, 2)


async def test_a_request_has_a_deadline() -> None:
    inner = Flaky(0)
    inner.hang = True
    with pytest.raises(ObjectStoreFailed, match="no answer"):
        await guarded(inner).create("k", [b"x"])
