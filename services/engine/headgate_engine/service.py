"""EngineService: what agents call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

from headgate.engine import v1 as engine
from headgate.engine.v1 import engine_service_pb2
from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError
from headgate_engine.batch import Batches
from headgate_engine.errors import ENGINE_WARMING_UP, RUN_ACTIVE
from headgate_engine.fragments.runs import Runs

_PAGE = 100


class EngineService:
    descriptor = engine_service_pb2.DESCRIPTOR.services_by_name["EngineService"]

    def __init__(
        self,
        runs: Runs,
        batches: Batches,
        remove: Callable[[engine.DeleteCheckpointRequest], Awaitable[None]],
        incarnation: str,
        ready: Callable[[], bool],
    ) -> None:
        """`remove` removes the checkpoint of a fragment."""
        self._remove = remove
        self._runs = runs
        self._batches = batches
        self._incarnation = incarnation
        self._ready = ready

    async def start_fragment(self, request: engine.StartFragmentRequest, call: Call) -> engine.StartFragmentResponse:
        self._require_ready()
        return engine.StartFragmentResponse(run=await self._runs.start(request))

    async def stop_fragment(self, request: engine.StopFragmentRequest, call: Call) -> engine.StopFragmentResponse:
        run = self._runs.stop(request.run, soft=request.mode == engine.STOP_MODE_SOFT)
        return engine.StopFragmentResponse(run=run)

    async def get_fragment(self, request: engine.GetFragmentRequest, call: Call) -> engine.GetFragmentResponse:
        return engine.GetFragmentResponse(run=self._runs.get(request.run))

    async def list_fragments(self, request: engine.ListFragmentsRequest, call: Call) -> engine.ListFragmentsResponse:
        runs, following = self._runs.page(request.page_token, request.page_size or _PAGE)
        return engine.ListFragmentsResponse(runs=runs, next_page_token=following)

    async def keep_alive(self, request: engine.KeepAliveRequest, call: Call) -> engine.KeepAliveResponse:
        missing = self._runs.keep(request.runs)
        return engine.KeepAliveResponse(incarnation=self._incarnation, missing=missing)

    async def watch_progress(
        self, request: engine.WatchProgressRequest, call: Call
    ) -> AsyncGenerator[engine.WatchProgressResponse, None]:
        async for run in self._runs.watch(request.runs):
            yield engine.WatchProgressResponse(run=run)

    async def delete_checkpoint(
        self, request: engine.DeleteCheckpointRequest, call: Call
    ) -> engine.DeleteCheckpointResponse:
        self._require_ready()
        if any(record.run.ref.fragment_uid == request.fragment_uid for record in self._runs.active()):
            raise HeadgateError(RUN_ACTIVE, f"a run of {request.fragment_uid} is here; stop it first")
        await self._remove(request)
        return engine.DeleteCheckpointResponse()

    async def execute_batch(
        self, request: engine.ExecuteBatchRequest, call: Call
    ) -> AsyncGenerator[engine.ExecuteBatchResponse, None]:
        self._require_ready()
        async for response in self._batches.execute(request):
            yield response

    def _require_ready(self) -> None:
        if not self._ready():
            raise HeadgateError(ENGINE_WARMING_UP, "Spark is warming up; try again in a few seconds")
