"""Waiting ends when the state is there, when it cannot come any more, or when the time is over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import typer

from headgate.catalog import v1 as catalog
from headgate_cli.connection import Connection
from headgate_cli.failures import ExitCode, Failure
from headgate_cli.kinds import AGENT, QUERY, SINK
from headgate_cli.waiting import check_state, wait_for
from headgate_common.errors import UNREACHABLE, HeadgateError
from tests.unit.cli.scripted import Script

RUNNING, FAILED, DEPLOYING = catalog.QUERY_STATE_RUNNING, catalog.QUERY_STATE_FAILED, catalog.QUERY_STATE_DEPLOYING


def query(state: catalog.QueryState.ValueType) -> catalog.Resource:
    return catalog.Resource(query=catalog.Query(name="x", state=state))


def snapshot(*resources: catalog.Resource) -> catalog.WatchResponse:
    return catalog.WatchResponse(snapshot=catalog.WatchSnapshot(revision=1, resources=resources, complete=True))


def update(*resources: catalog.Resource) -> catalog.WatchResponse:
    events = [catalog.WatchEvent(operation=catalog.WATCH_OPERATION_UPDATE, current=r) for r in resources]
    return catalog.WatchResponse(events=catalog.WatchEvents(revision=2, events=events))


GONE = catalog.WatchResponse(
    events=catalog.WatchEvents(revision=3, events=[catalog.WatchEvent(operation=catalog.WATCH_OPERATION_DROP)])
)


async def waited(messages: Sequence[object], state: str, timeout: float = 30) -> None:
    await wait_for(Connection(Script(messages), "a:1", 1), QUERY, "x", state, timeout)


@pytest.mark.parametrize("messages", [[snapshot(query(RUNNING))], [snapshot(query(DEPLOYING)), update(query(RUNNING))]])
async def test_it_ends_when_the_state_is_there(messages: list[catalog.WatchResponse]) -> None:
    await waited(messages, "running")


async def test_a_dropped_query_is_what_was_waited_for() -> None:
    await waited([snapshot(query(RUNNING)), GONE], "DROPPED")
    await waited([snapshot()], "DROPPED")


@pytest.mark.parametrize("messages", [[snapshot(query(FAILED))], [snapshot(query(DEPLOYING)), GONE]])
async def test_a_state_that_cannot_come_any_more_ends_it(messages: list[catalog.WatchResponse]) -> None:
    with pytest.raises(Failure) as caught:
        await waited(messages, "RUNNING")
    assert caught.value.code is ExitCode.ENDED_OTHERWISE


async def test_what_was_never_there_is_refused() -> None:
    with pytest.raises(Failure, match="there is no query x") as caught:
        await waited([snapshot()], "RUNNING")
    assert caught.value.code is ExitCode.REFUSED


async def test_the_time_runs_out_though_the_coordinator_went_away() -> None:
    messages = [[snapshot(query(DEPLOYING)), HeadgateError(UNREACHABLE, "reset")]]
    messages += [[HeadgateError(UNREACHABLE, "refused")] for _ in range(100)]
    with pytest.raises(Failure, match="is DEPLOYING, not RUNNING, after") as caught:
        await wait_for(Connection(Script(*messages), "a:1", 1), QUERY, "x", "RUNNING", 0.3)
    assert caught.value.code is ExitCode.TIMED_OUT


def test_only_states_that_a_kind_has_can_be_waited_for() -> None:
    assert check_state(AGENT, "active") == "ACTIVE"
    with pytest.raises(typer.BadParameter, match="never 'RUNNING'"):
        check_state(AGENT, "RUNNING")
    with pytest.raises(typer.BadParameter, match="no state"):
        check_state(SINK, "ACTIVE")
