"""How many queries and agents are in which state, by following the change feed: for metrics, which must not wait."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter

from google.protobuf.message import Message
from sqlalchemy import func, select

from headgate.catalog import v1 as catalog
from headgate_common.backoff import Backoff
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.schema import agents, queries
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Change, Tx
from headgate_coordinator.catalog.wire import short
from headgate_coordinator.query.transitions import QUERY_STATES

log = logging.getLogger(__name__)

AGENT_STATES = ("ACTIVE", "UNREACHABLE")
_TABLES = {"QUERY": queries, "AGENT": agents}


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
        if change.kind in _TABLES:
            for message, by in ((change.before, -1), (change.after, 1)):
                if message is not None:
                    self._counts[change.kind, _state(message)] += by


def _state(message: Message) -> str:
    if isinstance(message, catalog.Query):
        return short(catalog.QueryState, message.state)
    assert isinstance(message, catalog.Agent)
    return short(catalog.AgentState, message.state)


def _count(tx: Tx) -> tuple[Counter[tuple[str, str]], int]:
    counts: Counter[tuple[str, str]] = Counter()
    for kind, table in _TABLES.items():
        for state, count in tx.connection.execute(select(table.c.state, func.count()).group_by(table.c.state)):
            counts[kind, state] = count
    return counts, tx.revision
