"""The journal of an agent on a real disk."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from headgate_agent.errors import JOURNAL_CORRUPT, JOURNAL_UNAVAILABLE
from headgate_agent.fragments.journal import MAGIC, FileJournal
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
    journal = FileJournal(tmp_path / "j")
    await journal.load()
    await journal.append(b"one")
    assert synced[-1] == len(MAGIC) + 8 + 3
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


async def test_damage_before_other_records_is_told_and_nothing_is_guessed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    await written(path, b"first", b"second")
    content = bytearray(path.read_bytes())
    content[len(MAGIC) + 8] ^= 1
    path.write_bytes(content)
    with pytest.raises(HeadgateError) as caught:
        await loaded(path)
    assert caught.value.reason is JOURNAL_CORRUPT


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
