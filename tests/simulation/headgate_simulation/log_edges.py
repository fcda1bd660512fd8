"""A run that writes an edge in two steps: it stages records, then commits the stages of a batch by its id.

It does not know whether a call that failed has happened. So it commits the same stages again, or begins anew as a later
run, as a fragment would after a crash: then the edge says which batch was committed last, and it goes on behind that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.log import v1 as api
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.log import topics
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_simulation.coordinators import CoordinatorProcess
from headgate_simulation.plan import Operation
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.log_clients import LogClient

# Tries with what is staged before a run begins anew.
TRIES = 4
_AWAY = frozenset({"UNREACHABLE", "DEADLINE_EXCEEDED", "NOT_LEADER", "LEASE_CONFLICT", "SHUTTING_DOWN"})


async def create_pinned(client: LogClient, name: str, settings: api.TopicSettings, agent: str) -> api.Topic:
    """A topic that is pinned to an agent: by the catalog's own function, because only queries make such topics."""
    world = client.log.world
    while True:
        leading = world.leading()
        running = world.processes[leading].running if leading is not None else None
        if isinstance(running, CoordinatorProcess):
            return await running.store.write(
                lambda tx: topics.create(
                    tx, name=name, partition_count=1, wanted=settings, rules=TopicRules(), pinned_agent=agent
                )
            )
        await client.pause()


class Lost(Exception):
    """What was committed is gone, with the consent of an operator."""


class EdgeWriter:
    def __init__(self, client: LogClient, operation: Operation, topic: api.Topic) -> None:
        self._client = client
        self._operation = operation
        self._topic = topic
        self._source = client.source
        self._run = 1
        self._opened = False
        self._stages: list[str] = []
        self._staged = 0
        # The batch that is being written, and what is in it; all before it are committed.
        self._batch = 0
        self._values: list[list[str]] = []
        self.numbers = 0

    async def run(self, batches: int, pace: float) -> bool:
        """Whether all of it was written. Not where what was committed is lost with a disk, and an operator knows it:
        then a run would go on from a checkpoint, with what it read before."""
        while self._batch < batches:
            self._values = [
                [f"{self._operation.id}/{self.numbers + number}" for number in range(start, start + 2)]
                for start in range(0, 2 * self._source.randint(1, 2), 2)
            ]
            try:
                await self._write()
            except Lost:
                return False
            self.numbers += sum(len(values) for values in self._values)
            self._batch += 1
            if not await self._client.goes_on(pace):
                break
        return self._topic.name not in self._client.log.checker.given_up

    async def _write(self) -> None:
        """Until the batch is certainly committed."""
        tries = 0
        while True:
            try:
                if not self._opened and await self._open():
                    return
                if not self._stages:
                    await self._stage()
                request = api.CommitBatchRequest(writer=self._writer, batch_id=self._batch, stage_ids=self._stages)
                answer = await self._call("CommitBatch", request)
                if answer.already_committed and not tries:
                    fail("a batch is committed by whoever asks for it", f"{self._batch} of {self._operation.id}")
                self._stages = []
                return
            except HeadgateError as error:
                self._client.no_defect(error)
                tries += 1
                if error.reason.name == "STAGE_NOT_FOUND" or tries % TRIES == 0 or self._source.random() < 0.2:
                    # What was staged is this run's alone.
                    self._run, self._opened, self._stages = self._run + 1, False, []
            await self._client.pause()

    async def _open(self) -> bool:
        """Whether the batch turns out to be committed."""
        request = api.OpenWriterRequest(writer=self._writer, topic_uids=[self._topic.uid])
        last = (await self._call("OpenWriter", request)).batch_id
        self._opened = True
        if last < self._batch - 1 and self._topic.name in self._client.log.checker.given_up:
            raise Lost
        if last not in (self._batch - 1, self._batch):
            fail(
                "a committed batch stays committed",
                f"{self._operation.id} has committed {self._batch - 1}, and {self._topic.name} says {last}",
                (self._topic.name, f"{self._topic.uid}/0"),
            )
        return bool(last == self._batch)

    async def _stage(self) -> None:
        stages = []
        for values in self._values:
            self._staged += 1
            stages.append(f"{self._operation.id}-{self._run}-{self._staged}")
            request = api.StageRequest(
                writer=self._writer,
                stage_id=stages[-1],
                topic_uid=self._topic.uid,
                batches=[value.encode() for value in values],
            )
            await self._call("Stage", request)
        self._stages = stages

    @property
    def _writer(self) -> api.WriterRef:
        return api.WriterRef(fragment_uid=f"fragment-{self._operation.id}", epoch=self._run)

    async def _call(self, method: str, request: Any) -> Any:
        """At the leader: whoever does not lead names it, if it knows."""
        address = self._client.leader(self._topic, 0)
        try:
            answer = await self._client.call(address, method, request, self._operation.timeout)
        except HeadgateError as error:
            named = error.metadata.get("address", "")
            self._client.learn(self._topic, 0, named if named or error.reason.name in _AWAY else address)
            raise
        self._client.learn(self._topic, 0, address)
        return answer
