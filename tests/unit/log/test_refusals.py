"""Why this agent does not serve a partition, told exactly: a caller does another thing for each."""

from __future__ import annotations

from typing import Any

import pytest

from headgate.log import v1 as api
from headgate_agent.errors import LEASE_CONFLICT, NOT_LEADER, RECORDS_UNCERTAIN, STALE_EPOCH, TOPIC_INTERNAL
from headgate_agent.log.access import Leadership, Peer
from headgate_agent.log.contract import InDoubt, NotLeader, PartitionKey, StaleEpoch, Uncertain
from headgate_agent.log.refusals import refusal, refuse_internal
from headgate_common.errors import HeadgateError, Reason

KEY = PartitionKey("topic-1", 0)
HERE, THERE = "a", "b"


class View:
    """The catalog's watch names one agent as the leader, or nobody."""

    def __init__(self, leader: str) -> None:
        self._leader = leader

    def leadership(self, key: PartitionKey) -> Leadership:
        assert key == KEY
        return Leadership(self._leader, 7)

    def peer(self, name: str) -> Peer | None:
        return Peer(name, 1, f"{name}:1", "", "", "default", present=True) if name else None


def told(error: Exception, leader: str, key: PartitionKey | None = KEY) -> tuple[Reason, dict[str, str]]:
    view: Any = View(leader)
    refused = refusal(error, view, key, HERE)
    assert refused.message == str(error)
    return refused.reason, dict(refused.metadata)


@pytest.mark.parametrize("error", [NotLeader("its session has ended"), InDoubt(KEY, "it is not certain")])
def test_one_that_the_catalog_still_names_and_that_is_not_sure_of_itself_says_lease_conflict(error: NotLeader) -> None:
    assert told(error, HERE) == (LEASE_CONFLICT, {"leader": HERE})


def test_one_that_another_leadership_has_followed_says_stale_epoch_whoever_has_it() -> None:
    assert told(StaleEpoch("b leads it now"), THERE) == (STALE_EPOCH, {"leader": THERE, "address": "b:1"})
    assert told(StaleEpoch("it leads again, in a new epoch"), HERE) == (STALE_EPOCH, {"leader": HERE, "address": "a:1"})


def test_one_that_does_not_lead_says_not_leader_and_who_does() -> None:
    assert told(NotLeader("b does"), THERE) == (NOT_LEADER, {"leader": THERE, "address": "b:1"})
    assert told(NotLeader("nobody does"), "") == (NOT_LEADER, {})
    assert told(NotLeader("no partition was named"), HERE, None) == (NOT_LEADER, {})


def test_one_that_took_records_and_cannot_answer_for_them_says_so_whoever_leads() -> None:
    assert told(Uncertain("its session has ended"), HERE) == (RECORDS_UNCERTAIN, {"leader": HERE, "address": "a:1"})
    assert told(Uncertain("b leads it now"), THERE) == (RECORDS_UNCERTAIN, {"leader": THERE, "address": "b:1"})
    assert told(Uncertain("nobody does"), "") == (RECORDS_UNCERTAIN, {})


def test_a_topic_of_a_query_is_named_with_its_query_and_one_of_a_user_passes() -> None:
    refuse_internal(api.Topic(name="orders"))
    with pytest.raises(HeadgateError, match="edge belongs to a query") as refused:
        refuse_internal(api.Topic(name="edge", internal=True, query_uid="query-1"))
    assert refused.value.reason is TOPIC_INTERNAL
    assert dict(refused.value.metadata) == {"query": "query-1"}
