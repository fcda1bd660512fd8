"""Who does what one agent does for all that share an object store."""

from __future__ import annotations

from headgate_agent.log.access import Peer
from headgate_agent.log.assignment import Assignment


def peer(name: str, store: str, group: str = "default", *, present: bool = True) -> Peer:
    return Peer(name, 1, f"{name}:1", "", "", group, present, store)


def keepers(peers: list[Peer], task: str = "orphans") -> set[str]:
    """Those that find that it is their task."""
    present = [one.name for one in peers if one.present]
    return {name for name in present if Assignment().keeper(peers, task, name) == name}


def test_every_store_has_one_keeper_of_its_own() -> None:
    peers = [peer(f"a{n}", "one") for n in range(5)] + [peer(f"b{n}", "two", "hot") for n in range(5)]
    for task in ("orphans", "another", "a third"):
        found = keepers(peers, task)
        assert sorted(name[0] for name in found) == ["a", "b"]


def test_groups_that_share_a_store_share_its_keeper() -> None:
    peers = [peer(f"a{n}", "one") for n in range(5)] + [peer(f"b{n}", "one", "hot") for n in range(5)]
    assert len(keepers(peers)) == 1


def test_a_keeper_that_is_gone_is_replaced_by_one_of_the_same_store() -> None:
    peers = [peer("a", "one"), peer("b", "one"), peer("c", "two", "hot")]
    (first,) = keepers(peers) & {"a", "b"}
    left = [peer(one.name, one.store_id, one.group, present=one.name != first) for one in peers]
    assert keepers(left) == {"c", ({"a", "b"} - {first}).pop()}


def test_an_agent_that_does_not_know_its_store_relies_on_nobody_else() -> None:
    assert keepers([peer("a", ""), peer("b", ""), peer("c", "one")]) == {"a", "b", "c"}
