"""`headgate-coordinator`: the store, the metrics and the process around a `Coordinator`. Wiring only."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from prometheus_client import CollectorRegistry

from headgate_common.arguments import Flag
from headgate_common.metrics import counter, gauge
from headgate_common.server import App, Runtime, run_server
from headgate_coordinator.catalog.connect import connect
from headgate_coordinator.catalog.file_lock import exclusive_use
from headgate_coordinator.catalog.store import StoreSettings
from headgate_coordinator.config import PROFILES, CoordinatorConfig
from headgate_coordinator.coordinator import Coordinator
from headgate_coordinator.errors import REASONS

T = TypeVar("T")

FLAGS = (Flag("--catalog", "catalog.url", "URL", "the database: sqlite:///FILE or postgresql://..."),)


@asynccontextmanager
async def build(config: CoordinatorConfig, runtime: Runtime) -> AsyncIterator[App]:
    with exclusive_use(config.catalog.url) as sole, ThreadPoolExecutor(config.limits.planners, "planner") as planners:
        store = await connect(
            config.catalog.url,
            clock=runtime.clock,
            ids=runtime.ids,
            settings=_store_settings(config, sole),
            jitter=runtime.source,
        )
        try:
            loop = asyncio.get_running_loop()

            def run_planner(work: Callable[[], T]) -> asyncio.Future[T]:
                return loop.run_in_executor(planners, work)

            coordinator = Coordinator(
                config,
                store=store,
                transport=runtime.transport,
                clock=runtime.clock,
                ids=runtime.ids,
                source=runtime.source,
                address=runtime.address,
                run_planner=run_planner,
                sole=sole,
            )
            publish(coordinator, runtime.registry)
            runtime.supervise(coordinator.run(), "coordinator")
            yield App(services=coordinator.services, unready=coordinator.unready)
        finally:
            await store.close()


def publish(coordinator: Coordinator, registry: CollectorRegistry) -> None:
    """The coordinator's own metrics, read at the moment of looking."""
    census, store = coordinator.census, coordinator.store
    backlog = coordinator.control.reconciler.backlog
    polls = coordinator.control.membership.stats
    gauge(registry, "headgate_queries", "Queries by state.", census.queries, ("state",))
    gauge(registry, "headgate_agents", "Agents by state.", census.agents, ("state",))
    gauge(registry, "headgate_topics", "Topics, those of queries included.", census.topics)
    gauge(registry, "headgate_partitions", "Partitions, led or waiting.", census.partitions, ("state",))
    gauge(
        registry,
        "headgate_leading",
        "1 while this coordinator leads.",
        lambda: float(bool(coordinator.leadership.term)),
    )
    gauge(registry, "headgate_term", "The last term known here.", lambda: coordinator.leadership.leader.term)
    gauge(registry, "headgate_reconcile_backlog", "Queries that wait to be looked at.", lambda: backlog.waiting)
    gauge(registry, "headgate_reconcile_age_seconds", "How long the first of them has waited.", lambda: backlog.oldest)
    gauge(registry, "headgate_reconcile_unsettled", "Queries that are on their way.", lambda: backlog.unsettled)
    counter(registry, "headgate_reconcile_looks", "Looks at a query.", lambda: backlog.looks)
    counter(registry, "headgate_reconcile_calls", "Commands to agents.", lambda: backlog.calls)
    counter(registry, "headgate_reconcile_failed_calls", "Commands in vain.", lambda: backlog.failed_calls)
    gauge(registry, "headgate_poll_round_trip_seconds", "The last round trip of a poll.", lambda: polls.round_trip)
    gauge(registry, "headgate_poll_lag_seconds", "How late the last poll began.", lambda: polls.lag)
    counter(registry, "headgate_polls", "Polls of agents.", lambda: polls.polls)
    counter(registry, "headgate_poll_misses", "Polls without an answer in time.", lambda: polls.misses)
    counter(registry, "headgate_zombies", "Fragments stopped that should not have run.", lambda: polls.zombies)
    stats = store.stats
    gauge(registry, "headgate_catalog_waiting", "Reads and writes that wait for the catalog.", lambda: stats.waiting)
    gauge(registry, "headgate_catalog_revision", "The last revision known here.", lambda: store.changes.position)
    counter(registry, "headgate_catalog_writes", "Operations that wrote.", lambda: stats.writes)
    counter(registry, "headgate_catalog_reads", "Operations that read.", lambda: stats.reads)
    counter(registry, "headgate_catalog_commits", "Transactions committed.", lambda: stats.commits)
    counter(registry, "headgate_catalog_refused", "Operations rolled back for an error.", lambda: stats.refused)
    counter(registry, "headgate_catalog_retries", "Transactions that lost to another.", lambda: stats.retries)
    counter(registry, "headgate_catalog_unavailable", "Operations that the database failed.", lambda: stats.unavailable)
    counter(registry, "headgate_catalog_uncertain", "Commits of unknown outcome.", lambda: stats.uncertain)
    gauge(registry, "headgate_watchers", "Watchers.", lambda: coordinator.hub.watchers)


def _store_settings(config: CoordinatorConfig, sole: bool) -> StoreSettings:
    catalog = config.catalog
    return StoreSettings(
        max_waiting=catalog.max_waiting,
        max_group=catalog.max_group,
        readers=catalog.readers,
        # Where nobody else can write there is only what this process itself is not sure to have written.
        poll_interval=catalog.change_interval * (10 if sole else 1),
        lock_timeout=catalog.lock_timeout,
        idle_transaction_timeout=catalog.idle_transaction_timeout,
        connect_timeout=catalog.connect_timeout,
        max_attempts=catalog.max_attempts,
        synchronous=catalog.synchronous,
        feed_revisions=config.limits.watch_revisions,
        feed_bytes=config.limits.watch_bytes,
    )


def main() -> int:
    return run_server(
        "coordinator",
        CoordinatorConfig,
        build,
        summary="Keeps the catalog, plans queries, places them on agents and keeps them running.",
        flags=FLAGS,
        profiles=PROFILES,
        reasons=REASONS,
    )


if __name__ == "__main__":
    sys.exit(main())
