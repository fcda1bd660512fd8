"""The Kafka port of an agent, put together."""

from __future__ import annotations

import asyncio
import random
import ssl

from prometheus_client import CollectorRegistry

from headgate_agent.groups.asking import Asking, Caller
from headgate_agent.groups.catalog import GroupCatalog
from headgate_agent.groups.forwarding import ForwardedOffsets
from headgate_agent.groups.groups import Groups, GroupTimings
from headgate_agent.groups.machine import Rules
from headgate_agent.kafka.catalog import TopicCatalog
from headgate_agent.kafka.codec import Header
from headgate_agent.kafka.config import GroupLimits, KafkaConfig
from headgate_agent.kafka.connection import Answer, Client
from headgate_agent.kafka.listener import Listener
from headgate_agent.kafka.service import KafkaService
from headgate_agent.log.access import ClusterView, LogAccess
from headgate_agent.log.certainty import Certainty
from headgate_common.clock import Clock
from headgate_common.dispatch import Transport
from headgate_common.ids import Ids
from headgate_common.metrics import gauge
from headgate_common.settings import TlsConfig
from headgate_common.tls import advertised, http_context, join_address, split_address


def rules_of(limits: GroupLimits) -> Rules:
    return Rules(
        session_timeout_min=limits.session_timeout_min,
        session_timeout_max=limits.session_timeout_max,
        rebalance_timeout_max=limits.rebalance_timeout_max,
        max_size=limits.max_size,
        member_bytes=limits.member_bytes,
        group_bytes=limits.group_bytes,
        initial_rebalance_delay=limits.initial_rebalance_delay,
        tick_interval=limits.tick_interval,
    )


def timings_of(limits: GroupLimits) -> GroupTimings:
    return GroupTimings(
        forget_after=limits.forget_after, look_interval=limits.look_interval, looks_back=limits.looks_back
    )


def asking(caller: Caller, clock: Clock, source: random.Random, config: KafkaConfig) -> Asking:
    return Asking(caller, clock, source, config.catalog.backoff)


def make_groups(
    agent: str,
    view: ClusterView,
    caller: Caller,
    certainty: Certainty,
    config: KafkaConfig,
    *,
    clock: Clock,
    source: random.Random,
) -> Groups:
    """`certainty` is of this agent's session."""
    limits = config.groups
    catalog = GroupCatalog(asking(caller, clock, source, config), limits.catalog_timeout)
    return Groups(agent, view, catalog, certainty, rules_of(limits), clock, timings_of(limits))


def make_offsets(agent: str, groups: Groups, transport: Transport, config: KafkaConfig) -> ForwardedOffsets:
    """`access.GroupOffsets` for the agent's gRPC service."""
    return ForwardedOffsets(agent, groups, transport, config.groups.catalog_timeout)


def tls_context(tls: TlsConfig) -> ssl.SSLContext | None:
    """TLS for Kafka clients as for callers over gRPC; None without. Clients show a certificate where callers must."""
    context = http_context(tls)
    if context is not None and tls.client_ca is not None:
        context.load_verify_locations(tls.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class KafkaPort:
    """Life: `bind` takes the address, before the agent registers, because it tells it; `start` answers clients, once
    there is a log; `close` lets requests in flight finish. `run` is to be supervised from `bind` on, `groups.run()`
    beside it, and `groups.leave()` called before the agent's session ends."""

    def __init__(self, config: KafkaConfig, clock: Clock) -> None:
        self._config, self._clock = config, clock
        self._listener: Listener | None = None
        self._service: KafkaService | None = None
        self._ready = asyncio.Event()
        self._tls = False
        # Where it listens and what clients are told; known after `bind`.
        self.bound = ""
        self.advertised = ""

    async def bind(self, context: ssl.SSLContext | None = None) -> str:
        """Takes the address; requests wait until `start`. Answers what other agents and clients are to be told. With
        `context`, clients must use TLS."""
        self._tls = context is not None
        host, port = split_address(self._config.listen)
        self._listener = Listener(self._answer, self._config.limits, self._clock)
        self.bound = join_address(*await self._listener.start(host, port, context))
        self.advertised = advertised(self._config.advertise, self.bound)
        return self.advertised

    async def run(self) -> None:
        """Cuts off clients that are idle or stall, until it is cancelled."""
        await self.listener.run()

    def start(
        self,
        agent: str,
        access: LogAccess,
        groups: Groups,
        caller: Caller,
        *,
        ids: Ids,
        source: random.Random,
        registry: CollectorRegistry | None = None,
    ) -> None:
        config = self._config
        catalog = TopicCatalog(
            asking(caller, self._clock, source, config), access.view, ids, self._clock, config.catalog
        )
        self._service = KafkaService(
            agent, access, groups, catalog, self._config, ids, self._clock, registry, tls=self._tls
        )
        if registry is not None:
            self._publish(registry, self._service)
        self._ready.set()

    def _publish(self, registry: CollectorRegistry, service: KafkaService) -> None:
        listener = self.listener
        gauge(registry, "headgate_kafka_connections", "Connections of Kafka clients.", lambda: listener.connections)
        gauge(
            registry,
            "headgate_kafka_request_bytes",
            "Bytes of requests of Kafka clients that are held.",
            lambda: listener.buffered_bytes,
        )
        gauge(
            registry,
            "headgate_kafka_answer_bytes",
            "Bytes of fetched records that Kafka clients have not taken yet.",
            lambda: service.answers.used,
        )

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        if self._service is not None:
            self._service.close()

    @property
    def listener(self) -> Listener:
        assert self._listener is not None, "bind comes first"
        return self._listener

    async def _answer(self, frame: memoryview, header: Header, client: Client) -> Answer:
        await self._ready.wait()
        assert self._service is not None
        return await self._service(frame, header, client)
