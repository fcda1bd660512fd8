"""An object in the local folder is whole or not there, and is never changed."""

from __future__ import annotations

import asyncio
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
