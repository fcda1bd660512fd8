"""Who should lead what: by the ring of the topic's group, among those whose session lives, or by the pin."""

from __future__ import annotations

from headgate.log import v1 as api
from headgate_agent.log.access import Peer
from headgate_agent.log.assignment import Assignment
from headgate_agent.log.contract import PartitionKey


def peer(name: str, *, present: bool = True, group: str = "default", zone: str = "") -> Peer:
    return Peer(name, 1, f"{name}:1", "", zone, group, present)


def topic(name: str, partitions: int = 12, group: str = "default", pinned: str = "") -> api.Topic:
    return api.Topic(name=name, uid=f"topic-{name}", partitions=partitions, group=group, pinned_agent=pinned)


def test_only_agents_that_are_present_and_of_the_group_lead() -> None:
    peers = [peer("a"), peer("b"), peer("gone", present=False), peer("other", group="x")]
    found = Assignment().leaders(peers, [topic("orders", 60), topic("private", 60, group="x")])
    assert {name for key, name in found.items() if key.topic_uid == "topic-orders"} == {"a", "b"}
    assert {name for key, name in found.items() if key.topic_uid == "topic-private"} == {"other"}
    assert len(found) == 120


def test_a_group_without_agents_has_no_leaders() -> None:
    found = Assignment().leaders([peer("a")], [topic("orders", 2, group="empty")])
    assert found == {PartitionKey("topic-orders", 0): "", PartitionKey("topic-orders", 1): ""}


def test_a_pinned_topic_is_its_agents_though_that_is_away() -> None:
    found = Assignment().leaders([peer("a"), peer("b", present=False)], [topic("edge", 3, pinned="b")])
    assert set(found.values()) == {"b"}


def test_a_change_of_membership_is_noticed_and_everyone_computes_the_same() -> None:
    topics = [topic("orders", 100)]
    long_lived = Assignment()
    before = long_lived.leaders([peer("a"), peer("b"), peer("c")], topics)
    after = long_lived.leaders([peer("c"), peer("a")], topics)
    assert after == Assignment().leaders([peer("a"), peer("c")], topics)
    assert all(after[key] == name for key, name in before.items() if name != "b")
    assert long_lived.leaders([peer("a"), peer("b"), peer("c")], topics) == before


def test_who_leaves_is_left_out() -> None:
    found = Assignment().leaders([peer("a"), peer("b")], [topic("orders")], without="a")
    assert set(found.values()) == {"b"}


def test_zones_share_a_topic() -> None:
    peers = [peer(f"a{n}", zone="east") for n in range(3)] + [peer("b", zone="west")]
    found = Assignment().leaders(peers, [topic("orders", 40)])
    assert sum(name != "b" for name in found.values()) <= 38
    assert 2 <= sum(name == "b" for name in found.values()) <= 13


def test_one_agent_keeps_a_task_for_all() -> None:
    peers = [peer("a"), peer("b", group="x"), peer("gone", present=False)]
    assert Assignment().keeper(peers, "orphans") in ("a", "b")
    assert Assignment().keeper(reversed(peers), "orphans") == Assignment().keeper(peers, "orphans")
    assert Assignment().keeper([], "orphans") == ""
