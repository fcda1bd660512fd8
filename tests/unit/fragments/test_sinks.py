"""Sinks: what each promises of an edge, through crashes, full disks and meddling."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate_agent.errors import (
    PLAN_UNSUPPORTED,
    SINK_CHANGED,
    SINK_IN_USE,
    SINK_MISSING,
    SINK_UNAVAILABLE,
    TARGET_FORBIDDEN,
)
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.edges import Stored
from headgate_agent.fragments.sinks.build import build_sink
from headgate_agent.fragments.sinks.file import slots_path
from headgate_agent.fragments.sinks.print import PrintSink
from headgate_agent.fragments.sinks.sink import Sink, run_sink
from headgate_agent.fragments.sinks.slots import Slots, SlotsCorrupt
from headgate_agent.fragments.sinks.void import VoidSink
from headgate_agent.work import Inline
from headgate_common.errors import HeadgateError, Reason
from tests.examples import examples
from tests.unit.fragments.kit import LoopClock, MemoryEdge, simulated, sink_fragment

COLUMNS = "a INT32, b VARCHAR"


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"a": pa.array(numbers, pa.int32()), "b": [f"r{n}" for n in numbers]})


def edge_of(*batches: pa.RecordBatch, ended: bool = True) -> MemoryEdge:
    return MemoryEdge(batches=list(batches), last=Stored(b"", ended))


class Place:
    """A folder with a root for files and a folder for the agent's data."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        self.state = folder / "state"
        self.root.mkdir()
        self.out = self.root / "out.csv"

    def sink(self, identity: str = "fragment-1", /, *update_keys: str, **options: str) -> Sink:
        fragment = sink_fragment(catalog.SINK_TYPE_FILE, {"file_path": "out.csv", **options}, COLUMNS)
        fragment.update_keys.extend(update_keys)
        config = FragmentConfig(file_roots=(self.root,), flush_interval=0.0)
        return build_sink(identity, fragment, state=self.state, config=config, blocking=Inline())

    def run(self, edge: MemoryEdge, identity: str = "fragment-1", **options: str) -> None:
        simulated(run_sink(self.sink(identity, **options), edge, FragmentConfig(flush_interval=0.0), LoopClock()))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def refused(call: Any, *arguments: Any, **named: Any) -> Reason:
    with pytest.raises(HeadgateError) as raised:
        call(*arguments, **named)
    return raised.value.reason


def test_every_row_is_written_and_the_edge_is_trimmed(place: Place) -> None:
    edge = edge_of(batch(1, 2), batch(3))
    place.run(edge)
    assert place.out.read_text() == "1,r1\n2,r2\n3,r3\n"
    assert edge.trimmed == 2


def test_the_options_of_the_format(place: Place) -> None:
    place.run(edge_of(batch(1)), header="true", field_delimiter=";", null_string="-")
    assert place.out.read_text() == "a;b\n1;r1\n"


def test_json_is_known_by_the_files_name(place: Place) -> None:
    place.run(edge_of(batch(1)), file_path="out.json")
    assert (place.root / "out.json").read_text() == '{"a":1,"b":"r1"}\n'


def test_append_keeps_what_is_there_and_begins_on_a_new_line(place: Place) -> None:
    place.out.write_text("old")
    place.run(edge_of(batch(1)), header="true")
    assert place.out.read_text() == "old\n1,r1\n"


def test_without_append_the_first_start_empties_the_file_and_no_later_one_does(place: Place) -> None:
    place.out.write_text("old\n")
    edge = edge_of(batch(1), ended=False)
    sink = place.sink(append="false")

    async def first() -> None:
        assert await sink.open(0) == 0
        await sink.deliver(edge.batches, 1)
        assert await sink.flush() == 1
        await sink.close()

    simulated(first())
    assert place.out.read_text() == "1,r1\n"
    edge.batches.append(batch(2))
    edge.last = Stored(b"", True)
    place.run(edge, append="false")
    assert place.out.read_text() == "1,r1\n2,r2\n"


def test_a_query_that_was_created_again_is_a_first_start(place: Place) -> None:
    place.run(edge_of(batch(1)), append="false")
    place.run(edge_of(batch(2)), append="false", identity="fragment-2")
    assert place.out.read_text() == "2,r2\n"


def test_what_was_not_flushed_is_cut_off_and_delivered_again(place: Place) -> None:
    edge = edge_of(batch(1), batch(2), batch(3))

    async def crashed() -> None:
        sink = place.sink()
        await sink.open(0)
        await sink.deliver(edge.batches[:1], 1)
        await sink.flush()
        await sink.deliver(edge.batches[1:], 3)
        # No flush: the process is gone.
        await sink.close()

    simulated(crashed())
    with place.out.open("a") as file:
        file.write("half a r")
    place.run(edge)
    assert place.out.read_text() == "1,r1\n2,r2\n3,r3\n"


def test_a_header_is_written_once_also_after_a_crash_before_the_first_row(place: Place) -> None:
    async def opened() -> None:
        sink = place.sink(header="true")
        await sink.open(0)
        await sink.close()

    simulated(opened())
    assert place.out.read_text() == "a,b\n"
    place.run(edge_of(batch(1)), header="true")
    assert place.out.read_text() == "a,b\n1,r1\n"


def _delivered(place: Place) -> None:
    place.run(edge_of(batch(1, 2), ended=True))


def test_a_file_that_was_cut_replaced_or_removed_is_told(place: Place) -> None:
    _delivered(place)
    content = place.out.read_bytes()
    os.truncate(place.out, 3)
    assert refused(place.run, edge_of(batch(1, 2), batch(3))) is SINK_CHANGED
    place.out.write_bytes(content)
    place.run(edge_of(batch(1, 2), batch(3)))
    place.out.rename(place.root / "moved.csv")
    (place.root / "other").write_bytes(place.out.read_bytes() if place.out.exists() else b"x" * 100)
    assert refused(place.run, edge_of(batch(1, 2), batch(3))) is SINK_CHANGED


def test_a_lost_record_of_what_was_delivered_is_told(place: Place) -> None:
    _delivered(place)
    slots_path(place.state, "fragment-1").unlink()
    edge = edge_of(batch(1, 2), batch(3))
    edge.trimmed = 1
    assert refused(place.run, edge) is SINK_CHANGED


def test_two_sinks_cannot_have_one_file(place: Place) -> None:
    async def main() -> None:
        first, second = place.sink(), place.sink("fragment-2")
        await first.open(0)
        with pytest.raises(HeadgateError) as raised:
            await second.open(0)
        assert raised.value.reason is SINK_IN_USE
        await second.close()
        await first.close()

    simulated(main())


def test_what_a_run_found_delivered_is_trimmed_at_once(place: Place) -> None:
    """A target may forget its position when it is not used for long; the edge must not be older than that."""
    edge = edge_of(batch(1), batch(2))
    place.run(edge)
    edge.trimmed = 0
    place.run(edge)
    assert edge.trimmed == 2
    assert place.out.read_text() == "1,r1\n2,r2\n"


@pytest.mark.parametrize("path", ["missing/out.csv", "folder", "file.csv/out.csv"])
def test_a_path_at_which_no_file_can_be_made_is_final_before_anything_was_delivered(place: Place, path: str) -> None:
    (place.root / "folder").mkdir()
    (place.root / "file.csv").touch()
    assert refused(place.run, edge_of(batch(1)), file_path=path, input_format="CSV") is SINK_MISSING


def test_a_folder_that_is_away_for_a_while_is_waited_for_by_who_has_delivered_there(place: Place) -> None:
    folder = place.root / "volume"
    folder.mkdir()
    place.run(edge_of(batch(1)), file_path="volume/out.csv")
    folder.rename(place.root / "away")
    assert refused(place.run, edge_of(batch(1), batch(2)), file_path="volume/out.csv") is SINK_UNAVAILABLE
    (place.root / "away").rename(folder)
    place.run(edge_of(batch(1), batch(2)), file_path="volume/out.csv")
    assert (folder / "out.csv").read_text() == "1,r1\n2,r2\n"


def test_a_full_disk_acknowledges_nothing_and_leaves_nothing_half(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    edge = edge_of(batch(1), batch(*range(2, 500)))
    simulated(run_sink(place.sink(), edge_of(batch(1)), FragmentConfig(), LoopClock()))
    full = {"now": True}
    real = os.pwrite

    def pwrite(descriptor: int, data: Any, at: int) -> int:
        if full["now"] and len(data) > 100 and "out.csv" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            if at > 200:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(descriptor, bytes(data)[:200], at)
        return real(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(HeadgateError) as raised:
        place.run(edge)
    assert raised.value.reason is SINK_UNAVAILABLE
    assert "no space" in raised.value.message
    assert place.out.read_text() == "1,r1\n"
    # What the run before has delivered, and no more.
    assert edge.trimmed == 1
    full["now"] = False
    place.run(edge)
    assert place.out.read_text() == "".join(f"{n},r{n}\n" for n in range(1, 500))


@pytest.mark.parametrize("call", ["fdatasync", "pwrite"])
def test_an_error_at_any_system_call_loses_and_doubles_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    wanted = "".join(f"{n},r{n}\n" for n in range(12))
    edge = edge_of(*(batch(n) for n in range(12)))
    real = getattr(os, call)
    for failing in range(1, 30):
        left = [failing]

        def failing_call(*arguments: Any, left: list[int] = left) -> Any:
            left[0] -= 1
            if left[0] == 0:
                raise OSError(errno.EIO, "Input/output error")
            return real(*arguments)

        with monkeypatch.context() as patched:
            patched.setattr(os, call, failing_call)
            config = FragmentConfig(flush_interval=0.0, edge_read_bytes=1)
            try:
                simulated(run_sink(place.sink(), edge, config, LoopClock()))
                break
            except HeadgateError as error:
                assert error.reason is SINK_UNAVAILABLE
        assert wanted.startswith(place.out.read_text())
    assert place.out.read_text() == wanted


def test_updates_are_refused_by_a_file(place: Place) -> None:
    assert refused(place.sink, "fragment-1", "a") is PLAN_UNSUPPORTED


def test_a_path_outside_is_refused(place: Place) -> None:
    assert refused(place.sink, file_path="../out.csv") is TARGET_FORBIDDEN


def test_print_writes_each_row_and_each_new_version_of_it() -> None:
    printed: list[bytes] = []
    sink = PrintSink({"input_format": "JSON"}, blocking=Inline(), write=printed.append)
    edge = edge_of(batch(1), batch(1))
    simulated(run_sink(sink, edge, FragmentConfig(flush_interval=0.0), LoopClock()))
    assert b"".join(printed) == b'{"a":1,"b":"r1"}\n' * 2
    assert edge.trimmed == 2


def test_print_prints_again_only_what_was_not_flushed() -> None:
    printed: list[bytes] = []
    edge = edge_of(batch(1), batch(2))
    edge.trimmed = 1
    sink = PrintSink({}, blocking=Inline(), write=printed.append)
    simulated(run_sink(sink, edge, FragmentConfig(), LoopClock()))
    assert b"".join(printed) == b"2,r2\n"


def test_void_counts() -> None:
    sink = VoidSink()
    edge = edge_of(batch(1, 2), batch(3))
    simulated(run_sink(sink, edge, FragmentConfig(), LoopClock()))
    assert sink.delivered.rows == 3
    assert edge.trimmed == 2


def test_rows_are_flushed_together_but_wait_no_longer_than_the_interval() -> None:
    async def main() -> None:
        edge = MemoryEdge()
        sink = VoidSink()
        config = FragmentConfig(flush_interval=0.2)
        task = asyncio.create_task(run_sink(sink, edge, config, LoopClock()))
        for number in range(100):
            await asyncio.sleep(0.01)
            await edge.append([batch(number)], b"")
        assert 3 <= sink.delivered.flushes <= 6
        await asyncio.sleep(0.3)
        assert edge.trimmed == 100
        task.cancel()
        await asyncio.wait((task,))

    simulated(main())


def test_rows_after_a_pause_are_flushed_at_once_and_those_that_follow_closely_are_not() -> None:
    async def main() -> None:
        edge = MemoryEdge()
        sink = VoidSink()
        task = asyncio.create_task(run_sink(sink, edge, FragmentConfig(flush_interval=0.2), LoopClock()))
        await asyncio.sleep(1.0)
        seen = []
        for pause in (0.01, 0.05, 0.5, 0.01):
            await edge.append([batch(1)], b"")
            await asyncio.sleep(pause)
            seen.append(sink.delivered.flushes)
        assert seen == [1, 1, 2, 3]
        task.cancel()
        await asyncio.wait((task,))

    simulated(main())


def test_slots_keep_the_last_whole_record(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.sink"
    slots = Slots(path)
    assert slots.open() is None
    for number in range(1, 6):
        slots.write(b"record %d" % number)
    slots.close()
    for damaged, wanted in (((5 % 2) * 4096, b"record 4"), (None, b"record 5")):
        copy = tmp_path / f"copy{damaged}"
        content = bytearray(path.read_bytes())
        if damaged is not None:
            content[damaged + 20] ^= 1
        copy.write_bytes(content)
        assert Slots(copy).open() == wanted
    path.write_bytes(b"\xff" * 8192)
    with pytest.raises(SlotsCorrupt):
        Slots(path).open()


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(0, 8192), max_size=6))
def test_a_first_record_that_was_cut_short_is_none(tmp_path_factory: pytest.TempPathFactory, cuts: list[int]) -> None:
    folder = tmp_path_factory.mktemp("slots")
    slots = Slots(folder / "x")
    slots.open()
    slots.write(b"first")
    slots.close()
    whole = (folder / "x").read_bytes()
    for cut in cuts:
        (folder / "cut").write_bytes(whole[:cut])
        assert Slots(folder / "cut").open() in (None, b"first")
