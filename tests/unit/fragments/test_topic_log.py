"""The log as sinks and starts of queries know it: what an agent that was just started does not know is not missing."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headgate_agent.coordinators import Coordinators
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.sinks.topic_log import ClusterTopics
from headgate_agent.groups.asking import Asking
from headgate_agent.log.access import GroupOffsets
from headgate_agent.log.forwarding import Leaders
from headgate_agent.log.view import CatalogView
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.errors import UNREACHABLE, HeadgateError


def view() -> CatalogView:
    return CatalogView(
        cast(Coordinators, None), clock=SystemClock(), source=random.Random(1), backoff=Backoff(), silence=1.0
    )


def topics(view: CatalogView, timeout: float) -> ClusterTopics:
    leaders: Any = SimpleNamespace(access=SimpleNamespace(view=view))
    config = FragmentConfig(topic_timeout=timeout)
    return ClusterTopics(cast(Leaders, leaders), cast(GroupOffsets, None), cast(Asking, None), config)


async def test_a_topic_is_not_missing_before_anything_is_known() -> None:
    known = view()
    with pytest.raises(HeadgateError) as refused:
        await topics(known, 0.05).topic("t")
    assert refused.value.reason == UNREACHABLE
    asked = asyncio.create_task(topics(known, 10.0).topic("t"))
    await asyncio.sleep(0.05)
    assert not asked.done()
    known._moved(7)
    assert await asked is None
