"""The coordinator put together: its services, its controllers, and what they share.

The same in a process of its own and in the simulator, which hand in the store, the transport, the clock and the sources
of chance.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence

from headgate_common.clock import Clock
from headgate_common.dispatch import Service, Transport
from headgate_common.ids import Ids
from headgate_coordinator.api.agents import AgentService
from headgate_coordinator.api.groups import GroupService
from headgate_coordinator.api.log_metadata import LogMetadataService
from headgate_coordinator.api.membership import MembershipService
from headgate_coordinator.api.mutations import Mutations
from headgate_coordinator.api.planning import Planning, RunPlanner
from headgate_coordinator.api.queries import QueryService
from headgate_coordinator.api.sinks import SinkService
from headgate_coordinator.api.sources import SourceService
from headgate_coordinator.api.statements import StatementService
from headgate_coordinator.api.topics import TopicService
from headgate_coordinator.api.watch import WatchService
from headgate_coordinator.catalog import agent_rows, queries, story
from headgate_coordinator.catalog.log import edge_topics, groups, partition_story, segments, transfers
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.operations import Rules
from headgate_coordinator.catalog.replacing import choose_agent
from headgate_coordinator.catalog.retention import Aged, Retention, RetentionSettings
from headgate_coordinator.catalog.snapshot import read_kinds
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.watch import WatchHub, WatchSettings
from headgate_coordinator.census import Census
from headgate_coordinator.cluster.control import Control
from headgate_coordinator.cluster.leadership import Leadership
from headgate_coordinator.cluster.transfers import OverdueTransfers
from headgate_coordinator.config import CoordinatorConfig
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.types.schema import SchemaLimits


class Coordinator:
    """`services` answer calls from the start; `run` leads, or stands by to."""

    def __init__(
        self,
        config: CoordinatorConfig,
        *,
        store: Store,
        transport: Transport,
        clock: Clock,
        ids: Ids,
        source: random.Random,
        address: str,
        run_planner: RunPlanner,
        sole: bool,
    ) -> None:
        """`address` is where others call it; `sole` says that no other process can have the store open."""
        timings, limits = config.timings, config.limits
        schema_limits = SchemaLimits(max_columns=limits.columns)
        rules = Rules(
            schema=schema_limits,
            deployment_deadline_us=round(timings.deployment_deadline * 1_000_000),
            drain_deadline_us=round(timings.drain_deadline * 1_000_000),
            refuse_cycles=config.refuse_cycles,
            bundle_queries=limits.bundle_queries,
            topics=_topics(config),
            kafka_brokers=config.kafka_brokers,
        )
        self.store = store
        self.census = Census(store, source)
        self.retention = Retention(
            store,
            _retention(config),
            [
                Aged(timings.story_memory, _forget_stories),
                Aged(timings.partition_story_memory, partition_story.forget),
                Aged(timings.replaced_memory, agent_rows.forget_replaced),
                Aged(timings.transfer_memory, transfers.forget),
                Aged(timings.producer_memory, segments.forget_producers),
                Aged(timings.group_memory, groups.forget),
                Aged(timings.error_retention, edge_topics.forget),
                Aged(timings.temporary_memory, queries.forget_temporary),
            ],
            clock=clock,
        )
        overdue = OverdueTransfers(store, clock=clock, timeout=timings.transfer_timeout)
        self.control = Control(
            store,
            transport=transport,
            clock=clock,
            source=source,
            timings=timings,
            limits=limits,
            choose_agent=choose_agent,
            may_act=lambda term: self.leadership.term == term,
            surpassed=self._surpassed,
            others=[self.retention.run, overdue.run],
        )
        self.leadership = Leadership(
            store,
            clock=clock,
            source=source,
            timings=timings,
            holder=ids.uid("coordinator"),
            address=address,
            lead=self.control.run,
            sole=sole,
        )
        self.hub = WatchHub(store, read_kinds, clock=clock, settings=_watching(config))
        planning = Planning(
            store,
            run=run_planner,
            limits=StatementLimits(
                max_length=limits.statement_size,
                max_tokens=limits.tokens,
                max_statements=limits.statements,
                max_depth=limits.nesting,
                max_chain=limits.chain,
                schema=schema_limits,
                kafka_brokers=config.kafka_brokers,
            ),
            settings=_planning(config),
        )
        mutations = Mutations(store, self.leadership, rules, limits.plan_attempts)
        self.services: Sequence[Service] = (
            AgentService(store, mutations, self.control.membership),
            SourceService(store, mutations),
            SinkService(store, mutations),
            QueryService(store, mutations, planning, self.control.progress),
            StatementService(store, mutations, planning),
            WatchService(store, self.hub, planning),
            MembershipService(store, self.leadership, self.control.presence, rules, timings.session_ttl),
            TopicService(store, mutations),
            GroupService(store, mutations),
            LogMetadataService(store, self.leadership, rules.topics),
        )

    async def run(self) -> None:
        """Until it is cancelled; then the leadership is given up."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.leadership.run(), name="leadership")
            group.create_task(self.census.run(), name="census")

    def _surpassed(self, term: int) -> None:
        self.leadership.surpassed(term)

    def unready(self) -> Sequence[str]:
        """Why it should get no calls; a standby answers reads, so it is ready once it knows a leader."""
        if self.leadership.term is None and not self.leadership.leader.address:
            return ("no coordinator leads",)
        return ()


def _planning(config: CoordinatorConfig) -> PlannerSettings:
    timings, limits = config.timings, config.limits
    return PlannerSettings(
        default_lateness_us=round(timings.lateness * 1_000_000),
        default_idle_timeout_us=round(timings.idle_timeout * 1_000_000),
        max_relations=limits.relations,
        max_in_list=limits.in_list,
        max_parts=limits.expression_parts,
        max_overlap=limits.window_overlap,
        source_slots=limits.source_slots,
        compute_slots=limits.compute_slots,
        sink_slots=limits.sink_slots,
    )


def _topics(config: CoordinatorConfig) -> TopicRules:
    defaults, limits = config.topics, config.limits
    return TopicRules(
        partitions=defaults.partitions,
        durability=defaults.durability,
        retention_us=round(defaults.retention * 1_000_000),
        retention_bytes=defaults.retention_bytes,
        segment_bytes=defaults.segment_bytes,
        edge_segment_bytes=defaults.edge_segment_bytes,
        segment_age_us=round(defaults.segment_age * 1_000_000),
        linger_us=round(defaults.linger * 1_000_000),
        max_message_bytes=defaults.max_message_bytes,
        max_topics=limits.topics,
        max_partitions=limits.partitions,
        max_topic_partitions=limits.topic_partitions,
        max_groups=limits.groups,
        max_producers=limits.partition_producers,
        # What is counted is the greater part of an answer, and not all of it.
        max_acquired_bytes=min(limits.acquired_bytes, config.server.limits.message_size // 2),
    )


def _retention(config: CoordinatorConfig) -> RetentionSettings:
    return RetentionSettings(
        interval=config.timings.housekeeping_interval,
        patience=config.timings.housekeeping_patience,
        batch=config.limits.housekeeping_rows,
        history_age=config.timings.history_memory,
        min_revisions=min(1_000, config.limits.history_revisions),
        max_revisions=config.limits.history_revisions,
        request_age=config.timings.request_memory,
    )


def _watching(config: CoordinatorConfig) -> WatchSettings:
    return WatchSettings(
        bookmark_interval=config.timings.bookmark_interval,
        max_revisions=config.limits.watch_revisions,
        max_bytes=config.limits.watch_bytes,
        part_resources=config.limits.snapshot_part,
    )


def _forget_stories(tx: Tx, age: float, limit: int) -> int:
    finished = story.finished(tx, age, limit)
    story.forget(tx, finished)
    return len(finished)
