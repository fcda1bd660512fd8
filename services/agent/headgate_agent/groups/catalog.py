"""What the catalog keeps of consumer groups: who leads them, their generation, how far they have read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from headgate.log import v1 as log
from headgate.log.v1 import group_service_pb2, log_metadata_service_pb2
from headgate_agent.groups.asking import Asking
from headgate_common.dispatch import methods
from headgate_common.errors import HeadgateError

_GROUPS = methods(group_service_pb2.DESCRIPTOR.services_by_name["GroupService"])
_METADATA = methods(log_metadata_service_pb2.DESCRIPTOR.services_by_name["LogMetadataService"])
_PAGE = 1000
DEFAULT_WITHIN = 10.0


@dataclass(frozen=True, slots=True)
class GroupGrant:
    """The lead of a group, the highest generation that was ever stored, and the sequence of the last commit."""

    session: str
    epoch: int
    generation: int
    sequence: int = 0


class GroupCatalog:
    """Raises the coordinator's errors. `within` is how long each call may take with its repetitions, in seconds."""

    def __init__(self, asking: Asking, within: float = DEFAULT_WITHIN) -> None:
        self._asking, self._within = asking, within

    async def acquire(self, session: str, group: str) -> GroupGrant:
        request = log.AcquireGroupRequest(session_id=session, group=group)
        answer = cast(
            log.AcquireGroupResponse,
            await self._asking.ask(_METADATA["AcquireGroup"], request, within=self._within),
        )
        return GroupGrant(session, answer.epoch, answer.generation, answer.sequence)

    async def release(self, group: str, grant: GroupGrant) -> None:
        """Lets another agent lead the group at once. One try."""
        request = log.ReleaseGroupsRequest(session_id=grant.session)
        request.groups.add(group=group, epoch=grant.epoch)
        await self._asking.once(_METADATA["ReleaseGroups"], request, within=self._within)

    async def commit(
        self, grant: GroupGrant, group: str, generation: int, offsets: Sequence[log.GroupOffset], *, sequence: int
    ) -> Sequence[log.GroupOffset]:
        """Stores generation and offsets; answers those whose topic or partition is not there. `sequence` grows with
        every commit of the group: one that failed may yet happen, and must not undo those that follow it."""
        request = log.CommitGroupOffsetsRequest(
            session_id=grant.session,
            group=group,
            epoch=grant.epoch,
            generation=generation,
            offsets=offsets,
            sequence=sequence,
        )
        answer = cast(
            log.CommitGroupOffsetsResponse,
            await self._asking.ask(_METADATA["CommitGroupOffsets"], request, within=self._within),
        )
        return answer.unknown

    async def get(self, group: str) -> log.Group | None:
        try:
            answer = await self._asking.ask(_GROUPS["GetGroup"], log.GetGroupRequest(name=group), within=self._within)
        except HeadgateError as error:
            if error.reason.name == "GROUP_NOT_FOUND":
                return None
            raise
        return cast(log.GetGroupResponse, answer).group

    async def list(self) -> list[log.Group]:
        found: list[log.Group] = []
        token = ""
        while True:
            request = log.ListGroupsRequest(page_size=_PAGE, page_token=token)
            answer = cast(
                log.ListGroupsResponse, await self._asking.ask(_GROUPS["ListGroups"], request, within=self._within)
            )
            found.extend(answer.groups)
            token = answer.next_page_token
            if not token:
                return found

    async def drop(self, group: str, grant: GroupGrant | None) -> None:
        request = log.DropGroupRequest(name=group)
        if grant is not None:
            request.session_id, request.epoch = grant.session, grant.epoch
        await self._asking.ask(_GROUPS["DropGroup"], request, within=self._within)
