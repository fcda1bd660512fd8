"""What a batch of an edge covers, and what comes out of its records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

from headgate_engine.executor import reading, writing
from headgate_engine.executor.calls import STAGE_BYTES, Access
from headgate_engine.executor.decoding import BAD, decoding, edge_decoding, judging
from headgate_engine.executor.reading import FAR_FUTURE_US, MARK, EdgeStreamReader, read_batches, schema_text, split
from headgate_engine.executor.wire import EdgeError, Partition
from headgate_engine.executor.writing import edge_values, pieces, to_record

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])
RECORD_BYTES = 100


class FakeEdge:
    """Answers as a client of an edge would."""

    found: Sequence[Partition] = ()
    trimmed: ClassVar[list[list[int]]] = []

    def __init__(self, access: Access, **_: Any) -> None:
        pass

    def get(self) -> list[Partition]:
        return list(self.found)

    def trim(self, log_starts: Sequence[int]) -> None:
        self.trimmed.append(list(log_starts))


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> EdgeStreamReader:
    monkeypatch.setattr(reading, "EdgeClient", FakeEdge)
    monkeypatch.setattr(reading.time, "sleep", lambda seconds: None)
    return make_reader(tmp_path / "marks")


def make_reader(marks: Path, partitions: int = 2, tasks: int = 1) -> EdgeStreamReader:
    access = Access("a:1", "topic", partitions, "f", 1)
    options = {
        "access_secret": access.to_json(),
        "arrow": schema_text(SCHEMA),
        "batch_bytes": str(5 * RECORD_BYTES),
        "marks": str(marks),
        "tasks": str(tasks),
    }
    return EdgeStreamReader(options)


def partition(until: int, *, start: int = 0, ended: bool = False) -> Partition:
    return Partition(start, until, (until - start) * RECORD_BYTES, ended)


def test_a_batch_takes_about_as_many_bytes_as_it_may(reader: EdgeStreamReader) -> None:
    FakeEdge.found = [partition(20), partition(3)]
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    assert reader.latestOffset(start, limit) == {"0": 5, "1": 3, "mark": 0}
    assert reader.latestOffset(start, ReadAllAvailable()) == {"0": 20, "1": 3, "mark": 0}
    assert reader.latestOffset(start, ReadMaxBytes(1)) == {"0": 1, "1": 1, "mark": 0}
    assert reader.reportLatestOffset() == {"0": 20, "1": 3}


def test_the_end_is_read_by_all_partitions_at_once_behind_everything_else(reader: EdgeStreamReader) -> None:
    # 7 records and the end; 2 records and the end.
    FakeEdge.found = [partition(8, ended=True), partition(3, ended=True)]
    offset = reader.initialOffset()
    seen = []
    for _ in range(4):
        offset = reader.latestOffset(offset, reader.getDefaultReadLimit())
        seen.append((offset["0"], offset["1"]))
    assert seen == [(5, 2), (8, 3), (8, 3), (8, 3)]


def test_what_was_read_is_let_go_of_though_no_batch_follows_because_the_source_may_wait_for_it(
    reader: EdgeStreamReader,
) -> None:
    FakeEdge.trimmed.clear()
    FakeEdge.found = [partition(5), partition(2)]
    read = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert FakeEdge.trimmed == [], "the batch has not been committed yet"
    assert reader.latestOffset(read, reader.getDefaultReadLimit()) == read
    assert FakeEdge.trimmed == [[5, 2]]
    FakeEdge.found = [Partition(5, 5, 0, False), Partition(2, 2, 0, False)]
    reader.latestOffset(read, reader.getDefaultReadLimit())
    assert FakeEdge.trimmed == [[5, 2]], "once"


@given(
    st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=2, max_size=2),
    st.integers(1, 4000),
)
def test_batches_cover_every_record_and_come_to_an_end(edge: list[tuple[int, bool]], budget: int) -> None:
    ended = all(flag for _, flag in edge)
    FakeEdge.found = [partition(count + ended, ended=ended) for count, _ in edge]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "EdgeClient", FakeEdge)
        patch.setattr(reading.time, "sleep", lambda seconds: None)
        one = make_reader(Path("none"))
        offset = one.initialOffset()
        covered: list[set[int]] = [set(), set()]
        for _ in range(100):
            following = one.latestOffset(offset, ReadMaxBytes(budget))
            for part in one.partitions(offset, following):
                number, first, until = part.value
                assert not covered[number] & set(range(first, until))
                covered[number] |= set(range(first, until))
            if following == offset:
                break
            offset = following
    assert covered == [set(range(count + ended)) for count, _ in edge]


@given(st.integers(0, 50), st.integers(0, 60), st.integers(0, 9))
def test_parts_of_a_range_cover_it_once_and_are_not_more_than_asked_for(first: int, length: int, parts: int) -> None:
    found = split(first, first + length, parts)
    assert [offset for a, b in found for offset in range(a, b)] == list(range(first, first + length))
    assert len(found) <= max(1, parts)


def test_a_large_range_of_one_partition_is_read_by_several_tasks_and_its_end_by_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "EdgeClient", FakeEdge)
    one = make_reader(Path("none"), partitions=1, tasks=4)
    start = one.initialOffset()
    # 10 records of 300 KiB and the end: worth three tasks, of which the last has the end.
    FakeEdge.found = [Partition(0, 11, 11 * 300 * 1024, True)]
    latest = one.latestOffset(start, ReadAllAvailable())
    assert [part.value for part in one.partitions(start, latest)] == [(0, 0, 4), (0, 4, 8), (0, 8, 11)]
    # Small ones are not worth it, and there are never more tasks than asked for.
    FakeEdge.found = [partition(11, ended=True)]
    assert [part.value for part in one.partitions(start, one.latestOffset(start, ReadAllAvailable()))] == [(0, 0, 11)]
    FakeEdge.found = [Partition(0, 100, 100 * 2**20, False)]
    assert len(one.partitions(start, one.latestOffset(start, ReadAllAvailable()))) == 4


def test_what_was_trimmed_is_missed(reader: EdgeStreamReader) -> None:
    FakeEdge.found = [partition(20, start=6), partition(3)]
    with pytest.raises(EdgeError, match="DATA_LOSS"):
        reader.latestOffset({"0": 5, "1": 0, "mark": 0}, ReadAllAvailable())
    FakeEdge.found = [partition(20)]
    with pytest.raises(EdgeError, match="1 partitions"):
        reader.latestOffset(reader.initialOffset(), ReadAllAvailable())


def test_a_mark_of_the_driver_becomes_one_row(reader: EdgeStreamReader, tmp_path: Path) -> None:
    FakeEdge.found = [partition(0), partition(0)]
    (tmp_path / "marks").write_text("1234")
    start = reader.initialOffset()
    latest = reader.latestOffset(start, ReadAllAvailable())
    assert latest["mark"] == 1234
    (part,) = reader.partitions(start, latest)
    (batch,) = reader.read(part)
    assert batch.to_pylist() == [{"a": None, "b": None, MARK: 1234}]
    assert reader.partitions(latest, latest) == []
    # A lower one, of an engine that knows less, is none.
    (tmp_path / "marks").write_text("7")
    assert reader.latestOffset(latest, ReadAllAvailable()) == latest


class FakeRange:
    def __init__(self, *records: bytes) -> None:
        self._records = records

    def read(self, partition: int, start: int, until: int) -> Iterator[tuple[bytes, bool]]:
        for record in self._records:
            yield record, record == b""


def test_rows_are_found_by_name_and_cast_and_small_records_are_put_together() -> None:
    narrow = pa.RecordBatch.from_pydict({"b": ["x"], "a": pa.array([1], pa.int32()), "c": [True]})
    fewer = pa.RecordBatch.from_pydict({"A": pa.array([2, 3], pa.int64())})
    records = FakeRange(to_record(narrow), to_record(fewer), b"")
    (batch,) = read_batches(records, SCHEMA, (0, 0, 3), marks=True)  # type: ignore[arg-type]
    assert batch.to_pylist() == [
        {"a": 1, "b": "x", MARK: None},
        {"a": 2, "b": None, MARK: None},
        {"a": 3, "b": None, MARK: None},
        {"a": None, "b": None, MARK: FAR_FUTURE_US},
    ]
    records = FakeRange(b"")
    assert list(read_batches(records, SCHEMA, (0, 0, 1), marks=False)) == []  # type: ignore[arg-type]


def test_large_batches_are_cut_into_records_that_fit_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.RecordBatch.from_pydict({"a": ["x" * 1000] * 10_000})
    cut = list(pieces(batch))
    assert sum(piece.num_rows for piece in cut) == 10_000
    assert max(len(to_record(piece)) for piece in cut) < 2 * STAGE_BYTES
    staged: list[tuple[int, int]] = []

    class Stages:
        def __init__(self, access: Access) -> None:
            pass

        def stage(self, topic: str, partition: int, records: Sequence[bytes]) -> str:
            staged.append((partition, sum(pa.ipc.open_stream(one).read_all().num_rows for one in records)))
            return f"stage{len(staged)}"

    monkeypatch.setattr(writing, "EdgeClient", Stages)
    stage = writing.stage_function(Access("a:1", "topic", 3, "f", 1), lambda: 7)
    (answer,) = stage(iter([batch, batch.slice(0, 5)]))
    assert sum(rows for _, rows in staged) == 10_005
    assert {where for where, _ in staged} == {7 % 3}
    assert answer.column("stage_id").to_pylist() == [f"stage{number + 1}" for number in range(len(staged))]
    assert sum(answer.column("rows").to_pylist()) == 10_005
    (answer,) = stage(iter([]))
    assert answer.num_rows == 0


def test_of_arrow_values_the_bad_ones_are_told_and_the_good_ones_are_rows() -> None:
    good = to_record(pa.RecordBatch.from_pydict({"a": [1, 2], "b": ["x", "y"]}))
    wrong = to_record(pa.RecordBatch.from_pydict({"a": ["not a number"]}))
    values = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([good, b"noise", None, wrong], pa.binary()),
            "partition": pa.array([3] * 4, pa.int32()),
            "offset": pa.array([7, 8, 9, 10], pa.int64()),
        }
    )
    text = schema_text(SCHEMA)
    rows = [row for batch in decoding(text, ())(iter([values])) for row in batch.to_pylist()]
    assert [(row["a"], row["b"]) for row in rows if row[BAD] is None] == [(1, "x"), (2, "y")]
    assert len([row for row in rows if row[BAD]]) == 3
    (judged,) = judging(text, (), 0)(iter([values]))
    assert judged.column("value").to_pylist() == [b"noise", None, wrong]
    assert judged.column(BAD).to_pylist()[1] == "the record has no value"
    with pytest.raises(EdgeError, match="BAD_RECORD: partition 3, offset 8 of topic t"):
        list(decoding(text, (), fail="topic t")(iter([values])))


@given(st.lists(st.integers(0, 500), max_size=40), st.integers(300, 4_000))
def test_rows_come_back_from_records_of_an_edge_on_kafka_that_fit(lengths: list[int], largest: int) -> None:
    rows = [{"a": index, "b": "x" * length} for index, length in enumerate(lengths)]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    values = [value for made in edge_values(largest)(iter([batch])) for value in made.column(0).to_pylist()]
    for value in values:
        assert len(value) <= largest or pa.ipc.open_stream(value).read_all().num_rows == 1
    # Among them is a note of where the writer is.
    keys = [None, b"headgate.position", *[None] * len(values)][1:]
    read = pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.binary()), pa.array([b"\0" * 8, *values], pa.binary())], names=["key", "value"]
    )
    found = list(edge_decoding(schema_text(SCHEMA))(iter([read])))
    assert [row for part in found for row in part.to_pylist()] == [{**row, MARK: None} for row in rows]
