"""LogMetadataService: what leaders of partitions and groups ask of the catalog.

Every change is safe to repeat: by the uid of a segment or transfer, by what is held already, or because it only raises
something. So there is no request_id here. Changes need the leading coordinator; reads do not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headgate.log import v1 as log
from headgate.log.v1 import log_metadata_service_pb2
from headgate_common.dispatch import Call
from headgate_coordinator.api.mutations import Leading, naming_leader
from headgate_coordinator.catalog.log import counters, edge_runs, groups, handover, leads, segments
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx

T = TypeVar("T")


class LogMetadataService:
    descriptor = log_metadata_service_pb2.DESCRIPTOR.services_by_name["LogMetadataService"]

    def __init__(self, store: Store, leading: Leading, rules: TopicRules) -> None:
        self._store = store
        self._leading = leading
        self._rules = rules

    async def acquire_partitions(
        self, request: log.AcquirePartitionsRequest, call: Call
    ) -> log.AcquirePartitionsResponse:
        return await self._write(lambda tx: leads.acquire_partitions(tx, request, self._rules.max_acquired_bytes), call)

    async def release_partitions(
        self, request: log.ReleasePartitionsRequest, call: Call
    ) -> log.ReleasePartitionsResponse:
        return await self._write(lambda tx: leads.release_partitions(tx, request), call)

    async def reserve_offsets(self, request: log.ReserveOffsetsRequest, call: Call) -> log.ReserveOffsetsResponse:
        return await self._write(lambda tx: leads.reserve_offsets(tx, request), call)

    async def commit_segments(self, request: log.CommitSegmentsRequest, call: Call) -> log.CommitSegmentsResponse:
        return await self._write(lambda tx: segments.commit_segments(tx, request, self._rules.max_producers), call)

    async def replace_segments(self, request: log.ReplaceSegmentsRequest, call: Call) -> log.ReplaceSegmentsResponse:
        return await self._write(lambda tx: segments.replace_segments(tx, request), call)

    async def trim_partitions(self, request: log.TrimPartitionsRequest, call: Call) -> log.TrimPartitionsResponse:
        return await self._write(lambda tx: segments.trim_partitions(tx, request), call)

    async def list_segments(self, request: log.ListSegmentsRequest, call: Call) -> log.ListSegmentsResponse:
        return await self._store.read(lambda tx: segments.list_segments(tx, request))

    async def find_objects(self, request: log.FindObjectsRequest, call: Call) -> log.FindObjectsResponse:
        return await self._store.read(lambda tx: segments.find_objects(tx, request))

    async def open_edge(self, request: log.OpenEdgeRequest, call: Call) -> log.OpenEdgeResponse:
        return await self._write(lambda tx: edge_runs.open_edge(tx, request), call)

    async def commit_stages(self, request: log.CommitStagesRequest, call: Call) -> log.CommitStagesResponse:
        return await self._write(lambda tx: edge_runs.commit_stages(tx, request), call)

    async def find_writers(self, request: log.FindWritersRequest, call: Call) -> log.FindWritersResponse:
        return await self._store.read(lambda tx: edge_runs.find_writers(tx, request))

    async def create_producer_id(
        self, request: log.CreateProducerIdRequest, call: Call
    ) -> log.CreateProducerIdResponse:
        def take(tx: Tx) -> log.CreateProducerIdResponse:
            first = counters.take(tx, counters.PRODUCER_ID, request.count or 1)
            return log.CreateProducerIdResponse(producer_id=first)

        return await self._write(take, call)

    async def acquire_group(self, request: log.AcquireGroupRequest, call: Call) -> log.AcquireGroupResponse:
        return await self._write(lambda tx: groups.acquire_group(tx, request, self._rules), call)

    async def release_groups(self, request: log.ReleaseGroupsRequest, call: Call) -> log.ReleaseGroupsResponse:
        return await self._write(lambda tx: groups.release_groups(tx, request), call)

    async def commit_group_offsets(
        self, request: log.CommitGroupOffsetsRequest, call: Call
    ) -> log.CommitGroupOffsetsResponse:
        return await self._write(lambda tx: groups.commit_group_offsets(tx, request), call)

    async def start_transfers(self, request: log.StartTransfersRequest, call: Call) -> log.StartTransfersResponse:
        return await self._write(lambda tx: handover.start_transfers(tx, request), call)

    async def answer_transfers(self, request: log.AnswerTransfersRequest, call: Call) -> log.AnswerTransfersResponse:
        return await self._write(lambda tx: handover.answer_transfers(tx, request), call)

    async def complete_transfers(
        self, request: log.CompleteTransfersRequest, call: Call
    ) -> log.CompleteTransfersResponse:
        return await self._write(lambda tx: handover.complete_transfers(tx, request), call)

    async def _write(self, operation: Callable[[Tx], T], call: Call) -> T:
        with naming_leader(call):
            return await self._store.write(operation, self._leading.require_term())
