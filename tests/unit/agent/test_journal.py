"""The journal of an agent on a real disk."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headgate_agent.errors import JOURNAL_CORRUPT, JOURNAL_UNAVAILABLE
from headgate_agent.fragments.journal import FileJournal
from headgate_common.errors import HeadgateError


async def loaded(path: Path) -> list[bytes]:
    journal = FileJournal(path)
    try:
        return await journal.load()
    finally:
        await journal.close()


async def written(path: Path, *records: bytes) -> None:
    journal = FileJournal(path)
    await journal.load()
    for record in records:
        await journal.append(record)
    await journal.close()


async def test_what_was_appended_is_loaded_in_order(tmp_path: Path) -> None:
    path = tmp_path / "data" / "j"
    await written(path, b"one", b"", b"three" * 1000)
    await written(path, b"four")
    assert await loaded(path) == [b"one", b"", b"three" * 1000, b"four"]


async def test_an_append_is_durable_when_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (synced.append(os.fstat(file).st_size), real(file))[1])
    path = tmp_path / "j"
    journal = FileJournal(path)
    await journal.load()
    await journal.append(b"zero")
    await journal.append(b"one")
    assert synced[-1] == path.stat().st_size and synced[-1] > synced[0]
    await journal.close()


async def test_appends_that_wait_share_one_sync_and_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs: list[None] = []
    real = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda file: (syncs.append(None), real(file))[1])
    journal = FileJournal(tmp_path / "j")
    await journal.load()
    await asyncio.gather(*(journal.append(str(number).encode()) for number in range(200)))
    await journal.close()
    assert len(syncs) < 50
    assert await loaded(tmp_path / "j") == [str(number).encode() for number in range(200)]


@pytest.mark.parametrize("cut", range(1, 20))
async def test_a_record_that_a_crash_cut_short_is_dropped_and_writing_goes_on(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "j"
    await written(path, b"whole", b"cut short..")
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - min(cut, 19))
    assert await loaded(path) == [b"whole"]
    await written(path, b"next")
    assert await loaded(path) == [b"whole", b"next"]


def _size(path: Path) -> int:
    return path.stat().st_size


async def grouped(path: Path, *groups: Sequence[bytes]) -> list[int]:
    """Writes the records of each group at a time. Where the groups end, that of the beginning first."""
    journal, ends = FileJournal(path), []
    await journal.load()
    ends.append(_size(path))
    for group in groups:
        await asyncio.gather(*(journal.append(record) for record in group))
        ends.append(_size(path))
    await journal.close()
    return ends


def torn(group: bytes) -> Iterator[bytes]:
    """What a disk that lost power may show of a write: some blocks of it, with zeros or anything else for the rest."""
    for block in (1, 7, 8, 16, 33):
        blocks = [group[at : at + block] for at in range(0, len(group), block)]
        for number, one in enumerate(blocks):
            for missing in (bytes(len(one)), b"\xa5" * len(one)):
                if missing != one:
                    yield b"".join((*blocks[:number], missing, *blocks[number + 1 :]))
                    yield b"".join((*blocks[:number], *(missing[:1] * len(b) for b in blocks[number:])))
                    yield b"".join((*(missing[:1] * len(b) for b in blocks[: number + 1]), *blocks[number + 1 :]))


async def test_whatever_a_power_failure_left_of_the_last_group_is_dropped_and_writing_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "j"
    # (the group that is torn has records that would be whole by themselves)
    _, start, end = await grouped(path, [b"whole", b"too"], [b"torn", b"x" * 20, b"and torn", b""])
    content = path.read_bytes()
    assert len(content) == end
    tails = [tail for tail in torn(content[start:]) if tail != content[start:]]
    assert len(tails) > 100
    for tail in tails:
        path.write_bytes(content[:start] + tail)
        assert await loaded(path) == [b"whole", b"too"], tail
        assert path.read_bytes() == content[:start]
    await written(path, b"next")
    assert await loaded(path) == [b"whole", b"too", b"next"]


async def test_damage_in_what_was_synced_is_told_and_nothing_is_guessed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    ends = await grouped(path, [b"first", b"group"], [b"second"], [b"third"])
    content = path.read_bytes()
    for position in range(ends[-2]):
        damaged = bytearray(content)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(HeadgateError) as caught:
            await loaded(path)
        assert caught.value.reason is JOURNAL_CORRUPT
        assert path.read_bytes() == bytes(damaged)


async def test_what_a_file_begins_with_was_synced_whatever_is_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = FileJournal(path)
    await journal.load()
    await journal.rewrite([b"all", b"that", b"is known"])
    await journal.close()
    content = path.read_bytes()
    for damaged in (*(content[:size] for size in range(len(content))), content[:-3] + bytes(3)):
        path.write_bytes(damaged)
        with pytest.raises(HeadgateError) as caught:
            await loaded(path)
        assert caught.value.reason is JOURNAL_CORRUPT


async def test_what_a_former_file_left_on_the_disk_is_not_taken_for_a_group(tmp_path: Path) -> None:
    path = tmp_path / "j"
    journal = FileJournal(path)
    await journal.load()
    await journal.append(b"older")
    await journal.append(b"old")
    former = path.read_bytes()
    await journal.rewrite([])
    await journal.append(b"newer")
    size = path.stat().st_size
    await journal.close()
    # Both files have groups at the same places.
    path.write_bytes(path.read_bytes()[:size] + former[size:])
    assert len(former) > size
    assert await loaded(path) == [b"newer"]


async def test_what_is_loaded_is_written_and_synced_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "j"
    _, start, end = await grouped(path, [b"first"], [b"a sync failed behind this"])
    calls: list[tuple[str, int, int]] = []
    write, sync = os.pwrite, os.fdatasync

    def pwrite(file: int, data: bytes, offset: int) -> int:
        calls.append(("write", offset, offset + len(data)))
        return write(file, data, offset)

    def fdatasync(file: int) -> None:
        calls.append(("sync", 0, os.fstat(file).st_size))
        sync(file)

    def fsync(file: int) -> None:
        assert stat.S_ISDIR(os.fstat(file).st_mode)
        calls.append(("name", 0, 0))

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(os, "fdatasync", fdatasync)
    monkeypatch.setattr(os, "fsync", fsync)
    assert await loaded(path) == [b"first", b"a sync failed behind this"]
    assert calls == [("write", start, end), ("sync", 0, end), ("name", 0, 0)]


async def test_after_a_rename_that_is_not_durable_nothing_is_accepted_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(tmp_path / "j")
    await journal.load()
    await journal.append(b"old")
    real = os.fsync

    def no_folders(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(5, "Input/output error")
        real(file)

    monkeypatch.setattr(os, "fsync", no_folders)
    with pytest.raises(HeadgateError) as caught:
        await journal.rewrite([b"new"])
    assert caught.value.reason is JOURNAL_UNAVAILABLE
    assert journal.broken.is_set()
    with pytest.raises(HeadgateError):
        await journal.append(b"more")
    await journal.close()


async def test_what_waits_while_a_rewrite_fails_for_good_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(tmp_path / "j")
    await journal.load()
    real, goes_on = os.fsync, threading.Event()

    def no_folders(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            goes_on.wait(30)
            raise OSError(5, "Input/output error")
        real(file)

    monkeypatch.setattr(os, "fsync", no_folders)
    rewriting = asyncio.create_task(journal.rewrite([b"new"]))
    await asyncio.sleep(0.01)
    waiting = asyncio.create_task(journal.append(b"more"))
    await asyncio.sleep(0.01)
    goes_on.set()
    for task in (rewriting, waiting):
        with pytest.raises(HeadgateError) as caught:
            await task
        assert caught.value.reason is JOURNAL_UNAVAILABLE
    await journal.close()


async def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(b"something else altogether, and long enough")
    with pytest.raises(HeadgateError) as caught:
        await loaded(path)
    assert caught.value.reason is JOURNAL_CORRUPT


async def test_a_rewrite_replaces_everything_and_writing_goes_on(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "j")
    await journal.load()
    for number in range(100):
        await journal.append(b"x" * number)
    before = (tmp_path / "j").stat().st_size
    await journal.rewrite([b"a", b"b"])
    assert (tmp_path / "j").stat().st_size < before
    await journal.append(b"c")
    await journal.close()
    assert await loaded(tmp_path / "j") == [b"a", b"b", b"c"]


async def test_a_crash_before_the_new_file_has_its_name_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(tmp_path / "j")
    await journal.load()
    await journal.append(b"old")

    def crash(self: Path, target: Path) -> None:
        raise OSError(5, "crash")

    monkeypatch.setattr(Path, "replace", crash)
    with pytest.raises(HeadgateError):
        await journal.rewrite([b"new"])
    monkeypatch.undo()
    await journal.append(b"more")
    await journal.close()
    assert await loaded(tmp_path / "j") == [b"old", b"more"]


async def test_a_full_disk_refuses_the_append_and_leaves_the_journal_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(tmp_path / "j")
    await journal.load()
    await journal.append(b"one")
    real = os.pwrite

    def half(file: int, data: bytes, offset: int) -> int:
        real(file, data[:3], offset)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", half)
    with pytest.raises(HeadgateError) as caught:
        await journal.append(b"two")
    assert caught.value.reason is JOURNAL_UNAVAILABLE
    monkeypatch.undo()
    await journal.append(b"three")
    await journal.close()
    assert not journal.broken.is_set()
    assert await loaded(tmp_path / "j") == [b"one", b"three"]


async def test_after_a_failed_sync_nothing_is_accepted_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = FileJournal(tmp_path / "j")
    await journal.load()

    def fail(file: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(HeadgateError):
        await journal.append(b"one")
    monkeypatch.undo()
    assert journal.broken.is_set()
    with pytest.raises(HeadgateError):
        await journal.append(b"two")
    await journal.close()


async def test_what_a_caller_gave_up_on_is_written_before_the_journal_is_closed(tmp_path: Path) -> None:
    journal = FileJournal(tmp_path / "j")
    await journal.load()
    giving_up = asyncio.ensure_future(journal.append(b"one"))
    await asyncio.sleep(0)
    giving_up.cancel()
    await asyncio.gather(giving_up, return_exceptions=True)
    await journal.close()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    assert await loaded(tmp_path / "j") == [b"one"]
