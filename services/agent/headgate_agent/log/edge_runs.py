"""What the catalog knows of the runs that write and read edges, asked as their leader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.log import v1 as api
from headgate_agent.log.contract import NotLeader, PartitionKey, SegmentInfo, StaleEpoch
from headgate_agent.log.metadata import LogCatalog, leader_ref, segment_of
from headgate_agent.log.writers import StaleWriter
from headgate_common.errors import HeadgateError

Leaders = Mapping[PartitionKey, int]


@dataclass(frozen=True, slots=True)
class Run:
    """The last run of a fragment on an edge, and how far its writes have come; see `writers.Writer`."""

    fragment: str
    epoch: int
    reads: bool = False
    batch_id: int = -1
    position: bytes = b""
    ended: bool = False


class EdgeCatalog(Protocol):
    """Each call checks the epochs of all leaders in its transaction and raises `NotLeader` if one has passed,
    `StaleWriter` if a later run has the edge open; then nothing has happened. It is repeated until it is answered or no
    longer `wanted`, and then it may have happened: `NotLeader` too."""

    async def open(self, leaders: Leaders, run: Run, wanted: Callable[[], bool]) -> Run:
        """Shuts older runs out; answers how far they came."""
        ...

    async def commit(
        self,
        leaders: Leaders,
        after: Run,
        segments: Sequence[tuple[PartitionKey, SegmentInfo]],
        wanted: Callable[[], bool],
    ) -> tuple[bool, Run]:
        """Shows segments and moves the writer on, all or none. Whether these segments are visible, and the writer."""
        ...


@dataclass(frozen=True, slots=True)
class CatalogRuns:
    """`EdgeCatalog` of the coordinator."""

    catalog: LogCatalog
    session: Callable[[], str | None]

    async def open(self, leaders: Leaders, run: Run, wanted: Callable[[], bool]) -> Run:
        request = api.OpenEdgeRequest(
            session_id=self._session(),
            leaders=[leader_ref(key, epoch) for key, epoch in leaders.items()],
            fragment_uid=run.fragment,
            epoch=run.epoch,
            reads=run.reads,
        )
        try:
            answer: api.OpenEdgeResponse = await self.catalog.ask("OpenEdge", request, wanted=wanted)
        except HeadgateError as error:
            raise _refusal(error) from error
        return run_of(answer.run)

    async def commit(
        self,
        leaders: Leaders,
        after: Run,
        segments: Sequence[tuple[PartitionKey, SegmentInfo]],
        wanted: Callable[[], bool],
    ) -> tuple[bool, Run]:
        request = api.CommitStagesRequest(
            session_id=self._session(),
            leaders=[leader_ref(key, epoch) for key, epoch in leaders.items()],
            writer=api.EdgeRun(
                fragment_uid=after.fragment,
                epoch=after.epoch,
                batch_id=after.batch_id,
                position=after.position,
                ended=after.ended,
            ),
            commits=[
                api.SegmentCommit(leader=leader_ref(key, leaders[key]), segment=segment_of(segment))
                for key, segment in segments
            ],
        )
        try:
            answer: api.CommitStagesResponse = await self.catalog.ask("CommitStages", request, wanted=wanted)
        except HeadgateError as error:
            raise _refusal(error) from error
        return answer.applied, run_of(answer.writer)

    def _session(self) -> str:
        session = self.session()
        if session is None:
            raise NotLeader("this agent has no session, so it leads nothing")
        return session


def run_of(run: api.EdgeRun) -> Run:
    return Run(run.fragment_uid, run.epoch, run.reads, run.batch_id, run.position, run.ended)


def _refusal(error: HeadgateError) -> Exception:
    if error.reason.name == "STALE_RUN":
        return StaleWriter(str(error))
    return StaleEpoch(str(error)) if error.reason.name == "STALE_EPOCH" else NotLeader(str(error))
