"""Nothing that the write-ahead log has answered is lost, and nothing comes back damaged."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_agent.log.wal import Fixed, Frame, Wal, WalRefused, WalStopped
from headgate_agent.log.wal_files import DiskFiles
from tests.examples import examples


class HostileFiles:
    """Files in memory that fail when told to, after having written a part. As many as `spares` are written over."""

    def __init__(self, spares: int = 0) -> None:
        self.files: dict[int, bytearray] = {}
        self.synced: set[int] = set()
        self.fail_writes: list[int] = []
        self.fail_cuts = 0
        self.syncs = 0
        self.most_spares = spares
        self.spares: list[bytearray] = []

    async def numbers(self) -> Sequence[int]:
        return sorted(self.files)

    async def read(self, number: int) -> bytes:
        return bytes(self.files[number])

    async def create(self, number: int) -> None:
        assert number not in self.files
        self.files[number] = self.spares.pop() if self.spares else bytearray()

    async def write(self, number: int, position: int, buffers: Sequence[bytes]) -> None:
        await asyncio.sleep(0)
        data = b"".join(buffers)
        self.synced.discard(number)
        written = data[: self.fail_writes.pop(0)] if self.fail_writes else data
        self.files[number][position : position + len(written)] = written
        if written is not data:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.synced.add(number)
        self.syncs += 1

    async def cut(self, number: int, size: int) -> None:
        if self.fail_cuts:
            self.fail_cuts -= 1
            raise OSError(errno.EIO, "Input/output error")
        del self.files[number][size:]
        self.synced.add(number)

    async def remove(self, number: int) -> None:
        removed = self.files.pop(number)
        if len(self.spares) < self.most_spares:
            self.spares.append(removed)


def entry(head: bytes, body: list[bytes]) -> Fixed:
    return Fixed(Frame(1, head, body))


async def bodies(files: HostileFiles) -> list[bytes]:
    return [entry.body for entry in await Wal(files).recover()]


async def test_entries_come_back_in_order_over_several_files() -> None:
    files = HostileFiles()
    wal = Wal(files, file_bytes=200)
    assert await wal.recover() == []
    for number in range(50):
        await wal.append(entry(b"head", [b"body-%d" % number]))
    assert len(files.files) > 3
    entries = await Wal(files).recover()
    assert [entry.body for entry in entries] == [b"body-%d" % number for number in range(50)]
    assert {entry.head for entry in entries} == {b"head"}
    assert [entry.sequence for entry in entries] == list(range(1, 51))


async def test_concurrent_appends_share_syncs() -> None:
    files = HostileFiles()
    wal = Wal(files)
    await wal.recover()
    await asyncio.gather(*(wal.append(entry(b"", [b"%d" % number])) for number in range(500)))
    assert files.syncs < 10
    assert len(await bodies(files)) == 500


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 400), st.integers(1, 20))
def test_a_torn_tail_costs_only_what_was_not_answered(cut: int, count: int) -> None:
    async def scenario() -> None:
        files = HostileFiles()
        wal = Wal(files)
        await wal.recover()
        for number in range(count):
            await wal.append(entry(b"h", [b"answered-%d" % number]))
        whole = len(files.files[1])
        await wal.append(entry(b"h", [b"torn" * 100]))
        del files.files[1][whole + cut :]
        found = await bodies(files)
        assert found[:count] == [b"answered-%d" % number for number in range(count)]
        assert found[count:] in ([], [b"torn" * 100])

    asyncio.run(scenario())


async def test_what_is_recovered_is_synced_though_its_process_died_before_it_could() -> None:
    files = HostileFiles()
    wal = Wal(files)
    await wal.recover()
    await wal.append(entry(b"h", [b"written"]))
    files.synced.clear()
    assert await bodies(files) == [b"written"]
    assert 1 in files.synced


async def test_damage_in_an_older_file_is_not_taken_for_a_torn_tail() -> None:
    files = HostileFiles()
    wal = Wal(files, file_bytes=100)
    await wal.recover()
    for number in range(10):
        await wal.append(entry(b"", [b"x" * 40 + b"%d" % number]))
    files.files[2][10] ^= 0xFF
    with pytest.raises(WalStopped, match="damaged"):
        await Wal(files).recover()


@settings(max_examples=examples(100), deadline=None)
@given(st.data())
@pytest.mark.slow
def test_damage_in_the_last_file_is_not_taken_for_a_torn_tail_either(data: st.DataObject) -> None:
    """Whatever was synced before the last write began may have been acknowledged."""
    sizes = data.draw(st.lists(st.integers(1, 3), min_size=2, max_size=5), "entries of each write")

    async def scenario() -> None:
        files = HostileFiles()
        wal = Wal(files)
        await wal.recover()
        for size in sizes:
            last = len(files.files[1])
            await asyncio.gather(*(wal.append(entry(b"head", [b"\0\1" * number])) for number in range(size)))
        at = data.draw(st.integers(0, last - 1), "the damaged byte")
        files.files[1][at] ^= data.draw(st.integers(1, 255), "the damage")
        # (a mark that is damaged looks like another format)
        with pytest.raises(WalStopped, match=r"damaged|not of this version"):
            await Wal(files).recover()

    asyncio.run(scenario())


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 4), st.data())
def test_a_last_write_whose_blocks_came_in_any_order_is_torn(size: int, data: st.DataObject) -> None:
    async def scenario() -> None:
        files = HostileFiles()
        wal = Wal(files)
        await wal.recover()
        await wal.append(entry(b"", [b"answered"]))
        before = len(files.files[1])
        await asyncio.gather(*(wal.append(entry(b"head", [b"torn-%d" % number])) for number in range(size)))
        missing = data.draw(st.integers(8, len(files.files[1]) - before))
        files.files[1][before : before + missing] = bytes(missing)
        assert await bodies(files) == [b"answered"]

    asyncio.run(scenario())


async def test_a_missing_file_is_noticed() -> None:
    files = HostileFiles()
    wal = Wal(files, file_bytes=100)
    await wal.recover()
    for number in range(10):
        await wal.append(entry(b"", [b"x" * 40 + b"%d" % number]))
    del files.files[3]
    with pytest.raises(WalStopped, match="missing"):
        await Wal(files).recover()


async def test_a_full_disk_refuses_the_entry_and_the_next_one_works() -> None:
    files = HostileFiles()
    wal = Wal(files)
    await wal.recover()
    await wal.append(entry(b"", [b"before"]))
    files.fail_writes = [5]
    with pytest.raises(WalRefused, match="No space left"):
        await wal.append(entry(b"", [b"refused"]))
    await wal.append(entry(b"", [b"after"]))
    assert await bodies(files) == [b"before", b"after"]


async def test_a_failure_that_cannot_be_undone_stops_the_log() -> None:
    files = HostileFiles()
    wal = Wal(files)
    await wal.recover()
    await wal.append(entry(b"", [b"before"]))
    files.fail_writes, files.fail_cuts = [5], 1
    with pytest.raises(WalStopped):
        await wal.append(entry(b"", [b"lost"]))
    with pytest.raises(WalStopped):
        await wal.append(entry(b"", [b"also"]))
    assert await bodies(files) == [b"before"]


class Counting:
    """An entry that says how many were written before it: what `undo` must make true again after a failure."""

    def __init__(self, counter: list[int]) -> None:
        self.counter = counter

    def build(self) -> Frame:
        self.counter[0] += 1
        return Frame(1, b"", [b"%d" % self.counter[0]])

    def written(self, file: int) -> None:
        assert file > 0

    def undo(self) -> None:
        self.counter[0] -= 1


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 30), max_size=6), st.lists(st.integers(1, 5), min_size=1, max_size=8))
def test_what_is_written_after_a_failure_leaves_no_gap(failures: list[int], groups: list[int]) -> None:
    async def scenario() -> None:
        files, counter = HostileFiles(), [0]
        wal = Wal(files)
        await wal.recover()
        files.fail_writes = list(failures)
        appends = []
        for size in groups:
            appends += [asyncio.ensure_future(wal.append(Counting(counter))) for _ in range(size)]
            await asyncio.sleep(0)
        outcomes = await asyncio.gather(*appends, return_exceptions=True)
        written = sum(isinstance(outcome, int) for outcome in outcomes)
        assert await bodies(files) == [b"%d" % number for number in range(1, written + 1)]

    asyncio.run(scenario())


async def test_an_entry_that_cannot_be_built_fails_alone() -> None:
    class Broken:
        def build(self) -> Frame:
            raise ValueError("out of order")

        def written(self, file: int) -> None:
            raise AssertionError("nothing was written")

        def undo(self) -> None:
            raise AssertionError("nothing to undo")

    files = HostileFiles()
    wal = Wal(files)
    await wal.recover()
    outcomes = await asyncio.gather(
        wal.append(entry(b"", [b"a"])), wal.append(Broken()), wal.append(entry(b"", [b"b"])), return_exceptions=True
    )
    assert isinstance(outcomes[1], ValueError)
    assert await bodies(files) == [b"a", b"b"]


async def test_a_cancelled_append_does_not_disturb_the_others() -> None:
    files = HostileFiles()
    wal = Wal(files)
    await wal.recover()
    first = asyncio.ensure_future(wal.append(entry(b"", [b"one"])))
    second = asyncio.ensure_future(wal.append(entry(b"", [b"two"])))
    await asyncio.sleep(0)
    first.cancel()
    await second
    assert b"two" in await bodies(files)


async def test_old_files_go_when_they_are_no_longer_needed() -> None:
    files = HostileFiles()
    wal = Wal(files, file_bytes=100)
    await wal.recover()
    last = 0
    for number in range(10):
        last = await wal.append(entry(b"", [b"x" * 40 + b"%d" % number]))
    await wal.remove_before(last)
    assert min(files.files) == last
    await wal.append(entry(b"", [b"more"]))
    assert (await bodies(files))[-1] == b"more"


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=60), st.integers(0, 3), st.sampled_from([40, 41, 90]))
def test_what_a_former_file_left_never_comes_back(sizes: list[int], kept: int, length: int) -> None:
    """Entries of one size lie where those of the file before lay, so that only their number tells them apart."""

    async def scenario() -> None:
        files = HostileFiles(spares=2)
        wal = Wal(files, file_bytes=400)
        await wal.recover()
        written: list[tuple[int, bytes]] = []
        for number, size in enumerate(sizes):
            body = b"%d" % number + b"." * (length * size)
            written.append((await wal.append(entry(b"", [body])), body))
            await wal.remove_before(wal.current_file - kept)
        needed = [body for file, body in written if file in files.files]
        assert await bodies(files) == needed
        assert await bodies(files) == needed, "the second recovery finds what the first one left"

    asyncio.run(scenario())


async def test_a_file_that_was_begun_over_another_and_not_written_is_empty() -> None:
    files = HostileFiles(spares=1)
    wal = Wal(files, file_bytes=100)
    await wal.recover()
    for number in range(3):
        await wal.append(entry(b"", [b"x" * 60 + b"%d" % number]))
    await wal.remove_before(3)
    await files.create(4)
    assert files.files[4], "it holds what file 1 or 2 held"
    assert await bodies(files) == [b"x" * 60 + b"2"]


async def test_a_torn_beginning_is_nothing_and_another_format_is_not_taken_for_it() -> None:
    files = HostileFiles()
    files.files[1] = bytearray(b"hgw" + bytes(40))
    assert await bodies(files) == []
    files.files = {1: bytearray(b"\0\0\1\2" + b"an entry of a former version")}
    with pytest.raises(WalStopped, match="not of this version"):
        await bodies(files)


def found(folder: Path, pattern: str) -> list[int]:
    """The inodes of files."""
    return [path.stat().st_ino for path in folder.glob(pattern)]


async def test_files_on_a_disk_are_written_over_and_spares_end_with_their_process(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path, spares=1)
    wal = Wal(files, file_bytes=1000)
    await wal.recover()
    inodes: list[int] = []
    for number in range(12):
        await wal.append(entry(b"", [b"%d" % number * 600]))
        await wal.remove_before(wal.current_file)
        inodes += found(tmp_path, "*.wal")
        assert len(found(tmp_path, "*.spare")) <= 1
    assert len(inodes) == 12
    assert len(set(inodes)) == 2
    await wal.close()
    files.close()
    again = DiskFiles(tmp_path)
    assert [entry.body for entry in await Wal(again).recover()] == [b"11" * 600]
    assert found(tmp_path, "*.spare") == []
    again.close()


@pytest.mark.parametrize("spares", [0, 1])
async def test_a_folder_that_could_not_be_synced_is_tried_again_and_writes_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spares: int
) -> None:
    files = DiskFiles(tmp_path, spares=spares)
    wal = Wal(files, file_bytes=1000)
    await wal.recover()
    for number in range(3):
        await wal.append(entry(b"", [b"%d" % number * 600]))
        await wal.remove_before(wal.current_file)
    full = wal.current_file

    def fail() -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(files, "_sync_folder", fail)
        for body in (b"x" * 600, b"small", b"x" * 600):
            with pytest.raises(WalRefused):
                await wal.append(entry(b"", [body]))
    assert wal.current_file == full
    for body in (b"small", b"y" * 600):
        await wal.append(entry(b"", [body]))
    assert wal.current_file == full + 1
    await wal.close()
    files.close()
    again = DiskFiles(tmp_path)
    assert [entry.body for entry in await Wal(again).recover()] == [b"2" * 600, b"small", b"y" * 600]
    again.close()


async def test_a_file_whose_successor_may_be_there_is_not_written_to_again() -> None:
    files = HostileFiles()
    wal = Wal(files, file_bytes=300)
    await wal.recover()
    await wal.append(entry(b"", [b"a" * 200]))
    made = files.create

    async def make_and_fail(number: int) -> None:
        await made(number)
        raise OSError(errno.EIO, "Input/output error")

    files.create = make_and_fail  # type: ignore[method-assign]
    with pytest.raises(WalRefused):
        await wal.append(entry(b"", [b"b" * 200]))
    del files.files[2]
    before = bytes(files.files[1])
    with pytest.raises(WalRefused):
        await wal.append(entry(b"", [b"it would fit"]))
    assert bytes(files.files[1]) == before


CHILD = """
import asyncio, sys
from pathlib import Path
from headgate_agent.log.wal import Fixed, Frame, Wal
from headgate_agent.log.wal_files import DiskFiles

async def main() -> None:
    wal = Wal(DiskFiles(Path(sys.argv[1])), file_bytes=20_000)
    await wal.recover()
    async def one(number: int) -> None:
        await wal.append(Fixed(Frame(1, b"h", [b"%d" % number, b"." * 300])))
        print(number, flush=True)
    for start in range(0, 100_000, 16):
        await asyncio.gather(*(one(start + i) for i in range(16)))

asyncio.run(main())
"""


@pytest.mark.slow
def test_sigkill_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    for round_number in range(3):
        folder = tmp_path / str(round_number)
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder)], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        assert child.stdout is not None
        answered = {int(child.stdout.readline()) for _ in range(200 + 37 * round_number)}
        child.send_signal(signal.SIGKILL)
        answered |= {int(line) for line in child.stdout.read().split("\n")[:-1] if line}
        child.wait()
        files = DiskFiles(folder)
        entries = asyncio.run(Wal(files).recover())
        files.close()
        assert answered <= {int(entry.body.rstrip(b".")) for entry in entries}
