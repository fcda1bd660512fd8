"""Real coordinators and log agents as processes, and a client that talks to whichever agent is there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import Message
from google.rpc import status_pb2

from headgate.log import v1 as api
from headgate.log.v1 import log_service_pb2, topic_service_pb2
from headgate_common.calls import DETAILS_HEADER
from headgate_common.dispatch import methods
from headgate_common.errors import HeadgateError, from_code, from_status
from tests.e2e.life.kit import Cluster, Process, cluster_of, until

_METHODS = {
    method.request.DESCRIPTOR.full_name: method
    for file in (log_service_pb2, topic_service_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in methods(service).values()
}


def call(address: str, request: Message, timeout: float = 10.0) -> Any:
    """One call of the log's API; errors come back as `HeadgateError`."""
    method = _METHODS[request.DESCRIPTOR.full_name]
    with grpc.insecure_channel(address) as channel:
        stub = channel.unary_unary(method.path, type(request).SerializeToString, method.response.FromString)
        try:
            return stub(request, timeout=timeout)
        except grpc.RpcError as error:
            failed: Any = error
            for key, value in failed.trailing_metadata() or ():
                if key == DETAILS_HEADER:
                    raise from_status(status_pb2.Status.FromString(value)) from None
            raise from_code(failed.code(), failed.details()) from None


class Log:
    """Topics of a cluster of processes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def create(self, name: str, partitions: int = 1, *, wal: bool = False) -> api.Topic:
        durability = api.DURABILITY_WAL if wal else api.DURABILITY_OBJECT
        request = api.CreateTopicRequest(
            name=name, partitions=partitions, settings=api.TopicSettings(durability=durability), request_id=name
        )
        topic: api.Topic = call(self.cluster.coordinator.address, request).topic
        until(lambda: all(one.leader for one in self.partitions(name)), f"{name} to be led", 20)
        return topic

    def partitions(self, topic: str) -> list[api.Partition]:
        answer = call(self.cluster.coordinator.address, api.ListPartitionsRequest(topic=topic))
        return list(answer.partitions)

    def leaders(self, topic: str) -> dict[int, str]:
        return {one.index: one.leader for one in self.partitions(topic)}

    def produce(
        self, topic: str, partition: int, value: bytes, *, through: Process | None = None, timeout: float = 10.0
    ) -> int:
        """Produces one record through one agent, or through any that takes it, and returns its offset."""
        request = api.ProduceRecordsRequest(topic=topic, partition=partition, records=[api.Record(value=value)])
        if through is not None:
            return int(call(through.address, request, timeout).positions[0].offset)
        deadline = time.monotonic() + 30
        while True:
            for agent in self.cluster.agents.values():
                if agent.running is None:
                    continue
                try:
                    return int(call(agent.address, request, timeout=3).positions[0].offset)
                except HeadgateError as error:
                    last = error
            assert time.monotonic() < deadline, f"nobody takes it: {last}"
            time.sleep(0.05)

    def values(self, topic: str, partition: int, through: Process) -> list[bytes]:
        found: list[bytes] = []
        offset = 0
        while True:
            request = api.FetchRecordsRequest(topic=topic, partition=partition, max_records=1000)
            getattr(request, "from").offset = offset
            answer: api.FetchRecordsResponse = call(through.address, request)
            if not answer.records:
                return found
            found += [record.value for record in answer.records]
            offset = answer.next_offset

    def epoch(self, topic: str, partition: int) -> int:
        return self.partitions(topic)[partition].epoch


@contextmanager
def log_of(folder: Path, *agents: str, options: tuple[str, ...] = ()) -> Iterator[Log]:
    with cluster_of(folder, *agents, options=options) as cluster:
        for name in agents:
            until(partial(_is_present, cluster, name), f"{name} to be present")
        yield Log(cluster)


def _is_present(cluster: Cluster, name: str) -> bool:
    return cluster.agent(name).present


__all__ = ["Log", "call", "log_of", "until"]
