"""Disks that are lost for good, and an operator who accepts what is lost with them, and nothing else."""

from __future__ import annotations

import shutil
import threading
import time
from collections import defaultdict

import grpc

from headgate.log import v1 as log_api
from headgate.log.v1 import topic_service_pb2_grpc
from tests.chaos.history import Hole, Place
from tests.chaos.servers import LogAgent

LOOK = 0.5


def holes_in(partition: log_api.Partition) -> list[Hole]:
    return [Hole(hole.from_offset, hole.to_offset) for hole in partition.offsets.holes]


class Recovery:
    """Gives up partitions that wait for a volume which is lost, as `headgate topics recover --accept-loss` does. A
    partition that waits for any other volume keeps waiting. `accepted` are the holes that were reported for it."""

    def __init__(self, coordinator: str) -> None:
        self._coordinator = coordinator
        self._lost: set[str] = set()
        self._stop = threading.Event()
        self.accepted: defaultdict[Place, list[Hole]] = defaultdict(list)
        self._thread = threading.Thread(target=self._run, name="recovery", daemon=True)
        self._thread.start()

    def lose(self, agent: LogAgent) -> None:
        """The agent dies with its disk."""
        agent.kill()
        volume = agent.data / "volume"
        if volume.exists():
            self._lost.add(volume.read_text().strip())
        shutil.rmtree(agent.data, ignore_errors=True)

    def settle(self, seconds: float) -> None:
        """Returns when nothing waits for what is lost; AssertionError if something still does then."""
        deadline = time.monotonic() + seconds
        while waiting := self._waiting():
            assert time.monotonic() < deadline, f"{waiting} still wait for a lost volume"
            time.sleep(LOOK)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(LOOK):
            if self._lost:
                try:
                    self._look()
                except grpc.RpcError:
                    # The coordinator is away, or somebody leads it by now.
                    continue

    def _waiting(self) -> list[log_api.Partition]:
        try:
            with grpc.insecure_channel(self._coordinator) as channel:
                answer = topic_service_pb2_grpc.TopicServiceStub(channel).ListPartitions(
                    log_api.ListPartitionsRequest(), timeout=10, wait_for_ready=True
                )
        except grpc.RpcError:
            return [log_api.Partition(waiting="nobody answers")]
        return [one for one in answer.partitions if not one.leader and one.volume_id in self._lost]

    def _look(self) -> None:
        for partition in self._waiting():
            if not partition.topic:
                return
            # The same for the same loss: an answer that did not come is asked for again.
            request = log_api.RecoverPartitionsRequest(
                topic=partition.topic,
                partitions=[partition.index],
                accept_loss=True,
                request_id=f"{partition.topic}-{partition.index}-{partition.epoch}",
            )
            with grpc.insecure_channel(self._coordinator) as channel:
                stub = topic_service_pb2_grpc.TopicServiceStub(channel)
                (after,) = stub.RecoverPartitions(request, timeout=10, wait_for_ready=True).partitions
            self.accepted[Place(partition.topic, partition.index)] = holes_in(after)
