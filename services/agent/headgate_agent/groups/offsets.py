"""How far one group has read: what the catalog has, kept in memory while this agent leads the group, and the commits on
their way there.

Commits that come while one is on its way to the catalog go together in the next, in the order in which they came; so
many members that commit often cost the catalog one transaction at a time. A commit is answered when the catalog has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headgate.log import v1 as log
from headgate_agent.groups.catalog import GroupCatalog, GroupGrant
from headgate_agent.log.access import ClusterView

OffsetKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class _Kept:
    """An offset, and the uid of its topic when it was kept: a re-created topic does not inherit it."""

    offset: log.GroupOffset
    topic_uid: str


@dataclass(slots=True, eq=False)
class _Commit:
    generation: int
    offsets: Sequence[log.GroupOffset]
    # Those whose topic or partition is not there.
    done: asyncio.Future[set[OffsetKey]]


@dataclass(slots=True)
class LedOffsets:
    """`failed` is called with the error when the catalog refuses a commit, before those who wait for it are told."""

    group: str
    grant: GroupGrant
    catalog: GroupCatalog
    view: ClusterView
    _kept: dict[OffsetKey, _Kept] = field(default_factory=dict)
    _queue: list[_Commit] = field(default_factory=list)
    _writer: asyncio.Task[None] | None = None
    # Commits that were begun under the grant.
    _begun: int = 0

    def keep(self, offsets: Iterable[log.GroupOffset]) -> None:
        for one in offsets:
            topic = self.view.topic(one.topic)
            self._kept[one.topic, one.partition] = _Kept(one, topic.uid if topic is not None else "")

    def all(self) -> list[log.GroupOffset]:
        found: list[log.GroupOffset] = []
        for kept in self._kept.values():
            topic = self.view.topic(kept.offset.topic)
            if topic is not None and kept.topic_uid in ("", topic.uid):
                found.append(kept.offset)
        return found

    async def commit(self, generation: int, offsets: Sequence[log.GroupOffset]) -> set[OffsetKey]:
        """Answers those whose topic or partition is not there; raises what the catalog raised."""
        commit = _Commit(generation, offsets, asyncio.get_running_loop().create_future())
        self._queue.append(commit)
        if self._writer is None:
            self._writer = asyncio.ensure_future(self._write())
        # A caller that is gone leaves its commit to be written.
        return await asyncio.shield(commit.done)

    async def _write(self) -> None:
        try:
            while self._queue:
                group, self._queue = self._queue, []
                await self._write_group(group)
        finally:
            self._writer = None

    async def _write_group(self, group: list[_Commit]) -> None:
        latest: dict[OffsetKey, log.GroupOffset] = {}
        for commit in group:
            latest.update(((one.topic, one.partition), one) for one in commit.offsets)
        try:
            self._begun += 1
            missing = await self.catalog.commit(
                self.grant,
                self.group,
                max(commit.generation for commit in group),
                list(latest.values()),
                sequence=self.grant.sequence + self._begun,
            )
        except Exception as error:
            for commit in group:
                if not commit.done.done():
                    commit.done.set_exception(error)
                    # The caller may be gone; an exception that nobody fetches is no defect then.
                    commit.done.exception()
            return
        unknown = {(one.topic, one.partition) for one in missing}
        self.keep(one for key, one in latest.items() if key not in unknown)
        for commit in group:
            if not commit.done.done():
                commit.done.set_result(
                    {key for key in unknown if any(key == (o.topic, o.partition) for o in commit.offsets)}
                )
