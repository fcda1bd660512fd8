"""An agent that is gone is listed a little longer, and not for good, unless all are gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import cast

from headgate_agent.kafka.brokers import NO_NODE, Brokers
from headgate_agent.log.access import ClusterView, Peer
from headgate_common.clock import SystemClock


class HandClock(SystemClock):
    now = 0.0

    def monotonic(self) -> float:
        return self.now


class Peers:
    def __init__(self, *peers: Peer) -> None:
        self.known = {peer.name: peer for peer in peers}

    def peers(self) -> Iterable[Peer]:
        return self.known.values()


def peer(name: str, node: int, address: str = "h:1") -> Peer:
    return Peer(name, node, "h:2", address, "", "default", present=True)


def test_one_that_is_gone_is_listed_for_a_while() -> None:
    clock, view = HandClock(), Peers(peer("b", 2), peer("a", 1))
    brokers = Brokers(cast(ClusterView, view), clock, 10.0)
    assert [one.name for one in brokers.listed()] == ["a", "b"]
    view.known["a"] = replace(view.known["a"], present=False)
    clock.now = 10.0
    assert [one.name for one in brokers.listed()] == ["a", "b"]
    clock.now = 10.1
    assert [one.name for one in brokers.listed()] == ["b"]


def test_one_that_came_back_elsewhere_is_listed_there() -> None:
    view = Peers(peer("a", 1))
    brokers = Brokers(cast(ClusterView, view), HandClock(), 10.0)
    brokers.listed()
    view.known["a"] = peer("a", 1, "h:3")
    assert [one.kafka_address for one in brokers.listed()] == ["h:3"]


def test_one_without_a_kafka_port_is_no_broker() -> None:
    assert Brokers(cast(ClusterView, Peers(peer("a", 1, ""))), HandClock(), 10.0).listed() == []


def test_while_nobody_is_there_all_that_are_known_are_listed() -> None:
    gone = [replace(peer(name, node), present=False) for name, node in (("b", 2), ("a", 1))]
    view = Peers(*gone, replace(peer("c", 3, ""), present=False))
    brokers = Brokers(cast(ClusterView, view), HandClock(), 10.0)
    assert [one.name for one in brokers.listed()] == ["a", "b"]
    view.known["b"] = peer("b", 2)
    assert [one.name for one in brokers.listed()] == ["b"]


async def test_while_nobody_is_there_the_controller_is_one_that_is_known() -> None:
    view = Peers(*(replace(peer(name, node), present=False) for name, node in (("a", 1), ("b", 2))))
    brokers = Brokers(cast(ClusterView, view), HandClock(), 10.0)
    assert await brokers.controller("b", 0.0) == 2
    del view.known["b"]
    assert await brokers.controller("b", 0.0) == 1


async def test_the_controller_is_the_agent_itself_or_another_that_is_there() -> None:
    view = Peers(peer("a", 1), peer("b", 2))
    brokers = Brokers(cast(ClusterView, view), HandClock(), 10.0)
    assert await brokers.controller("b", 1.0) == 2
    view.known["b"] = replace(view.known["b"], present=False)
    assert await brokers.controller("b", 1.0) == 1


async def test_who_asks_just_after_a_start_is_told_of_a_controller_when_there_is_one() -> None:
    view = Peers(replace(peer("a", 1), present=False))
    brokers = Brokers(cast(ClusterView, view), HandClock(), 10.0)
    asking = asyncio.ensure_future(brokers.controller("a", 30.0))
    await asyncio.sleep(0.1)
    assert not asking.done()
    view.known["a"] = peer("a", 1)
    assert await asking == 1
    view.known.clear()
    assert await brokers.controller("a", 0.1) == NO_NODE
