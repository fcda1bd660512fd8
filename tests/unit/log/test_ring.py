"""The ring is the same in every process and moves little when membership changes."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_agent.log.ring import Member, Ring, fnv1a, place, rings
from tests.examples import examples

# FNV-1a's published vectors, then places that must never change: leadership in a running cluster depends on them.
FNV_VECTORS = {b"": 0xCBF29CE484222325, b"a": 0xAF63DC4C8601EC8C, b"foobar": 0x85944171F73967E8}
PLACES = {
    "agent-1:vn0": 0xEFDE67AD22A4D798,
    "agent-1:vn149": 0xAC08D38502AE26C4,
    "orders:0": 0x32BEA26AB73B199B,
    "orders:1": 0x5E073EDA4682D4B1,
}


def members(count: int, zones: int = 0) -> list[Member]:
    return [Member(f"agent-{i}", f"zone-{i % zones}" if zones else "") for i in range(1, count + 1)]


def leaders(who: list[Member], topics: int = 40, partitions: int = 25) -> list[str]:
    ring = Ring(tuple(who))
    return [leader for topic in range(topics) for leader in ring.leaders(f"topic-{topic}", partitions)]


def moved(before: list[str], after: list[str]) -> float:
    return sum(a != b for a, b in zip(before, after, strict=True)) / len(before)


@pytest.mark.parametrize(("data", "expected"), FNV_VECTORS.items())
def test_fnv1a_gives_the_published_vectors(data: bytes, expected: int) -> None:
    assert fnv1a(data) == expected


@pytest.mark.parametrize(("key", "expected"), PLACES.items())
def test_places_never_change(key: str, expected: int) -> None:
    assert place(key) == expected


def test_the_order_of_members_does_not_matter() -> None:
    who = members(7, zones=3)
    shuffled = list(who)
    random.Random(1).shuffle(shuffled)
    assert leaders(who) == leaders(shuffled)


def test_adding_one_agent_to_three_moves_about_a_quarter_on_average() -> None:
    shares = []
    for seed in range(30):
        names = [Member(f"node-{seed}-{i}") for i in range(4)]
        shares.append(moved(leaders(names[:3]), leaders(names)))
    assert 0.20 < sum(shares) / len(shares) < 0.30
    assert max(shares) < 0.40


def test_removing_one_of_three_moves_only_what_it_led() -> None:
    for seed in range(30):
        names = [Member(f"node-{seed}-{i}") for i in range(3)]
        before, after = leaders(names), leaders(names[:2])
        for old, new in zip(before, after, strict=True):
            assert old == new or old == names[2].name
        assert 0.2 < moved(before, after) < 0.5


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(2, 8), st.integers(2, 4))
def test_zones_lead_no_more_than_their_share_and_slack(agents: int, zones: int) -> None:
    who = members(agents, zones)
    zone_of = {member.name: member.zone for member in who}
    sizes = Counter(zone_of.values())
    partitions = 24
    led = Counter(zone_of[leader] for leader in Ring(tuple(who)).leaders("orders", partitions))
    for zone, count in led.items():
        assert count <= partitions * sizes[zone] / agents * 1.25 + 1


def test_a_zoned_cluster_moves_little_more_than_the_bare_ring() -> None:
    shares = []
    for seed in range(30):
        who = [Member(f"node-{seed}-{i}", f"zone-{i % 3}") for i in range(7)]
        shares.append(moved(leaders(who[:6]), leaders(who)))
    assert sum(shares) / len(shares) < 1 / 7 + 0.10


def test_groups_do_not_share_partitions() -> None:
    made = rings([Member("a", group="x"), Member("b", group="y")])
    assert set(made["x"].leaders("t", 10)) == {"a"}
    assert set(made["y"].leaders("t", 10)) == {"b"}


def test_an_empty_group_leads_nothing() -> None:
    assert Ring(()).leaders("t", 3) == ["", "", ""]
