"""How many queries, agents and partitions are in which state, by following the feed: for metrics, which do not wait."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter

from google.protobuf.message import Message
from sqlalchemy import func, select

from headgate.catalog import v1 as catalog
from headgate.log import v1 as api
from headgate_common.backoff import Backoff
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.log.partitions import GRANT
from headgate_coordinator.catalog.log.schema import partitions, topics
from headgate_coordinator.catalog.schema import agents, grants, queries
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Change, Tx
from headgate_coordinator.catalog.wire import short
from headgate_coordinator.query.transitions import QUERY_STATES

log = logging.getLogger(__name__)

AGENT_STATES = ("ACTIVE", "UNREACHABLE")
PARTITION_STATES = ("LED", "WAITING")
_BY_STATE = {
    kind: select(table.c.state, func.count()).group_by(table.c.state)
    for kind, table in (("QUERY", queries), ("AGENT", agents))
}
_TOPICS = select(func.count()).select_from(topics)
_PARTITIONS = select(func.count()).select_from(partitions)
_LED = select(func.count()).where(grants.c.kind == GRANT, grants.c.session_uid.is_not(None))
_COUNTED = (*_BY_STATE, "TOPIC", "PARTITION")


class Census:
    def __init__(self, store: Store, source: random.Random) -> None:
        self._store = store
        self._source = source
        self._retry = Backoff()
        self._counts: Counter[tuple[str, str]] = Counter()

    def queries(self) -> dict[tuple[str, ...], float]:
        return {(state,): self._counts["QUERY", state] for state in QUERY_STATES}

    def agents(self) -> dict[tuple[str, ...], float]:
        return {(state,): self._counts["AGENT", state] for state in AGENT_STATES}

    def topics(self) -> float:
        return self._counts["TOPIC", ""]

    def partitions(self) -> dict[tuple[str, ...], float]:
        return {(state,): self._counts["PARTITION", state] for state in PARTITION_STATES}

    async def run(self) -> None:
        """Counts, then follows; counts again after it was cut off. Goes on until it is cancelled.

        A catalog that cannot be read makes the numbers old, never more than that.
        """
        attempt = 0
        while True:
            with self._store.changes.subscribe() as changes:
                try:
                    self._counts, counted = await self._store.read(_count)
                    attempt = 0
                    async for revision in changes:
                        if revision.number > counted:
                            for change in revision.changes:
                                self._apply(change)
                except HeadgateError as error:
                    log.info("the census is taken anew", extra={"error": str(error)})
            await asyncio.sleep(self._retry.delay(attempt, self._source))
            attempt += 1

    def _apply(self, change: Change) -> None:
        if change.kind in _COUNTED:
            for message, by in ((change.before, -1), (change.after, 1)):
                if message is not None:
                    self._counts[change.kind, _state(message)] += by


def _state(message: Message) -> str:
    if isinstance(message, catalog.Query):
        return short(catalog.QueryState, message.state)
    if isinstance(message, catalog.Agent):
        return short(catalog.AgentState, message.state)
    if isinstance(message, api.Partition):
        return "LED" if message.leader else "WAITING"
    return ""


def _count(tx: Tx) -> tuple[Counter[tuple[str, str]], int]:
    counts: Counter[tuple[str, str]] = Counter()
    for kind, statement in _BY_STATE.items():
        for state, count in tx.connection.execute(statement):
            counts[kind, state] = count
    counts["TOPIC", ""] = tx.connection.execute(_TOPICS).scalar_one()
    every = tx.connection.execute(_PARTITIONS).scalar_one()
    counts["PARTITION", "LED"] = tx.connection.execute(_LED).scalar_one()
    counts["PARTITION", "WAITING"] = every - counts["PARTITION", "LED"]
    return counts, tx.revision
