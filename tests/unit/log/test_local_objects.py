"""An object in the local folder is whole or not there, and is never changed."""

from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headgate_agent.log.local_objects import LocalObjects
from headgate_agent.log.objects import ObjectExists, ObjectMissing, ObjectStoreFailed


async def test_what_was_created_is_read_back_by_range(tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path)
    await objects.create("t/0/1-abc.seg", [b"hello ", b"world"])
    assert await objects.read("t/0/1-abc.seg", 6, 5) == b"world"


async def test_a_key_that_is_taken_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path)
    await objects.create("a/b", [b"first"])
    with pytest.raises(ObjectExists):
        await objects.create("a/b", [b"second"])
    assert await objects.read("a/b", 0, 5) == b"first"


async def test_of_many_creators_of_one_key_exactly_one_wins(tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path)
    outcomes = await asyncio.gather(
        *(objects.create("k/x", [b"%02d" % number]) for number in range(20)), return_exceptions=True
    )
    winners = [number for number, outcome in enumerate(outcomes) if outcome is None]
    assert len(winners) == 1
    assert await objects.read("k/x", 0, 2) == b"%02d" % winners[0]
    assert [found.key async for found in objects.find("")] == ["k/x"]


async def test_reading_what_is_missing_or_too_short_is_an_error(tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path)
    with pytest.raises(ObjectMissing):
        await objects.read("no", 0, 1)
    await objects.create("short", [b"abc"])
    with pytest.raises(ObjectStoreFailed, match="3 bytes"):
        await objects.read("short", 0, 4)


@pytest.mark.parametrize("key", ["../escape", "/absolute", "a/../../b", ""])
async def test_a_key_cannot_leave_the_folder(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="not a key"):
        await LocalObjects(tmp_path / "store").create(key, [b"x"])


async def test_listing_tells_only_finished_objects_under_the_prefix(tmp_path: Path) -> None:
    objects = LocalObjects(tmp_path)
    await objects.create("t/0/a", [b"1"])
    await objects.create("t/1/b", [b"22"])
    (tmp_path / "t/0/.unfinished-1").write_bytes(b"half")
    assert [(found.key, found.size) async for found in objects.find("t/")] == [("t/0/a", 1), ("t/1/b", 2)]
    await objects.delete("t/0/a")
    await objects.delete("t/0/a")
    assert [found.key async for found in objects.find("t/0")] == []


class Hours:
    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now * 3600

    def wall(self) -> datetime:
        return datetime(2000, 1, 1, tzinfo=UTC)


async def test_what_a_crash_left_unfinished_goes_once_it_was_seen_for_long_enough(tmp_path: Path) -> None:
    clock = Hours()
    objects = LocalObjects(tmp_path, unfinished_grace=3600.0, clock=clock)
    await objects.create("topic-1/0/a", [b"1"])
    old, young = (tmp_path / "topic-1/0" / f".unfinished-{name}" for name in ("old", "young"))
    old.write_bytes(b"half")

    async def look(prefix: str = "topic-") -> list[str]:
        return [found.key async for found in objects.find(prefix)]

    assert await look() == ["topic-1/0/a"] and old.exists()
    clock.now = 0.9
    young.write_bytes(b"half")
    assert await look() == ["topic-1/0/a"] and old.exists()
    await look("topic-2/")
    clock.now = 1.1
    assert await look() == ["topic-1/0/a"]
    assert (old.exists(), young.exists()) == (False, True)
    clock.now = 2.0
    await look()
    assert not young.exists()
    assert await objects.read("topic-1/0/a", 0, 1) == b"1"


async def test_a_writer_whose_unfinished_object_went_is_told_that_the_store_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = LocalObjects(tmp_path)
    link = os.link

    def too_late(unfinished: Path, path: Path) -> None:
        unfinished.unlink()
        link(unfinished, path)

    monkeypatch.setattr(os, "link", too_late)
    with pytest.raises(ObjectStoreFailed):
        await objects.create("a", [b"1"])
    assert [found.key async for found in objects.find("")] == []
