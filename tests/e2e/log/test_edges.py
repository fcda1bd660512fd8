"""Two-step writes over gRPC to a real agent, with SIGKILL between the steps."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from headgate.log import v1 as api
from headgate.log.v1 import edge_service_pb2_grpc, topic_service_pb2_grpc
from tests.chaos.servers import restartable_coordinator, running_log_agent

pytestmark = pytest.mark.slow
WAIT = 30.0


class Edge:
    def __init__(self, address: str, topic_uid: str) -> None:
        self._channel = grpc.insecure_channel(address)
        self.stub: Any = edge_service_pb2_grpc.EdgeServiceStub(self._channel)
        self.topic_uid = topic_uid

    def open(self, epoch: int) -> int:
        request = api.OpenWriterRequest(writer=writer(epoch), topic_uids=[self.topic_uid])
        return int(self.stub.OpenWriter(request, timeout=WAIT, wait_for_ready=True).batch_id)

    def stage(self, epoch: int, stage_id: str, partition: int, *values: bytes) -> None:
        self.stub.Stage(
            api.StageRequest(
                writer=writer(epoch), stage_id=stage_id, topic_uid=self.topic_uid, partition=partition, batches=values
            ),
            timeout=WAIT,
        )

    def commit(self, epoch: int, batch_id: int, *stages: str, end: bool = False) -> bool:
        request = api.CommitBatchRequest(writer=writer(epoch), batch_id=batch_id, stage_ids=stages, end=end)
        return bool(self.stub.CommitBatch(request, timeout=WAIT).already_committed)

    def read(self, partition: int) -> list[bytes]:
        found = self.stub.GetEdge(api.GetEdgeRequest(topic_uid=self.topic_uid), timeout=WAIT).partitions[partition]
        request = api.ReadEdgeRequest(
            topic_uid=self.topic_uid,
            partition=partition,
            from_offset=found.log_start,
            until_offset=found.high_watermark,
        )
        return [batch for part in self.stub.ReadEdge(request, timeout=WAIT) for batch in part.batches]

    def close(self) -> None:
        self._channel.close()


def writer(epoch: int) -> api.WriterRef:
    return api.WriterRef(fragment_uid="fragment-1", epoch=epoch)


def test_what_was_committed_is_there_once_after_the_agent_was_killed(tmp_path: Path) -> None:
    with (
        restartable_coordinator(tmp_path) as coordinator,
        running_log_agent(tmp_path, "a", coordinator.address) as agent,
        grpc.insecure_channel(coordinator.address) as channel,
    ):
        topics: Any = topic_service_pb2_grpc.TopicServiceStub(channel)
        settings = api.TopicSettings(durability=api.DURABILITY_WAL, max_message_bytes=16 << 20)
        made = topics.CreateTopic(api.CreateTopicRequest(name="edge", partitions=2, settings=settings), timeout=WAIT)
        edge = Edge(agent.address, made.topic.uid)
        assert _patiently(lambda: edge.open(1)) == -1
        edge.stage(1, "a", 0, b"one", b"two")
        edge.stage(1, "b", 1, b"x" * 3_000_000)
        assert edge.commit(1, 0, "a", "b") is False
        edge.stage(1, "c", 0, b"three")
        agent.kill()
        agent.start_again()
        edge.close()
        edge = Edge(agent.address, made.topic.uid)
        assert _patiently(lambda: edge.open(1)) == 0
        assert edge.commit(1, 0, "a", "b") is True, "the client did not know whether its commit had happened"
        assert edge.commit(1, 1, "c") is False
        assert edge.open(2) == 1
        with pytest.raises(grpc.RpcError, match="epoch 1") as caught:
            edge.commit(1, 2)
        assert caught.value.code() is grpc.StatusCode.ABORTED  # type: ignore[attr-defined]
        assert edge.commit(2, 2, end=True) is False
        assert edge.read(0) == [b"one", b"two", b"three", b""]
        assert [len(value) for value in edge.read(1)] == [3_000_000, 0]
        edge.stub.TrimEdge(
            api.TrimEdgeRequest(topic_uid=edge.topic_uid, reader=writer(2), log_starts=[2, 1]), timeout=WAIT
        )
        assert edge.read(0) == [b"three", b""]
        edge.close()


def test_an_agent_that_is_lost_with_its_disk_loses_no_batch_of_an_object_edge(tmp_path: Path) -> None:
    with (
        restartable_coordinator(tmp_path) as coordinator,
        running_log_agent(tmp_path, "a", coordinator.address) as lost,
        grpc.insecure_channel(coordinator.address) as channel,
    ):
        topics: Any = topic_service_pb2_grpc.TopicServiceStub(channel)
        settings = api.TopicSettings(durability=api.DURABILITY_OBJECT, max_message_bytes=16 << 20)
        made = topics.CreateTopic(api.CreateTopicRequest(name="edge", partitions=2, settings=settings), timeout=WAIT)
        edge = Edge(lost.address, made.topic.uid)
        assert _patiently(lambda: edge.open(1)) == -1
        for number in range(20):
            edge.stage(1, f"a{number}", 0, b"row %d" % number)
            edge.stage(1, f"b{number}", 1, b"x" * 100_000)
            assert edge.commit(1, number, f"a{number}", f"b{number}") is False
        edge.stage(1, "pending", 0, b"pending")
        lost.kill()
        edge.close()
        shutil.rmtree(tmp_path / "a")
        with running_log_agent(tmp_path, "b", coordinator.address) as agent:
            edge = Edge(agent.address, made.topic.uid)
            assert _patiently(lambda: edge.commit(1, 19, "a19", "b19")) is True
            assert edge.commit(1, 20, "pending") is False
            assert edge.open(2) == 20
            with pytest.raises(grpc.RpcError, match="epoch 1"):
                edge.commit(1, 21)
            assert edge.read(0) == [*(b"row %d" % number for number in range(20)), b"pending"]
            assert [len(value) for value in edge.read(1)] == [100_000] * 20
            edge.close()


def _patiently(action: Any) -> Any:
    """The agent may not lead yet."""
    deadline = time.monotonic() + WAIT
    while True:
        try:
            return action()
        except grpc.RpcError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
