"""The catalog as this agent sees it: agents, topics, leaders and hand-overs, followed by one watch.

The watch resumes where it broke off; where its history is gone it begins again with a snapshot, which replaces all that
was known in one step. So what is read here is always the state of one revision, perhaps an old one. `age` says how long
nothing was heard: what is decided here is only who should try, and the catalog refuses whoever should not.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import watch_service_pb2
from headgate.log import v1 as log_api
from headgate_agent.coordinators import Coordinators
from headgate_agent.log.access import Leadership, Peer
from headgate_agent.log.contract import PartitionKey
from headgate_agent.log.store_identity import LABEL
from headgate_common.backoff import Backoff
from headgate_common.clock import Clock
from headgate_common.dispatch import methods
from headgate_common.errors import HeadgateError

log = logging.getLogger(__name__)

_WATCH = methods(watch_service_pb2.DESCRIPTOR.services_by_name["WatchService"])["Watch"]
_KINDS = (
    catalog.RESOURCE_KIND_AGENT,
    catalog.RESOURCE_KIND_TOPIC,
    catalog.RESOURCE_KIND_PARTITION,
    catalog.RESOURCE_KIND_TRANSFER,
)
_NOBODY = Leadership("", 0)
_OPEN = (log_api.TRANSFER_STATE_PENDING, log_api.TRANSFER_STATE_ACCEPTED)
# A watch that brings nothing for this long, not even a bookmark, is broken, in seconds.
SILENCE = 30.0


@dataclass(slots=True)
class _State:
    """What is known at one revision."""

    peers: dict[str, Peer] = field(default_factory=dict)
    topics: dict[str, log_api.Topic] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    leaders: dict[PartitionKey, Leadership] = field(default_factory=dict)
    transfers: dict[str, log_api.Transfer] = field(default_factory=dict)

    def put(self, resource: catalog.Resource) -> None:
        match resource.WhichOneof("resource"):
            case "agent":
                self._put_agent(resource.agent)
            case "topic":
                self.topics[resource.topic.uid] = resource.topic
                self.names[resource.topic.name] = resource.topic.uid
            case "partition":
                one = resource.partition
                key = PartitionKey(one.topic_uid, one.index)
                self.leaders[key] = Leadership(one.leader, one.epoch, one.waiting, one.volume_id)
            case "transfer":
                if resource.transfer.state in _OPEN:
                    self.transfers[resource.transfer.uid] = resource.transfer
                else:
                    self.transfers.pop(resource.transfer.uid, None)

    def drop(self, resource: catalog.Resource) -> None:
        match resource.WhichOneof("resource"):
            case "agent":
                self.peers.pop(resource.agent.name, None)
            case "topic":
                topic = resource.topic
                self.topics.pop(topic.uid, None)
                if self.names.get(topic.name) == topic.uid:
                    del self.names[topic.name]
                for index in range(topic.partitions):
                    self.leaders.pop(PartitionKey(topic.uid, index), None)
            case "partition":
                self.leaders.pop(PartitionKey(resource.partition.topic_uid, resource.partition.index), None)
            case "transfer":
                self.transfers.pop(resource.transfer.uid, None)

    def _put_agent(self, agent: catalog.Agent) -> None:
        if agent.roles and catalog.AGENT_ROLE_LOG not in agent.roles:
            self.peers.pop(agent.name, None)
            return
        self.peers[agent.name] = Peer(
            agent.name,
            agent.node_id,
            agent.address,
            agent.kafka_address,
            agent.zone,
            agent.group,
            agent.present,
            agent.labels.get(LABEL, ""),
        )


class CatalogView:
    """`access.ClusterView`."""

    def __init__(
        self,
        coordinators: Coordinators,
        *,
        clock: Clock,
        source: random.Random,
        backoff: Backoff,
        silence: float = SILENCE,
    ) -> None:
        self._coordinators = coordinators
        self._clock = clock
        self._random = source
        self._backoff = backoff
        self._silence = silence
        self._state = _State()
        self._listeners: list[Callable[[], None]] = []
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._heard = clock.monotonic()
        # The revision of what is known; 0 before the first snapshot.
        self.revision = 0

    def peers(self) -> Iterable[Peer]:
        return self._state.peers.values()

    def peer(self, name: str) -> Peer | None:
        return self._state.peers.get(name)

    def topics(self) -> Iterable[log_api.Topic]:
        return self._state.topics.values()

    def topic(self, name: str) -> log_api.Topic | None:
        return self._state.topics.get(self._state.names.get(name, ""))

    def topic_by_uid(self, uid: str) -> log_api.Topic | None:
        return self._state.topics.get(uid)

    def leadership(self, key: PartitionKey) -> Leadership:
        return self._state.leaders.get(key, _NOBODY)

    def transfers(self) -> Iterable[log_api.Transfer]:
        """Hand-overs that have not ended."""
        return self._state.transfers.values()

    @property
    def age(self) -> float:
        """Seconds since the catalog was last heard of."""
        return self._clock.monotonic() - self._heard

    async def caught_up(self, revision: int) -> None:
        if revision <= self.revision:
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting.append((revision, waiting))
        await waiting

    def listen(self, changed: Callable[[], None]) -> None:
        """`changed` is called after every change, and must not wait."""
        self._listeners.append(changed)

    async def run(self) -> None:
        """Follows the catalog until it is cancelled."""
        attempt = 0
        while True:
            before = self.revision
            try:
                await self._follow()
                problem = "the watch ended"
            except HeadgateError as error:
                problem = str(error)
                if error.reason.name in ("REVISION_COMPACTED", "REVISION_IN_FUTURE"):
                    self.revision = 0
            except TimeoutError:
                problem = f"nothing was heard for {self._silence:g} s"
            attempt = 0 if self.revision > before else attempt + 1
            log.info("watch broke off", extra={"error": problem, "revision": self.revision})
            await asyncio.sleep(self._backoff.delay(attempt, self._random))

    async def _follow(self) -> None:
        request = catalog.WatchRequest(kinds=_KINDS, from_revision=self.revision)
        async with aclosing(self._coordinators.stream(_WATCH, request)) as answers:
            snapshot = _State()
            while True:
                async with asyncio.timeout(self._silence):
                    answer = await anext(answers, None)
                if answer is None:
                    return
                assert isinstance(answer, catalog.WatchResponse)
                self._heard = self._clock.monotonic()
                match answer.WhichOneof("message"):
                    case "snapshot":
                        for resource in answer.snapshot.resources:
                            snapshot.put(resource)
                        if answer.snapshot.complete:
                            self._state, snapshot = snapshot, _State()
                            self._moved(answer.snapshot.revision)
                    case "events":
                        for event in answer.events.events:
                            self._apply(event)
                        self._moved(answer.events.revision)
                    case "bookmark":
                        self._moved(answer.bookmark.revision)

    def _apply(self, event: catalog.WatchEvent) -> None:
        if event.operation == catalog.WATCH_OPERATION_DROP:
            self._state.drop(event.previous)
        else:
            self._state.put(event.current)

    def _moved(self, revision: int) -> None:
        self.revision = revision
        left: list[tuple[int, asyncio.Future[None]]] = []
        for wanted, waiting in self._waiting:
            if wanted > revision:
                left.append((wanted, waiting))
            elif not waiting.done():
                waiting.set_result(None)
        self._waiting = left
        for changed in self._listeners:
            changed()
