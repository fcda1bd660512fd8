"""An agent passes records on to their leader again only where nothing can have been stored."""

from __future__ import annotations

import random
from typing import Any

import pytest

from headgate.log import v1 as api
from headgate_agent.log.access import Leadership, Peer
from headgate_agent.log.contract import Appended, NotLeader, PartitionKey, Uncertain
from headgate_agent.log.forwarding import Leaders
from headgate_common.clock import SystemClock
from headgate_common.errors import DEADLINE_EXCEEDED, UNREACHABLE, HeadgateError, Reason

KEY = PartitionKey("topic-1", 0)
PATIENCE = 5.0


class View:
    def __init__(self, leader: str) -> None:
        self._leader = leader

    def leadership(self, key: PartitionKey) -> Leadership:
        return Leadership(self._leader, 7)

    def peer(self, name: str) -> Peer | None:
        return Peer(name, 1, f"{name}:1", "", "", "default", present=True)


class Here:
    """The log of this agent, which first answers with an error."""

    def __init__(self, leader: str, error: Exception | None = None) -> None:
        self.view = View(leader)
        self.asked = 0
        self._error = error

    async def produce(self, key: PartitionKey, batches: bytes) -> Appended:
        self.asked += 1
        if self.asked == 1 and self._error is not None:
            raise self._error
        return Appended(4, 5, 0)


class There:
    """Another agent, which first answers with a reason."""

    def __init__(self, reason: str = "", error: Exception | None = None) -> None:
        self.asked = 0
        self._reason = reason
        self._error = error

    async def call(self, address: str, method: Any, request: Any, *, timeout: float) -> Any:
        self.asked += 1
        if self.asked == 1 and self._error is not None:
            raise self._error
        told = api.ProducedPart(error_reason=self._reason) if self.asked == 1 else api.ProducedPart(base_offset=4)
        return api.ProduceResponse(parts=[told])


def leaders(here: Any, there: Any) -> Leaders:
    return Leaders(here, "a", transport=there, clock=SystemClock(), source=random.Random(1))


async def test_records_that_the_leader_refused_are_sent_again() -> None:
    there = There("NOT_LEADER")
    assert (await leaders(Here("b"), there).produce(KEY, b"", PATIENCE)).base_offset == 4
    assert there.asked == 2


async def test_records_that_the_leader_may_have_stored_are_not_sent_again() -> None:
    there = There("RECORDS_UNCERTAIN")
    with pytest.raises(HeadgateError) as failed:
        await leaders(Here("b"), there).produce(KEY, b"", PATIENCE)
    assert (failed.value.reason.name, there.asked) == ("RECORDS_UNCERTAIN", 1)


@pytest.mark.parametrize("reason", [UNREACHABLE, DEADLINE_EXCEEDED])
async def test_records_that_the_leader_did_not_answer_for_are_uncertain_and_not_sent_again(reason: Reason) -> None:
    there = There(error=HeadgateError(reason, "the connection broke"))
    with pytest.raises(HeadgateError) as failed:
        await leaders(Here("b"), there).produce(KEY, b"", PATIENCE)
    assert (failed.value.reason.name, there.asked) == ("RECORDS_UNCERTAIN", 1)


async def test_the_same_holds_where_this_agent_leads() -> None:
    refused = Here("a", NotLeader("it is being handed over"))
    assert (await leaders(refused, There()).produce(KEY, b"", PATIENCE)).base_offset == 4
    uncertain = Here("a", Uncertain("its session has ended"))
    with pytest.raises(HeadgateError) as failed:
        await leaders(uncertain, There()).produce(KEY, b"", PATIENCE)
    assert (failed.value.reason.name, uncertain.asked) == ("RECORDS_UNCERTAIN", 1)
