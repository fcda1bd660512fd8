"""Producers, consumers and operators of topics, as the plan has them.

Each follows NOT_LEADER as a client should: to the agent that is named, or round all of them. A producer tries each
batch until it is acknowledged; one that is idempotent sends several at a time, and the same again after an error.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from headgate.log import v1 as api
from headgate.log.v1 import edge_service_pb2, log_metadata_service_pb2, log_service_pb2, topic_service_pb2
from headgate_agent.log.record_batch import HEADER_BYTES, encode
from headgate_agent.log.records import PlainRecord, pack
from headgate_common.dispatch import Method, methods
from headgate_common.errors import HeadgateError
from headgate_simulation.calls import CAUSE
from headgate_simulation.group_clients import Committer, Member
from headgate_simulation.log_edges import EdgeWriter, create_pinned
from headgate_simulation.log_promises import Record, records_of
from headgate_simulation.log_streams import ProduceStream
from headgate_simulation.loop import Domain
from headgate_simulation.plan import Operation
from headgate_simulation.processes import EPOCH
from headgate_simulation.streams import stream
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.log_world import LogWorld

METHODS: dict[str, Method] = {
    **methods(log_service_pb2.DESCRIPTOR.services_by_name["LogService"]),
    **methods(edge_service_pb2.DESCRIPTOR.services_by_name["EdgeService"]),
    **methods(topic_service_pb2.DESCRIPTOR.services_by_name["TopicService"]),
    "CreateProducerId": methods(log_metadata_service_pb2.DESCRIPTOR.services_by_name["LogMetadataService"])[
        "CreateProducerId"
    ],
}
# The timestamp of records, in milliseconds; where their topic keeps them for less than a day, it is that of the moment.
DAY = 86_400
NOW = int(EPOCH.timestamp() * 1000)
TIMEOUT = 3.0
# How long a consumer's request waits for records.
LONG_POLL = 2.0
# Once nothing is wrong any more, nobody does more than this many things of a kind, nor waits longer between them: it
# shows that all goes on, and the rest would be the same again.
LAST = 3
LAST_PACE = 0.1


class LogClient:
    """One client process: how it reaches coordinators and leaders."""

    def __init__(self, log: LogWorld, operation: Operation) -> None:
        world = log.world
        self.log = log
        self.name = f"client-{operation.id}"
        self.domain = Domain(self.name)
        self.source: random.Random = stream(world.plan.seed, f"log-client/{operation.id}")
        self._transport = world.network.transport(self.name, self.domain)
        self._coordinators = world.coordinator_addresses()
        self._agents = [spec.address for spec in world.plan.agents]
        self._turn = self.source.randrange(8)
        self._last = LAST
        # Where partitions are led, as far as it was told.
        self._leaders: dict[tuple[str, int], str] = {}

    async def ask_coordinator(self, method: str, request: Any, *, timeout: float = TIMEOUT) -> Any:
        """Any answer of the leading coordinator, however long it takes."""
        while True:
            address = self._coordinators[self._turn % len(self._coordinators)]
            try:
                return await self._transport.call(address, METHODS[method], request, timeout=timeout)
            except HeadgateError as error:
                if error.reason.name in _ANSWERS:
                    raise
                leader = error.metadata.get("leader", "")
                self._turn = self._coordinators.index(leader) if leader in self._coordinators else self._turn + 1
            await self.pause()

    async def call(self, address: str, method: str, request: Any, timeout: float = TIMEOUT) -> Any:
        world = self.log.world
        # What was lost before all was healed is not waited for much longer.
        timeout = min(timeout, max(LONG_POLL, world.plan.heals - world.loop.time()) + TIMEOUT)
        return await self.call_method(address, METHODS[method], request, timeout)

    async def call_method(self, address: str, method: Method, request: Any, timeout: float = TIMEOUT) -> Any:
        return await self._transport.call(address, method, request, timeout=timeout)

    def converse(self, address: str, method: str, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        return self._transport.converse(address, METHODS[method], requests, timeout=None)

    def anyone(self) -> str:
        """The address of the agent whose turn it is."""
        self._turn += 1
        return self._agents[self._turn % len(self._agents)]

    async def goes_on(self, pace: float) -> bool:
        """Waits between one thing and the next. False where it has done enough."""
        if self.log.world.healed:
            pace = min(pace, LAST_PACE)
            self._last -= 1
        await asyncio.sleep(self.source.uniform(0.0, 2.0 * pace))
        return self._last > 0

    @staticmethod
    def no_defect(error: HeadgateError) -> None:
        _no_defect(error)

    async def pause(self) -> None:
        await asyncio.sleep(self.source.uniform(0.05, 0.5))

    def leader(self, topic: api.Topic, index: int) -> str:
        known = self._leaders.get((topic.uid, index))
        if known is None:
            known = self.anyone()
        return known

    def learn(self, topic: api.Topic, index: int, address: str) -> None:
        """What an answer said of the leader; nothing, if it said nothing."""
        if address:
            self._leaders[topic.uid, index] = address
        else:
            self._leaders.pop((topic.uid, index), None)


# Of a coordinator: what would be answered the same another time.
_ANSWERS = frozenset(
    {"ALREADY_EXISTS", "TOPIC_NOT_FOUND", "PARTITION_LED", "PARTITION_NOT_FOUND", "TOPIC_IN_USE", "INVALID_ARGUMENT"}
)


class LogClients:
    def __init__(self, log: LogWorld) -> None:
        self._log = log
        self.kinds = {
            "create_topic": self._create_topic,
            "produce": self._produce,
            "produce_stream": self._produce,
            "produce_records": self._produce_records,
            "write_edge": self._write_edge,
            "consume": self._consume,
            "recover": self._recover,
            "delete_records": self._delete_records,
            "commit_offsets": self._commit_offsets,
            "join_group": self._join_group,
        }
        self._topics: dict[str, asyncio.Future[api.Topic]] = {}
        self.consumers: list[Consumer] = []
        # Those that store nothing twice; and of edges, by partition, which run has committed how many records.
        self.idempotent: set[str] = set()
        self.committed: dict[str, tuple[str, int]] = {}
        # Producers that lost what had been acknowledged, with the consent of an operator, and began anew.
        self.restarted: set[str] = set()
        # How often each record was sent and not refused for certain, of producers whose retries the log cannot know.
        self.sent: Counter[str] = Counter()

    async def perform(self, operation: Operation) -> None:
        client = LogClient(self._log, operation)
        CAUSE.set("")
        self._log.world.trace.note(client.name, operation.kind, operation.id, str(operation.get("topic", "")))
        await self.kinds[operation.kind](client, operation)
        self._log.world.trace.note(client.name, "done", operation.id, str(operation.get("topic", "")))

    @property
    def topics(self) -> list[asyncio.Future[api.Topic]]:
        return list(self._topics.values())

    def topic(self, name: str) -> asyncio.Future[api.Topic]:
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = self._log.world.loop.create_future()
        return found

    async def known_topic(self, name: str) -> api.Topic | None:
        """The topic once it is there; None if the plan does not make it."""
        operations = self._log.world.plan.operations
        if not any(each.kind == "create_topic" and each["topic"] == name for each in operations):
            return None
        return await asyncio.shield(self.topic(name))

    async def _create_topic(self, client: LogClient, operation: Operation) -> None:
        name = str(operation["topic"])
        settings = api.TopicSettings(durability=api.Durability.Value(f"DURABILITY_{operation['durability']}"))
        settings.linger.FromMilliseconds(_int(operation["linger"]))
        settings.segment_age.FromMilliseconds(_int(operation["segment_age"]))
        settings.segment_bytes = _int(operation["segment_bytes"])
        if operation.get("retention"):
            settings.retention.FromMilliseconds(_int(operation["retention"]))
        if operation.get("pinned"):
            self.topic(name).set_result(await create_pinned(client, name, settings, str(operation["pinned"])))
            return
        request = api.CreateTopicRequest(
            name=name, partitions=_int(operation["partitions"]), settings=settings, request_id=operation.id
        )
        answer = await client.ask_coordinator("CreateTopic", request)
        self.topic(name).set_result(answer.topic)

    async def _produce(self, client: LogClient, operation: Operation) -> None:
        topic = await self.known_topic(str(operation["topic"]))
        if topic is not None:
            await Producer(self, client, operation, topic).run()

    async def _produce_records(self, client: LogClient, operation: Operation) -> None:
        """Plain records, by whichever agent it asks."""
        topic = await self.known_topic(str(operation["topic"]))
        if topic is None:
            return
        index = _int(operation["partition"])
        for number in range(_int(operation["batches"])):
            values = [f"{operation.id}/{number}"]
            request = api.ProduceRecordsRequest(
                topic=topic.name, partition=index, records=[api.Record(value=value.encode()) for value in values]
            )
            while True:
                client.learn(topic, index, "")
                self.sent.update(values)
                try:
                    await client.call(client.leader(topic, index), "ProduceRecords", request, operation.timeout)
                    break
                except HeadgateError as error:
                    _no_defect(error)
                    if error.reason.name in _NOT_STORED:
                        self.sent.subtract(values)
                await client.pause()
            if not await client.goes_on(_float(operation["pace"])):
                return

    async def _write_edge(self, client: LogClient, operation: Operation) -> None:
        topic = await self.known_topic(str(operation["topic"]))
        if topic is not None:
            self.idempotent.add(operation.id)
            writer = EdgeWriter(client, operation, topic)
            if await writer.run(_int(operation["batches"]), _float(operation["pace"])):
                self.committed[f"{topic.uid}/0"] = (operation.id, writer.numbers)
            else:
                self.restarted.add(operation.id)

    async def _commit_offsets(self, client: LogClient, operation: Operation) -> None:
        topic = await self.known_topic(str(operation["topic"]))
        if topic is not None:
            committer = Committer(self._log, client, operation, topic)
            await committer.run(_int(operation["commits"]), _float(operation["pace"]))

    async def _join_group(self, client: LogClient, operation: Operation) -> None:
        topic = await self.known_topic(str(operation["topic"]))
        if topic is not None:
            await Member(self._log, client, operation, topic).run(_int(operation["rounds"]), _float(operation["pace"]))

    async def _consume(self, client: LogClient, operation: Operation) -> None:
        """Follows a partition until the run is over."""
        topic = await self.known_topic(str(operation["topic"]))
        if topic is not None:
            consumer = Consumer(self._log, client, topic, _int(operation["partition"]))
            self.consumers.append(consumer)
            consumer.task = self._log.world.spawn(consumer.run(), client.domain)

    async def _recover(self, client: LogClient, operation: Operation) -> None:
        topic = await self.known_topic(str(operation["topic"]))
        if topic is not None:
            await self.recover(client, topic.name)

    async def recover(self, client: LogClient, topic: str) -> None:
        self._log.checker.given_up.add(topic)
        try:
            await client.ask_coordinator(
                "RecoverPartitions", api.RecoverPartitionsRequest(topic=topic, accept_loss=True)
            )
        except HeadgateError as error:
            _no_defect(error)

    async def _delete_records(self, client: LogClient, operation: Operation) -> None:
        topic = await self.known_topic(str(operation["topic"]))
        if topic is None:
            return
        index = _int(operation["partition"])
        key = f"{topic.uid}/{index}"
        before = int(self._log.promises.of(key).end * _float(operation["share"]))
        history = self._log.checker.history(key)
        history.trimmed = max(history.trimmed, before)
        request = api.DeleteRecordsRequest(topic=topic.name, partition=index, before_offset=before)
        for _ in range(operation.attempts):
            client.learn(topic, index, "")
            try:
                await client.call(client.leader(topic, index), "DeleteRecords", request, operation.timeout)
                return
            except HeadgateError as error:
                _no_defect(error)
            await client.pause()


class Producer:
    """Batches of one producer to one partition."""

    def __init__(self, clients: LogClients, client: LogClient, operation: Operation, topic: api.Topic) -> None:
        self._clients = clients
        self._client = client
        self._operation = operation
        self._topic = topic
        self._index = _int(operation["partition"])
        self._idempotent = bool(operation["idempotent"])
        self._stream = ProduceStream(client) if operation.kind == "produce_stream" else None
        self._id = -1
        self._sequence = 0
        self._made = 0

    async def run(self) -> None:
        source, operation = self._client.source, self._operation
        if self._idempotent:
            self._clients.idempotent.add(operation.id)
            await self._begin()
        left = _int(operation["batches"])
        while left:
            count = min(left, source.randint(1, 3) if self._idempotent else 1)
            left -= count
            await self._send([self._batch(source.randint(1, 3)) for _ in range(count)])
            if not await self._client.goes_on(_float(operation["pace"])):
                break
        if self._stream is not None:
            await self._stream.close(operation.timeout)

    async def _begin(self) -> None:
        answer = await self._client.ask_coordinator("CreateProducerId", api.CreateProducerIdRequest())
        self._id, self._sequence = answer.producer_id, 0

    def _batch(self, count: int) -> list[str]:
        values = [f"{self._operation.id}/{self._made + number}" for number in range(count)]
        self._made += count
        return values

    async def _send(self, batches: list[list[str]]) -> None:
        """Until each is acknowledged."""
        waiting = self._encoded(batches)
        client, topic, index = self._client, self._topic, self._index
        while waiting:
            request = api.ProduceRequest(
                parts=[api.ProducePart(topic_uid=topic.uid, partition=index, batches=data) for _, data in waiting]
            )
            address = client.leader(topic, index)
            if not self._idempotent:
                self._clients.sent.update(value for values, _ in waiting for value in values)
            try:
                answered = await self._produce(address, request)
            except HeadgateError as error:
                _no_defect(error)
                client.learn(topic, index, "")
            else:
                head = answered[0]
                if head.error_reason == "SEQUENCE_REFUSED":
                    await self._begin_anew(head.error_message)
                    waiting = self._encoded([values for values, _ in waiting])
                    continue
                for (values, _), part in zip(waiting, answered, strict=False):
                    if part.error_reason:
                        _no_defect_reason(part.error_reason, part.error_message)
                        if not self._idempotent and part.error_reason in _NOT_STORED:
                            self._clients.sent.subtract(values)
                client.learn(topic, index, head.leader_address if head.error_reason else address)
                refused = [one for one, part in zip(waiting, answered, strict=False) if part.error_reason]
                waiting = refused + waiting[len(answered) :]
            if waiting:
                await client.pause()

    async def _produce(self, address: str, request: api.ProduceRequest) -> Sequence[api.ProducedPart]:
        timeout = self._operation.timeout
        if self._stream is not None:
            return await self._stream.produce(address, request, timeout)
        answer: api.ProduceResponse = await self._client.call(address, "Produce", request, timeout)
        return answer.parts

    async def _begin_anew(self, message: str) -> None:
        """The log knows less of this producer than it acknowledged."""
        log = self._clients._log
        if self._topic.name not in log.checker.given_up:
            fail(
                "what is known of producers survives",
                f"{self._operation.id} was refused by {self._topic.name}/{self._index}: {message}",
                (self._topic.name, f"{self._topic.uid}/{self._index}"),
            )
        self._clients.restarted.add(self._operation.id)
        await self._begin()

    def _encoded(self, batches: Sequence[list[str]]) -> list[tuple[list[str], bytes]]:
        made = []
        now = NOW
        if self._topic.settings.retention.seconds < DAY:
            now += int(self._clients._log.world.loop.time() * 1000)
        for values in batches:
            (plain,) = pack([PlainRecord(None, value.encode(), now) for value in values], 1 << 20)
            if self._idempotent:
                producer = (self._id, 0, self._sequence)
                plain = bytes(encode(plain[HEADER_BYTES:], len(values), timestamp=now, producer=producer))
                self._sequence += len(values)
            made.append((values, plain))
        return made


class Consumer:
    """Follows one partition from its start. `position` is the next offset that it wants."""

    def __init__(self, log: LogWorld, client: LogClient, topic: api.Topic, index: int) -> None:
        self._client = client
        self.topic = topic
        self.index = index
        self.key = f"{topic.uid}/{index}"
        self.name = client.name
        self.position = 0
        # Where it began, or began again behind what was trimmed away, and what it saw from there on.
        self.began = 0
        self.seen: list[Record] = []
        self.task: asyncio.Task[None] | None = None

    async def run(self, until: int | None = None) -> None:
        """Without an end, or up to an offset."""
        client, topic, index = self._client, self.topic, self.index
        while until is None or self.position < until:
            request = api.FetchRequest(
                parts=[api.FetchPart(topic_uid=topic.uid, partition=index, offset=self.position, max_bytes=2000)]
            )
            request.max_wait.FromNanoseconds(int(LONG_POLL * 1e9))
            address = client.leader(topic, index)
            try:
                answer = await client.call(address, "Fetch", request, LONG_POLL + TIMEOUT)
            except HeadgateError as error:
                _no_defect(error)
                client.learn(topic, index, "")
                await client.pause()
                continue
            (part,) = answer.parts
            if part.error_reason == "OFFSET_OUT_OF_RANGE" and part.log_start > self.position:
                self.position = self.began = part.log_start
                self.seen = []
            elif part.error_reason:
                _no_defect_reason(part.error_reason, part.error_message)
                client.learn(topic, index, part.leader_address)
                await client.pause()
            else:
                client.learn(topic, index, address)
                self._take(records_of(part.batches))

    def _take(self, records: Sequence[Record]) -> None:
        for record in records:
            if record.offset >= self.position:
                self.seen.append(record)
                self.position = record.offset + 1


# What a server says of records of which nothing is stored.
_NOT_STORED = frozenset({"NOT_LEADER", "LEASE_CONFLICT", "STALE_EPOCH", "WAL_UNAVAILABLE", "UNKNOWN_PARTITION"})
# What a server says of a defect of its own.
_DEFECTS = frozenset({"INTERNAL", "DATA_DAMAGED", "CORRUPT_BATCH", "RECORDS_REFUSED", "RECORD_TOO_LARGE"})


def _no_defect(error: HeadgateError) -> None:
    _no_defect_reason(error.reason.name, str(error))


def _no_defect_reason(reason: str, message: str) -> None:
    if reason in _DEFECTS:
        fail("no defects", f"{reason}: {message}")


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def _float(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
