"""`access.GroupOffsets`: offsets of consumers that choose their partitions themselves, asked of any agent.

A commit is passed on once, with `local_only`: while agents do not agree on who leads a group, the second answers
NOT_LEADER, and the caller tries again.
"""

from __future__ import annotations

from collections.abc import Sequence

from headgate.log import v1 as log
from headgate.log.v1 import log_service_pb2
from headgate_agent.errors import GROUP_IN_USE, GROUP_UNAVAILABLE, NOT_LEADER, UNKNOWN_PARTITION
from headgate_agent.groups.events import GroupRefused, Refusal
from headgate_agent.groups.groups import Groups
from headgate_common.dispatch import Transport, methods
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError

_COMMIT = methods(log_service_pb2.DESCRIPTOR.services_by_name["LogService"])["CommitOffsets"]
_BUSY = frozenset((Refusal.UNKNOWN_MEMBER_ID, Refusal.NON_EMPTY_GROUP, Refusal.REBALANCE_IN_PROGRESS))


class ForwardedOffsets:
    def __init__(self, agent: str, groups: Groups, transport: Transport, timeout: float) -> None:
        """`timeout` is for one call of another agent, in seconds."""
        self._agent, self._groups, self._transport, self._timeout = agent, groups, transport, timeout

    async def commit(self, group: str, offsets: Sequence[log.GroupOffset], *, local_only: bool = False) -> None:
        owner = self._groups.owner(group)
        if not local_only and owner is not None and owner.name != self._agent:
            request = log.CommitOffsetsRequest(group=group, offsets=offsets, local_only=True)
            await self._transport.call(owner.address, _COMMIT, request, timeout=self._timeout)
            return
        try:
            unknown = await self._groups.commit(group, "", None, -1, offsets)
        except GroupRefused as refused:
            raise self._error(group, refused) from refused
        if unknown:
            topic, partition = sorted(unknown)[0]
            raise HeadgateError(
                UNKNOWN_PARTITION,
                f"there is no partition {partition} of a topic {topic!r}; the offsets of the others are stored",
                metadata={"topic": topic, "partition": str(partition)},
            )

    async def read(self, group: str) -> Sequence[log.GroupOffset]:
        try:
            return await self._groups.stored_offsets(group)
        except GroupRefused as refused:
            raise self._error(group, refused) from refused

    def _error(self, group: str, refused: GroupRefused) -> HeadgateError:
        if refused.refusal in _BUSY:
            return HeadgateError(GROUP_IN_USE, f"group {group!r} has members; offsets are theirs to commit")
        if refused.refusal is Refusal.INVALID_GROUP_ID:
            return HeadgateError(INVALID_ARGUMENT, f"{group!r} is no name for a group")
        if refused.refusal is Refusal.NOT_COORDINATOR:
            owner = self._groups.owner(group)
            elsewhere = owner if owner is not None and owner.name != self._agent else None
            metadata = {"leader": elsewhere.name, "address": elsewhere.address} if elsewhere is not None else {}
            return HeadgateError(NOT_LEADER, f"group {group!r}: {refused.message}", metadata=metadata)
        return HeadgateError(GROUP_UNAVAILABLE, f"group {group!r}: {refused.message}")
