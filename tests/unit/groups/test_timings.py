"""How often groups are looked over, and when it is looked back, are settings."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from headgate.log import v1 as log
from headgate_agent.groups.events import GroupRefused
from headgate_agent.groups.groups import Groups, GroupTimings
from headgate_agent.groups.machine import Rules
from headgate_agent.kafka.config import GroupLimits, KafkaConfig
from headgate_agent.kafka.port import timings_of
from headgate_agent.log.access import Peer
from headgate_agent.log.certainty import Certainty
from headgate_common.clock import SystemClock
from headgate_common.config import ConfigError, load
from headgate_common.errors import DEADLINE_EXCEEDED, HeadgateError
from tests.unit.log.test_looks import Alive

OWN = Peer("a", 0, "a:1", "a:9092", "", "", present=True)


class Alone:
    """A view with one agent in it."""

    def peers(self) -> Sequence[Peer]:
        return [OWN]

    def peer(self, name: str) -> Peer | None:
        return OWN


class Late:
    """A catalog that grants groups after the agent has stopped waiting for it."""

    def __init__(self) -> None:
        self.asked = 0
        self.released: list[int] = []

    async def acquire(self, session: str, group: str) -> Any:
        raise HeadgateError(DEADLINE_EXCEEDED, "no answer")

    async def get(self, group: str) -> log.Group:
        self.asked += 1
        return log.Group(name=group, leader=OWN.name, epoch=7)

    async def release(self, group: str, grant: Any) -> None:
        self.released.append(grant.epoch)


async def looked(timings: GroupTimings, seconds: float) -> Late:
    """What was asked of a catalog within so long after a group was given up."""
    view: Any = Alone()
    catalog: Any = Late()
    groups = Groups(
        OWN.name, view, catalog, Certainty(Alive(), SystemClock(), lambda: 0.0), Rules(), SystemClock(), timings
    )
    with pytest.raises(GroupRefused):
        await groups.led("g")
    looking = asyncio.ensure_future(groups.run())
    await asyncio.sleep(seconds)
    looking.cancel()
    with suppress(asyncio.CancelledError):
        await looking
    await groups.close()
    return catalog  # type: ignore[no-any-return]


async def test_a_group_that_came_late_is_given_back_after_the_times_that_are_set() -> None:
    late = await looked(GroupTimings(look_interval=0.01, looks_back=(0.0, 0.05, 0.1)), 0.5)
    assert late.released == [7, 7, 7]


async def test_before_its_time_and_without_one_nobody_looks_back() -> None:
    assert (await looked(GroupTimings(look_interval=0.01, looks_back=(60.0,)), 0.2)).asked == 0
    assert (await looked(GroupTimings(look_interval=0.01, looks_back=()), 0.2)).asked == 0


async def test_groups_are_looked_over_as_often_as_is_set() -> None:
    assert (await looked(GroupTimings(look_interval=60.0, looks_back=(0.0,)), 0.2)).asked == 0


def test_an_agent_takes_its_timings_from_its_configuration() -> None:
    assert timings_of(GroupLimits()) == GroupTimings(), "the defaults are the same"
    settings = ("groups.look_interval=50ms", "groups.looks_back=1s,1m", "groups.forget_after=3s")
    groups = load(KafkaConfig, service="agent", flags=settings).config.groups
    assert timings_of(groups) == GroupTimings(forget_after=3.0, look_interval=0.05, looks_back=(1.0, 60.0))


def test_times_to_look_back_that_do_not_grow_are_refused() -> None:
    with pytest.raises(ConfigError, match="later"):
        load(KafkaConfig, service="agent", flags=("groups.looks_back=8s,2s",))
