"""Topics that this agent has not heard of yet: a client may know them from an agent that is ahead, or have created them
there. Before it is told that they are not there, the coordinator is asked."""

from __future__ import annotations

from collections.abc import Iterable

from headgate_agent.kafka.catalog import TopicCatalog
from headgate_agent.kafka.config import CatalogLimits
from headgate_agent.kafka.topics import TopicNames, valid_name
from headgate_common.clock import Clock


class Lookup:
    """For requests whose clients would give up: Metadata, administration, commits of offsets. The others go to leaders,
    who know what they lead, and their clients ask for metadata again."""

    def __init__(self, topics: TopicNames, catalog: TopicCatalog, clock: Clock, limits: CatalogLimits) -> None:
        self._topics, self._catalog, self._clock, self._limits = topics, catalog, clock, limits
        # Topics that the coordinator did not know, and until when that is believed.
        self._absent: dict[str, float] = {}

    async def doubtful(self, names: Iterable[str]) -> frozenset[str]:
        """Those of which nobody can say now whether they are there, as while the coordinator is away. Of all others
        this agent knows when it returns what the coordinator does.

        However many a request names, it asks for so many, and for so long: the first that is not answered is the last.
        """
        now = self._clock.monotonic()
        unknown = [
            name
            for name in dict.fromkeys(names)
            if self._topics.find(name) is None and valid_name(name) and self._absent.get(name, 0.0) <= now
        ]
        asked, until = 0, now + self._limits.asked_within
        for position, name in enumerate(unknown):
            # With the answer for one this agent may have heard of the others too.
            if self._topics.find(name) is not None:
                continue
            left = until - self._clock.monotonic()
            if asked == self._limits.asked_topics or left <= 0 or not await self._answered(name, left):
                return frozenset(one for one in unknown[position:] if self._topics.find(one) is None)
            asked += 1
        return frozenset()

    async def _answered(self, name: str, within: float) -> bool:
        is_there = await self._catalog.catch_up(name, within)
        if is_there is False:
            self._remember(name)
        return is_there is False or self._topics.find(name) is not None

    def _remember(self, name: str) -> None:
        if len(self._absent) >= self._limits.absent_topics:
            self._absent.clear()
        self._absent[name] = self._clock.monotonic() + self._limits.absent_for
