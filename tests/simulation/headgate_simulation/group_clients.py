"""Consumers that commit how far they have read: some choose their partitions themselves and ask any agent, others are
members of a group, which join, share the partitions out, and commit in their generation."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from kio.schema.errors import ErrorCode

from headgate.log import v1 as api
from headgate_common.errors import HeadgateError
from headgate_simulation.group_invariants import Try
from headgate_simulation.group_port import METHODS, error_of, message
from headgate_simulation.plan import Operation
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.log_clients import LogClient
    from headgate_simulation.log_world import LogWorld

TIMEOUT = 3.0
# How often a commit is tried before it is given up, and the next one follows.
TRIES = 5
# At quiet, how long it may take until a group is led by someone who can.
PATIENCE = 30.0
# Of a member: how long it may be silent, and how long others wait for it to join again.
SESSION = 2.0
REBALANCE = 3.0
# How often a member changes its mind.
CHANGES = 0.2
_DEFECTS = frozenset({"unknown_server_error", "invalid_request", "unsupported_version", "corrupt_message"})


class Committer:
    """The one who commits for its partition, one commit after the other; now and then it asks what is committed."""

    def __init__(self, log: LogWorld, client: LogClient, operation: Operation, topic: api.Topic) -> None:
        self._log, self._client, self._operation, self._topic = log, client, operation, topic
        self._checker = log.groups
        self._group, index = str(operation["group"]), operation["partition"]
        assert isinstance(index, int)
        self._index = index
        self._place = (self._group, f"{topic.uid}/{index}")

    async def run(self, commits: int, pace: float) -> None:
        source = self._client.source
        for number in range(commits):
            for attempt in range(source.choice((1, TRIES))):
                if await self.commit(number, attempt):
                    break
                await self._client.pause()
            if source.random() < 0.4:
                await read(self._log, self._client, self._group, self._place, self._topic, self._index)
            if not await self._client.goes_on(pace):
                return

    async def commit(self, number: int, attempt: int) -> bool:
        """Whether it was acknowledged."""
        tag = f"{self._operation.id}/{number}/{attempt}"
        one = self._checker.began(*self._place, tag, number)
        offset = api.GroupOffset(topic=self._topic.name, partition=self._index, offset=number, metadata=tag)
        request = api.CommitOffsetsRequest(group=self._group, offsets=[offset])
        try:
            await self._client.call(self._client.anyone(), "CommitOffsets", request, self._operation.timeout)
        except HeadgateError as error:
            self._client.no_defect(error)
            return False
        self._checker.acknowledged(one)
        return True


async def read(
    log: LogWorld, client: LogClient, group: str, place: tuple[str, str], topic: api.Topic, index: int
) -> bool:
    """Asks any agent what is committed. Whether there was an answer."""
    since = log.groups.asks()
    try:
        answer = await client.call(client.anyone(), "GetOffsets", api.GetOffsetsRequest(group=group), TIMEOUT)
    except HeadgateError as error:
        client.no_defect(error)
        return False
    found = [one.offset for one in answer.offsets if (one.offset.topic, one.offset.partition) == (topic.name, index)]
    log.groups.read(place, since, found[0].metadata if found else None)
    return True


class Member:
    """One member of a group that reads all partitions of a topic. It keeps its id until it is told that it has none."""

    def __init__(self, log: LogWorld, client: LogClient, operation: Operation, topic: api.Topic) -> None:
        self._log, self._client, self._operation, self._topic = log, client, operation, topic
        self._group = str(operation["group"])
        self._id = ""
        self._address = client.anyone()
        self._generation = -1
        self._assigned: list[int] = []
        self._wants = 0
        self._number = 0
        self._under_way: list[asyncio.Task[Any]] = []

    async def run(self, rounds: int, pace: float) -> None:
        joined = False
        for _ in range(rounds):
            if not joined:
                joined = await self._join()
                if joined:
                    await self._fetch()
            elif self._assigned and self._client.source.random() < 0.6:
                joined = await self._commit()
            else:
                joined = self._stays(await self._ask("Heartbeat", self._me()))
            if self._client.source.random() < CHANGES:
                # It wants to read something else, so all join again.
                joined, self._wants = False, self._wants + 1
                continue
            if not await self._client.goes_on(pace):
                break
        await asyncio.gather(*self._under_way)
        if self._id and self._client.source.random() < 0.7:
            leaving = [{"member_id": self._id, "group_instance_id": None}]
            await self._ask("LeaveGroup", {**self._me(), "members": leaving})

    def _me(self) -> dict[str, Any]:
        return {"group_id": self._group, "member_id": self._id, "generation_id": self._generation}

    async def _ask(self, method: str, body: dict[str, Any], timeout: float = TIMEOUT) -> dict[str, Any]:
        return self._heed(await self._send(method, body, timeout))

    async def _send(self, method: str, body: dict[str, Any], timeout: float) -> dict[str, Any]:
        """The answer; that nobody answers is one too."""
        try:
            answer = await self._client.call_method(self._address, METHODS[method], message(body), timeout)
        except HeadgateError as error:
            self._client.no_defect(error)
            return {"error_code": int(ErrorCode.coordinator_not_available)}
        found: dict[str, Any] = json.loads(answer.value)
        if error_of(found) in _DEFECTS:
            fail("no defects", f"{self._operation.id} was told {error_of(found)} of {method}", (self._group,))
        return found

    def _heed(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Whom to ask next, and as whom."""
        if error_of(answer) in ("not_coordinator", "coordinator_not_available"):
            self._address = self._client.anyone()
        elif error_of(answer) == "unknown_member_id":
            self._id = ""
        return answer

    @staticmethod
    def _stays(answer: dict[str, Any]) -> bool:
        """Whether it is still a member of this generation, as far as it knows."""
        return error_of(answer) in ("none", "not_coordinator", "coordinator_not_available")

    async def _join(self) -> bool:
        body = {
            "group_id": self._group,
            "member_id": self._id,
            "session_timeout": SESSION,
            "rebalance_timeout": REBALANCE,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": str(self._wants)}],
        }
        answer = await self._ask("JoinGroup", body, SESSION + REBALANCE + TIMEOUT)
        if error_of(answer) == "member_id_required":
            self._id = body["member_id"] = answer["member_id"]
            answer = await self._ask("JoinGroup", body, SESSION + REBALANCE + TIMEOUT)
        if error_of(answer) != "none":
            return False
        self._id, self._generation = answer["member_id"], answer["generation_id"]
        shares = self._share([one["member_id"] for one in answer["members"]]) if answer["leader"] == self._id else []
        synced = await self._ask("SyncGroup", {**self._me(), "assignments": shares}, SESSION + REBALANCE + TIMEOUT)
        if error_of(synced) != "none":
            return False
        self._assigned = [int(index) for index in synced["assignment"].split()]
        return True

    def _share(self, members: list[str]) -> list[dict[str, str]]:
        indexes = [str(index) for index in range(self._topic.partitions)]
        return [
            {"member_id": member, "assignment": " ".join(indexes[number :: len(members)])}
            for number, member in enumerate(members)
        ]

    async def _fetch(self) -> None:
        """Where it goes on: what the leader of the group says."""
        since = self._log.groups.asks()
        topics = [{"name": self._topic.name, "partition_indexes": self._assigned}]
        answer = await self._ask("OffsetFetch", {"group_id": self._group, "topics": topics})
        if error_of(answer) != "none":
            return
        for one in answer["topics"][0]["partitions"]:
            tag = one["metadata"] if one["committed_offset"] >= 0 else None
            self._log.groups.read((self._group, f"{self._topic.uid}/{one['partition_index']}"), since, tag)

    async def _commit(self) -> bool:
        self._number += 1
        tries = []
        partitions = []
        for index in self._assigned:
            tag = f"{self._operation.id}/{self._number}/{index}"
            place = (self._group, f"{self._topic.uid}/{index}")
            tries.append(self._log.groups.began(*place, tag, self._number, self._generation))
            partitions.append({"partition_index": index, "committed_offset": self._number, "committed_metadata": tag})
        body = {
            "group_id": self._group,
            "member_id": self._id,
            "generation_id_or_member_epoch": self._generation,
            "topics": [{"name": self._topic.name, "partitions": partitions}],
        }
        if self._client.source.random() < 0.5:
            # Without waiting for the answer: it may have joined again when the request comes.
            self._under_way.append(self._log.world.spawn(self._commit_later(body, tries), self._client.domain))
            return True
        return self._stays(self._heed(await self._send_commit(body, tries)))

    async def _commit_later(self, body: dict[str, Any], tries: list[Try]) -> None:
        await self._send_commit(body, tries)

    async def _send_commit(self, body: dict[str, Any], tries: list[Try]) -> dict[str, Any]:
        answer = await self._send("OffsetCommit", body, self._operation.timeout)
        if error_of(answer) == "none":
            for one, told in zip(tries, answer["topics"][0]["partitions"], strict=True):
                if error_of(told) == "none":
                    self._log.groups.acknowledged(one)
        return answer


async def read_back(log: LogWorld, client: LogClient) -> None:
    """At quiet: what any agent says is the last that was acknowledged, or one that may have come later. And every group
    can be led: without members it takes another commit."""
    log.groups.everything()
    topics = {future.result().uid: future.result() for future in log.clients.topics if future.done()}
    for group, partition in log.groups.places:
        uid, _, index = partition.rpartition("/")
        async with asyncio.timeout(60.0):
            while not await read(log, client, group, (group, partition), topics[uid], int(index)):
                await client.pause()
    for group, (uid, _, index) in {group: partition.rpartition("/") for group, partition in log.groups.places}.items():
        arguments = (("group", group), ("partition", int(index)))
        last = Operation(id=f"last-{group}", at=0.0, client=0, kind="commit_offsets", arguments=arguments)
        committer = Committer(log, client, last, topics[uid])
        until = log.world.loop.time() + PATIENCE
        attempt = 0
        while not await committer.commit(0, attempt):
            await client.pause()
            attempt += 1
            if log.world.loop.time() > until:
                fail("a group can be led", f"nobody takes a commit of {group} for {PATIENCE:.0f} s", (group,))
