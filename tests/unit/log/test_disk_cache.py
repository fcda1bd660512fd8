# ruff: noqa: ASYNC240 - a test may look at its own files
"""The disk cache gives back what was put, within its size, and survives a restart; a broken disk is only a miss."""

from __future__ import annotations

from pathlib import Path

from headgate_agent.log.disk_cache import DiskCache


async def test_ranges_come_back_and_the_least_recently_used_leave_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 250)
    for number in range(2):
        await cache.put(f"k{number}", 0, bytes([number]) * 100)
    assert await cache.get("k0", 0, 100) == b"\0" * 100
    await cache.put("k2", 0, b"\2" * 100)
    assert await cache.get("k1", 0, 100) is None
    assert await cache.get("k0", 0, 100) == b"\0" * 100
    assert cache.size == 200
    assert await cache.get("k0", 1, 99) is None
    assert (cache.hits, cache.misses) == (2, 2)


async def test_another_process_finds_what_is_there_and_nothing_unfinished(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1000)
    await cache.put("k", 5, b"abc")
    (next(tmp_path.rglob("*/*")).parent / "x.unfinished").write_bytes(b"half")
    again = DiskCache(tmp_path, 1000)
    await again.open()
    assert (again.size, await again.get("k", 5, 3)) == (3, b"abc")
    assert not list(tmp_path.rglob("*.unfinished"))


async def test_what_was_damaged_or_removed_is_a_miss(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1000)
    await cache.put("k", 0, b"abc")
    path = next(path for path in tmp_path.rglob("*") if path.is_file())
    path.write_bytes(b"ab")
    assert await cache.get("k", 0, 3) is None
    await cache.put("k", 0, b"abc")
    assert await cache.get("k", 0, 3) == b"abc"
    path.unlink()
    assert await cache.get("k", 0, 3) is None


async def test_something_larger_than_the_cache_is_not_kept(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 10)
    await cache.put("k", 0, b"x" * 11)
    assert cache.size == 0
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
