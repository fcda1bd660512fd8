"""The FILE source: every record once, whatever happens to the files and to the agent."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate_agent.errors import MALFORMED_ROW, SOURCE_CHANGED, SOURCE_MISMATCH, SOURCE_MISSING
from headgate_agent.fragments.edges import ErrorRow, Stored
from headgate_agent.fragments.formats.csv_decode import CsvDecoder
from headgate_agent.fragments.formats.rows import Decoded
from headgate_agent.fragments.sources.build import build_source
from headgate_agent.fragments.sources.positions import FilePosition
from headgate_agent.fragments.sources.source import Counters, Emitted, Outcome, Source, run_source
from headgate_agent.work import Threads
from headgate_common.clock import SystemClock
from headgate_common.errors import HeadgateError
from tests.examples import examples
from tests.unit.fragments.kit import MemoryEdge, around, file_source, simulated, source_fragment

A = "a INT32"


def run(source: Source, edge: MemoryEdge) -> Outcome:
    return simulated(run_source(source, edge, asyncio.Event()))


def read(root: Path, columns: str = A, parser: dict[str, str] | None = None, **more: Any) -> MemoryEdge:
    edge = MemoryEdge()
    assert run(file_source(root, columns, parser, **more), edge) is Outcome.ENDED
    assert edge.last is not None
    assert edge.last.ended
    return edge


def refused(root: Path, columns: str = A, parser: dict[str, str] | None = None, **more: Any) -> HeadgateError:
    with pytest.raises(HeadgateError) as raised:
        read(root, columns, parser, **more)
    return raised.value


def test_a_file_is_read_to_its_end_in_small_blocks(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("".join(f"{n}\n" for n in range(1_000)) + "1000")
    edge = read(tmp_path, block_bytes=64)
    assert edge.column("a") == list(range(1_001))
    assert edge.appends > 50


def test_a_row_longer_than_a_block_is_read_and_one_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(f"1,x\n2,{'y' * 700}\n3,z\n")
    assert read(tmp_path, "a INT32, b VARCHAR", block_bytes=64).column("a") == [1, 2, 3]
    error = refused(tmp_path, "a INT32, b VARCHAR", block_bytes=64, max_row_bytes=512)
    assert error.reason is SOURCE_MISMATCH
    assert "at byte 4" in error.message


def test_the_files_of_a_pattern_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for number, name in enumerate(["b.csv", "a.csv", "c.csv", "c.txt", ".d.csv"]):
        (tmp_path / name).write_text(f"{number}\n")
    assert read(tmp_path, path="*.csv").column("a") == [1, 0, 2]


def test_files_of_several_folders_are_all_read_whatever_their_folders_are_called(tmp_path: Path) -> None:
    """Some signs come before the one that separates folders: `a-b/x` before `a/x`."""
    folders = ["a", "a-b", "a.b", "a b", "a0", "b"]
    for number, folder in enumerate(folders):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.csv").write_text(f"{number}\n")
    found = read(tmp_path, path="*/x.csv").column("a")
    assert sorted(found) == list(range(len(folders)))
    assert [folders[number] for number in found] == sorted(folders, key=lambda name: f"{name}/x.csv")


def test_brackets_in_a_path_are_only_themselves(tmp_path: Path) -> None:
    (tmp_path / "a[1].csv").write_text("1\n")
    (tmp_path / "a1.csv").write_text("2\n")
    assert read(tmp_path, path="a[1].csv").column("a") == [1]
    assert read(tmp_path, path="a[?].csv").column("a") == [1]


@pytest.mark.parametrize("header", ["", "a\n"])
def test_a_byte_order_mark_at_the_beginning_of_a_file_is_no_part_of_it(tmp_path: Path, header: str) -> None:
    (tmp_path / "in.csv").write_text(f"\ufeff{header}1\nx\n2\n")
    parser = {"header": "true" if header else "false", "on_error": "skip"}
    assert read(tmp_path, A, parser).column("a") == [1, 2]


def test_each_file_has_its_own_header(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("a,b\n1,x\n")
    (tmp_path / "2.csv").write_text("b,a\ny,2\n")
    edge = read(tmp_path, "a INT32, b VARCHAR", {"header": "true"}, path="*.csv")
    assert edge.rows() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]


@pytest.mark.parametrize("block", [64, 90, 128, 4096])
def test_a_restart_after_any_append_reads_nothing_twice_and_loses_nothing(tmp_path: Path, block: int) -> None:
    wanted = []
    for name in ("1.csv", "2.csv", "3.csv"):
        rows = [f'{n},"{name}\n{n}"' for n in range(40)]
        (tmp_path / name).write_text("a,b\n" + "\n".join(rows) + "\n")
        wanted += list(range(40))
    settings_: dict[str, Any] = {"path": "*.csv", "block_bytes": block}
    edge = MemoryEdge()
    restarts = 0
    while edge.last is None or not edge.last.ended:
        # The append happens, and the agent dies before it learns of it.
        edge.uncertain = {edge.appends + 1}
        with pytest.raises(ConnectionError):
            run(file_source(tmp_path, "a INT32, b VARCHAR", {"header": "true"}, **settings_), edge)
        restarts += 1
    assert edge.column("a") == wanted
    assert restarts == edge.appends


def test_a_run_after_the_end_does_nothing(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("1\n")
    edge = read(tmp_path)
    (tmp_path / "in.csv").write_text("1\n2\n")
    assert run(file_source(tmp_path, A), edge) is Outcome.ENDED
    assert edge.column("a") == [1]


def test_a_malformed_row_is_put_aside_with_its_place_unless_it_is_to_fail(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("1\nx\n3\n")
    error = refused(tmp_path, parser={"on_error": "fail"})
    assert error.reason is MALFORMED_ROW
    assert error.message == f"{tmp_path / 'in.csv'} at byte 2: column a: 'x' is not a INT32"
    source = file_source(tmp_path, A)
    edge = MemoryEdge()
    run(source, edge)
    assert edge.column("a") == [1, 3]
    assert [(row.raw, row.place) for row in edge.errors] == [("x", f"{tmp_path / 'in.csv'} at byte 2")]
    assert (source.counters.rows_read, source.counters.rows_malformed) == (2, 1)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    assert refused(tmp_path).reason is SOURCE_MISSING
    assert refused(tmp_path, path="*.csv").reason is SOURCE_MISSING


def _interrupted(root: Path, **more: Any) -> MemoryEdge:
    """An edge with a part of the file on it."""
    edge = MemoryEdge(uncertain={2})
    with pytest.raises(ConnectionError):
        run(file_source(root, A, None, block_bytes=64, **more), edge)
    return edge


@pytest.mark.parametrize("content", ["1\n", "".join(f"{n + 7}\n" for n in range(1_000))])
def test_a_file_that_is_another_after_a_restart_is_told(tmp_path: Path, content: str) -> None:
    (tmp_path / "in.csv").write_text("".join(f"{n}\n" for n in range(1_000)))
    edge = _interrupted(tmp_path)
    (tmp_path / "in.csv").write_text(content)
    with pytest.raises(HeadgateError) as raised:
        run(file_source(tmp_path, A), edge)
    assert raised.value.reason is SOURCE_CHANGED


def test_json_and_its_options(tmp_path: Path) -> None:
    (tmp_path / "in.json").write_text('{"a": 1};{"a": 2}')
    assert read(tmp_path, A, {"tuple_delimiter": ";"}, path="in.json").column("a") == [1, 2]


@pytest.mark.parametrize("name", ["in.parquet", "in.arrow", "in.arrows"])
def test_columnar_files_are_read_by_name_and_resumed_by_row(tmp_path: Path, name: str) -> None:
    table = pa.table({"B": pa.array([str(n) for n in range(500)]), "a": pa.array(range(500), pa.int64())})
    if name == "in.parquet":
        pq.write_table(table, tmp_path / name, row_group_size=130)
    else:
        make = pa.ipc.new_file if name == "in.arrow" else pa.ipc.new_stream
        with make(tmp_path / name, table.schema) as writer:
            writer.write_table(table, max_chunksize=130)
    edge = MemoryEdge()
    while edge.last is None or not edge.last.ended:
        edge.uncertain = {edge.appends + 2}
        try:
            run(file_source(tmp_path, "a INT32 NOT NULL, b VARCHAR, c DATE", path=name, batch_rows=100), edge)
        except ConnectionError:
            continue
    assert edge.column("a") == list(range(500))
    assert edge.column("b") == [str(n) for n in range(500)]
    assert edge.column("c") == [None] * 500
    assert edge.batches[0].schema.field("a").type == pa.int32()


def test_a_columnar_file_that_does_not_fit_is_told(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([2**40, None], pa.int64())}), tmp_path / "in.parquet")
    assert refused(tmp_path, A, path="in.parquet").reason is SOURCE_MISMATCH
    assert refused(tmp_path, "a INT64 NOT NULL", path="in.parquet").reason is SOURCE_MISMATCH
    assert refused(tmp_path, "b INT64", path="in.parquet").reason is SOURCE_MISMATCH
    (tmp_path / "no.parquet").write_text("nonsense")
    assert refused(tmp_path, A, path="no.parquet").reason is SOURCE_MISMATCH


@pytest.mark.parametrize("name", ["in.parquet", "in.arrow", "in.arrows"])
def test_a_damaged_columnar_file_is_told_and_brings_nothing_down(tmp_path: Path, name: str) -> None:
    table = pa.table({"a": pa.array(range(50), pa.int32()), "b": [["x", "y"]] * 50})
    if name == "in.parquet":
        pq.write_table(table, tmp_path / name)
    else:
        make = pa.ipc.new_file if name == "in.arrow" else pa.ipc.new_stream
        with make(tmp_path / name, table.schema) as writer:
            writer.write_table(table)
    whole = (tmp_path / name).read_bytes()
    source = random.Random(3)
    told = 0
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[source.randrange(len(whole))] = source.randrange(256)
        (tmp_path / name).write_bytes(damaged[: source.choice((len(whole), source.randrange(len(whole))))])
        try:
            read(tmp_path, "a INT32, b ARRAY<VARCHAR>", path=name)
        except HeadgateError as error:
            assert error.reason is SOURCE_MISMATCH
            told += 1
    assert told > 30


class Following:
    """A followed path, with runs that are killed and started again between steps."""

    def __init__(self, root: Path, path: str, **more: Any) -> None:
        self.edge = MemoryEdge()
        self.notes: list[str] = []
        self._root, self._path, self._more = root, path, more

    def _make(self) -> Source:
        return file_source(
            self._root, A, {"type": "CSV"}, path=self._path, follow="true", rotated_grace=3.0, **self._more
        )

    def look(self, seconds: float = 2.5, soft: bool = False) -> None:
        """One run of the source, for some seconds, then a hard stop or a soft one."""
        source = self._make()

        async def main() -> None:
            stopping = asyncio.Event()
            task = asyncio.create_task(run_source(source, self.edge, stopping))
            await asyncio.sleep(seconds)
            if soft:
                stopping.set()
            else:
                task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.result()

        simulated(main())
        self.notes += source.counters.notes

    def during(self, *steps: Any) -> None:
        """One run, with something done every 2.5 seconds."""
        source = self._make()

        async def main() -> None:
            task = asyncio.create_task(run_source(source, self.edge, asyncio.Event()))
            for step in steps:
                await asyncio.sleep(2.5)
                step()
            await asyncio.sleep(10)
            task.cancel()
            await asyncio.wait((task,))
            assert task.cancelled()

        simulated(main())
        self.notes += source.counters.notes

    @property
    def found(self) -> list[int]:
        return self.edge.column("a")


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_growing_file_is_followed_and_half_a_row_waits(tmp_path: Path) -> None:
    log = tmp_path / "app.csv"
    follow = Following(tmp_path, "app.csv")
    follow.look()
    log.write_text("1\n2")
    follow.look()
    assert follow.found == [1]
    _append(log, "0\n3\n")
    follow.look(soft=True)
    assert follow.found == [1, 20, 3]
    assert follow.edge.last is not None
    assert follow.edge.last.ended
    assert follow.notes == []


def test_how_far_behind_a_source_is_is_told_in_bytes(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("1\n" * 1000)
    source = file_source(tmp_path, A, {"type": "CSV"}, path="in.csv", step_bytes=64, block_bytes=64)

    async def main() -> None:
        await source.open(None)
        first = await source.next(asyncio.Event())
        assert first is not None
        taken = 2 * sum(batch.num_rows for batch in first.batches)
        assert source.counters.behind == 2000 - taken > 0
        while not (await source.next(asyncio.Event())).ended:  # type: ignore[union-attr]
            pass
        assert source.counters.behind == 0
        await source.close()

    simulated(main())


def test_a_soft_stop_reads_what_was_appended_before_it(tmp_path: Path) -> None:
    log = tmp_path / "app.csv"
    log.write_text("1\n")
    source = file_source(tmp_path, A, {"type": "CSV"}, path="app.csv", follow="true", poll_interval="1 h")
    edge = MemoryEdge()

    async def main() -> None:
        stopping = asyncio.Event()
        task = asyncio.create_task(run_source(source, edge, stopping))
        await asyncio.sleep(5)
        _append(log, "2\n3\n")
        stopping.set()
        await task

    simulated(main())
    assert edge.column("a") == [1, 2, 3]
    assert edge.last is not None and edge.last.ended


@pytest.mark.parametrize("live", [True, False])
def test_a_rotated_file_is_read_to_its_end_and_then_the_new_one(tmp_path: Path, live: bool) -> None:
    log = tmp_path / "app.csv"
    log.write_text("1\n")
    follow = Following(tmp_path, "app.csv")

    def rotate() -> None:
        _append(log, "2\n")
        log.rename(tmp_path / "app.csv.1")
        log.write_text("10\n")

    def late() -> None:
        _append(tmp_path / "app.csv.1", "3\n4")

    if live:
        follow.during(rotate, late)
    else:
        follow.look()
        rotate()
        follow.look(0.5)
        late()
        follow.look(10)
    assert sorted(follow.found) == [1, 2, 3, 4, 10]
    assert follow.notes == []


def test_rotation_within_the_pattern_reads_nothing_twice(tmp_path: Path) -> None:
    log = tmp_path / "app.csv"
    log.write_text("1\n")
    follow = Following(tmp_path, "app*")
    for number in range(2, 6):
        follow.look(1.5)
        log.rename(tmp_path / f"app.{number}.csv")
        log.write_text(f"{number}\n")
    follow.look(1.5)
    assert sorted(follow.found) == [1, 2, 3, 4, 5]


def test_a_file_removed_while_it_is_held_is_still_read(tmp_path: Path) -> None:
    log = tmp_path / "app.csv"
    log.write_text("1\n")
    held = log.open("a")
    follow = Following(tmp_path, "app.csv")

    def remove() -> None:
        log.unlink()
        held.write("2\n")
        held.flush()

    follow.during(remove)
    held.close()
    assert follow.found == [1, 2]


@pytest.mark.parametrize("live", [True, False])
def test_a_cut_file_is_noted_and_read_from_its_beginning(tmp_path: Path, live: bool) -> None:
    log = tmp_path / "app.csv"
    log.write_text("1\n2\n3\n")
    follow = Following(tmp_path, "app.csv")

    def cut() -> None:
        os.truncate(log, 0)
        _append(log, "9\n")

    if live:
        follow.during(cut)
    else:
        follow.look()
        cut()
        follow.look()
    assert follow.found == [1, 2, 3, 9]
    assert len(follow.notes) == 1
    assert "read from its beginning" in follow.notes[0]


def test_a_file_gone_while_nobody_looked_is_noted(tmp_path: Path) -> None:
    log = tmp_path / "app.csv"
    log.write_text("1\n2\n")
    follow = Following(tmp_path, "app.csv")
    follow.look()
    log.unlink()
    (tmp_path / "other").write_text("keeps the inode of the new file apart\n")
    log.write_text("7\n8\n9\n")
    follow.look()
    assert follow.found == [1, 2, 7, 8, 9]
    assert len(follow.notes) == 1


def test_a_new_file_is_found_and_read_while_others_grow(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("1\n")
    follow = Following(tmp_path, "*.csv")
    follow.during(
        lambda: (tmp_path / "a.csv").write_text("2\n"),
        lambda: _append(tmp_path / "b.csv", "3\n"),
        lambda: _append(tmp_path / "a.csv", "4\n"),
    )
    assert follow.found == [1, 2, 3, 4]


def test_a_slow_consumer_stops_the_source_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("".join(f"{n}\n" for n in range(1_000)))
    edge = MemoryEdge(max_lag=3)
    source = file_source(tmp_path, A, None, block_bytes=64)

    async def main() -> None:
        task = asyncio.create_task(run_source(source, edge, asyncio.Event()))
        await asyncio.sleep(10)
        assert len(edge.batches) == 3
        assert edge.waiting
        while not task.done():
            await edge.trim(len(edge.batches))
            await asyncio.sleep(0.1)
        assert task.result() is Outcome.ENDED

    simulated(main())
    assert edge.column("a") == list(range(1_000))


@settings(max_examples=examples(60), deadline=None)
@given(
    values=st.lists(st.text(st.sampled_from("ab\n\",'é"), max_size=12), max_size=30),
    block=st.integers(64, 200),
    kills=st.lists(st.integers(1, 6), max_size=20),
)
@pytest.mark.slow
def test_any_file_killed_anywhere_gives_its_rows_once(
    tmp_path_factory: pytest.TempPathFactory, values: list[str], block: int, kills: list[int]
) -> None:
    root = tmp_path_factory.mktemp("files")
    quoted = ['"' + value.replace('"', '""') + '"' for value in values]
    (root / "in.csv").write_text("".join(f"{n},{value}\n" for n, value in enumerate(quoted)))
    edge = MemoryEdge()
    for kill in [*kills, 10_000]:
        edge.uncertain = {edge.appends + kill}
        try:
            run(file_source(root, "a INT32, b VARCHAR", None, block_bytes=block), edge)
        except ConnectionError:
            continue
    assert [(row["a"], row["b"]) for row in edge.rows()] == list(enumerate(values))


class Slow:
    """A source whose steps were read; and an edge that is slow. Both say what they did, in order."""

    waiting = ""

    def __init__(self, steps: list[Emitted | HeadgateError], fails_at: bytes = b"") -> None:
        self.counters = Counters()
        self.stored_positions: list[bytes] = []
        self.under_way = self.most_under_way = 0
        self._steps = iter(steps)
        self._fails_at = fails_at
        self._turn = asyncio.Lock()
        self._failed = False

    async def open(self, position: bytes | None) -> None:
        return

    async def next(self, stopping: asyncio.Event) -> Emitted | None:
        step = next(self._steps, None)
        if isinstance(step, HeadgateError):
            raise step
        if step is None:
            # A followed source has nothing more for now.
            await stopping.wait()
        return step

    async def close(self) -> None:
        return

    async def stored(self) -> Stored | None:
        return None

    async def append(
        self, batches: Sequence[pa.RecordBatch], position: bytes, *, errors: Sequence[ErrorRow] = (), end: bool = False
    ) -> None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            async with self._turn:
                await asyncio.sleep(1)
                self._failed = self._failed or position == self._fails_at
                if self._failed:
                    raise ConnectionError("the edge is gone")
                self.stored_positions.append(position)
        finally:
            self.under_way -= 1


def _steps(count: int) -> list[Emitted | HeadgateError]:
    return [Emitted((), str(number).encode()) for number in range(count)]


@pytest.mark.parametrize("appends", [1, 3])
def test_as_many_appends_as_allowed_are_on_their_way(appends: int) -> None:
    both = Slow([*_steps(9), Emitted((), b"9", ended=True)])
    assert simulated(run_source(both, both, asyncio.Event(), appends=appends)) is Outcome.ENDED
    assert both.stored_positions == [str(number).encode() for number in range(10)]
    assert both.most_under_way == appends


def test_what_came_before_an_error_of_the_source_is_appended() -> None:
    both = Slow([*_steps(5), HeadgateError(MALFORMED_ROW, "the sixth")])
    with pytest.raises(HeadgateError, match="the sixth"):
        simulated(run_source(both, both, asyncio.Event(), appends=3))
    assert both.stored_positions == [str(number).encode() for number in range(5)]


def test_an_append_that_fails_ends_the_run_though_the_source_has_nothing_more() -> None:
    both = Slow(_steps(4), fails_at=b"2")
    with pytest.raises(ConnectionError):
        simulated(run_source(both, both, asyncio.Event(), appends=6))
    assert both.stored_positions == [b"0", b"1"]
    assert both.under_way == 0


def test_steps_that_are_decoded_in_any_order_come_in_the_order_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "in.csv").write_text("".join(f"{n}\n" if n % 50 else "x\n" for n in range(3_000)))
    decode = CsvDecoder.decode
    source = random.Random(5)

    def slowly(self: CsvDecoder, data: bytes | bytearray) -> Decoded:
        time.sleep(source.choice((0.0, 0.002)))
        return decode(self, data)

    monkeypatch.setattr(CsvDecoder, "decode", slowly)
    fragment = source_fragment(catalog.SOURCE_TYPE_FILE, {"file_path": "in.csv"}, A)
    threads = Threads(4)
    settings_ = replace(around(tmp_path, block_bytes=128, steps_ahead=4), blocking=threads, clock=SystemClock())
    edge = MemoryEdge()
    asyncio.run(run_source(build_source(fragment, settings_), edge, asyncio.Event()))
    threads.close()
    assert edge.column("a") == [n for n in range(3_000) if n % 50]
    assert [int(row.place.rsplit(" ", 1)[1]) for row in edge.errors] == sorted(
        int(row.place.rsplit(" ", 1)[1]) for row in edge.errors
    )
    assert len(edge.errors) == 60


def test_the_position_counts_the_records_that_were_emitted_and_none_that_were_read_ahead(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("".join(f"{n % 10}\n" for n in range(1_000)))
    source = file_source(tmp_path, A, block_bytes=64, steps_ahead=5)

    async def main() -> None:
        await source.open(None)
        for number in range(1, 11):
            step = await source.next(asyncio.Event())
            assert step is not None
            (state,) = FilePosition.decoded(step.position).files
            assert (state.offset, state.rows) == (64 * number, 32 * number)
        await source.close()

    simulated(main())
