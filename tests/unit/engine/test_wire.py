"""What executors write and read by hand is what the generated classes write and read."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import headgate_engine.executor
from headgate.log import v1 as log
from headgate_engine.executor.calls import Access, EdgeClient
from headgate_engine.executor.wire import EdgeError, put, put_item, put_packed, read_partition, take, writer_ref

INT64 = st.integers(-(2**63), 2**63 - 1)
OFFSETS = st.integers(0, 2**63 - 1)


class Recorded(EdgeClient):
    """Keeps what would be sent, and answers what it is told."""

    def __init__(self, answer: bytes = b"") -> None:
        super().__init__(Access("127.0.0.1:1", "topic", 2, "fragment", 7))
        self.sent = b""
        self._answer = answer

    def _call(self, method: str, request: bytes) -> bytes:
        self.sent = request
        return self._answer


WRITER = log.WriterRef(fragment_uid="fragment", epoch=7)


@given(INT64)
def test_numbers_come_back_with_their_sign(number: int) -> None:
    raw = log.OpenWriterResponse(batch_id=number).SerializeToString()
    assert dict(take(raw)).get(1, 0) == number
    assert log.OpenWriterResponse.FromString(put(1, number)).batch_id == number


@given(st.text(max_size=40), st.integers(1, 2**63 - 1))
@pytest.mark.slow
def test_a_writer_is_written_as_the_proto_says(uid: str, epoch: int) -> None:
    assert writer_ref(uid, epoch) == log.WriterRef(fragment_uid=uid, epoch=epoch).SerializeToString()


@given(st.integers(-1, 2**62), st.lists(st.text(max_size=20), min_size=1, max_size=4))
@pytest.mark.slow
def test_open_writer(batch: int, uids: list[str]) -> None:
    client = Recorded(log.OpenWriterResponse(batch_id=batch).SerializeToString())
    assert client.open_writer(uids) == batch
    assert log.OpenWriterRequest.FromString(client.sent) == log.OpenWriterRequest(writer=WRITER, topic_uids=uids)


@given(OFFSETS, st.lists(st.text(max_size=20), max_size=4), st.booleans(), st.booleans())
@pytest.mark.slow
def test_commit_batch(batch: int, stages: list[str], end: bool, already: bool) -> None:
    client = Recorded(log.CommitBatchResponse(already_committed=already).SerializeToString())
    assert client.commit(batch, stages, end=end) is already
    wanted = log.CommitBatchRequest(writer=WRITER, batch_id=batch, stage_ids=stages, end=end)
    assert log.CommitBatchRequest.FromString(client.sent) == wanted


@given(st.lists(st.tuples(OFFSETS, OFFSETS, OFFSETS, st.booleans()), max_size=5))
@pytest.mark.slow
def test_get_edge(partitions: list[tuple[int, int, int, bool]]) -> None:
    made = [log.EdgePartition(log_start=a, high_watermark=b, bytes=c, ended=d) for a, b, c, d in partitions]
    client = Recorded(log.GetEdgeResponse(partitions=made).SerializeToString())
    found = [(one.log_start, one.high_watermark, one.bytes, one.ended) for one in client.get()]
    assert found == partitions
    assert log.GetEdgeRequest.FromString(client.sent) == log.GetEdgeRequest(topic_uid="topic")


@given(st.lists(OFFSETS, max_size=6))
@pytest.mark.slow
def test_trim_edge(starts: list[int]) -> None:
    client = Recorded()
    client.trim(starts)
    wanted = log.TrimEdgeRequest(topic_uid="topic", reader=WRITER, log_starts=starts)
    assert log.TrimEdgeRequest.FromString(client.sent) == wanted


@given(st.integers(0, 2**31 - 1), st.lists(st.binary(max_size=30), max_size=5))
@pytest.mark.slow
def test_stage(partition: int, records: list[bytes]) -> None:
    raw = Recorded()._stage_request("stage", "topic", partition, records)
    wanted = log.StageRequest(writer=WRITER, stage_id="stage", topic_uid="topic", partition=partition, batches=records)
    assert log.StageRequest.FromString(raw) == wanted


@given(st.lists(OFFSETS, max_size=5), st.lists(st.binary(max_size=9), max_size=5), st.booleans())
@pytest.mark.slow
def test_fields_of_any_message_are_found(numbers: list[int], blobs: list[bytes], ended: bool) -> None:
    raw = put_packed(3, numbers) + b"".join(put_item(2, blob) for blob in blobs) + put(4, int(ended))
    found = list(take(raw))
    assert [bytes(value) for number, value in found if number == 2] == blobs
    assert read_partition(memoryview(put(4, int(ended)))).ended is ended


def test_a_message_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(EdgeError, match="wire type"):
        list(take(b"\x0b\x01"))


def test_executors_need_nothing_of_ours_but_their_own_folder() -> None:
    folder = Path(headgate_engine.executor.__file__).parent
    allowed = ("grpc", "pyarrow", "pyspark", "headgate_engine.executor")
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                ours = name.startswith(("headgate", "google")) or name.split(".")[0] in ("pandas", "numpy")
                assert not ours or name.startswith(allowed), f"{path.name} imports {name}"
