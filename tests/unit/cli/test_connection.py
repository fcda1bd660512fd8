"""Calls are retried only where that is safe, and a broken stream goes on where it was."""

from __future__ import annotations

import pytest

from headgate.catalog import v1 as catalog
from headgate_cli.connection import Connection
from headgate_common.errors import COMMON, OVERLOADED, UNREACHABLE, HeadgateError, Reason
from tests.unit.cli.scripted import Script


def not_leader(leader: str) -> HeadgateError:
    return HeadgateError(Reason("NOT_LEADER", UNREACHABLE.code, ""), "no", metadata={"leader": leader})


def events(revision: int) -> catalog.WatchResponse:
    return catalog.WatchResponse(events=catalog.WatchEvents(revision=revision))


def snapshot(revision: int, *, complete: bool) -> catalog.WatchResponse:
    return catalog.WatchResponse(snapshot=catalog.WatchSnapshot(revision=revision, complete=complete))


async def test_a_standby_points_to_the_leader_and_the_call_goes_there() -> None:
    script = Script(not_leader("b:1"), catalog.GetSnapshotResponse(revision=7))
    connection = Connection(script, "a:1", 1)
    answer = await connection.call("WatchService.GetSnapshot", catalog.GetSnapshotRequest())
    assert (answer.revision, [address for address, _ in script.asked]) == (7, ["a:1", "b:1"])
    assert connection.address == "b:1"


async def test_an_overloaded_coordinator_is_asked_again() -> None:
    script = Script(HeadgateError(OVERLOADED, "busy", retry_after=0.001), catalog.GetSnapshotResponse(revision=7))
    answer = await Connection(script, "a:1", 1).call("WatchService.GetSnapshot", catalog.GetSnapshotRequest())
    assert answer.revision == 7


async def test_a_call_that_may_have_happened_is_not_sent_again() -> None:
    script = Script(HeadgateError(UNREACHABLE, "reset"), catalog.GetSnapshotResponse())
    with pytest.raises(HeadgateError, match="UNREACHABLE"):
        await Connection(script, "a:1", 1).call("WatchService.GetSnapshot", catalog.GetSnapshotRequest())
    assert len(script.asked) == 1


async def test_retrying_has_an_end() -> None:
    script = Script(*(HeadgateError(OVERLOADED, "busy", retry_after=0.001) for _ in range(50)))
    with pytest.raises(HeadgateError, match="OVERLOADED"):
        await Connection(script, "a:1", 1).call("WatchService.GetSnapshot", catalog.GetSnapshotRequest())
    assert len(script.asked) == 5


async def test_all_pages_of_a_list_are_one_list() -> None:
    script = Script(
        catalog.ListSinksResponse(sinks=[catalog.Sink(name="a")], next_page_token="t"),
        catalog.ListSinksResponse(sinks=[catalog.Sink(name="b")]),
    )
    found = await Connection(script, "a:1", 1).pages("SinkService.ListSinks", catalog.ListSinksRequest(), "sinks")
    assert [sink.name for sink in found] == ["a", "b"]


async def test_a_stream_that_breaks_goes_on_after_the_last_revision_seen() -> None:
    broken = HeadgateError(UNREACHABLE, "reset")
    script = Script([snapshot(5, complete=True), events(6), broken], [events(7)])
    seen: list[int] = []
    told: list[HeadgateError] = []
    async for message in Connection(script, "a:1", 1).watch_resumed(catalog.WatchRequest(), told.append):
        seen.append(message.events.revision or message.snapshot.revision)
        if seen[-1] == 7:
            break
    assert seen == [5, 6, 7]
    assert [request.from_revision for _, request in script.asked] == [0, 6]
    assert told == [broken]


async def test_a_snapshot_that_was_cut_off_is_begun_again() -> None:
    script = Script([snapshot(5, complete=False), HeadgateError(UNREACHABLE, "reset")], [snapshot(8, complete=True)])
    async for message in Connection(script, "a:1", 1).watch_resumed(catalog.WatchRequest()):
        if message.snapshot.complete:
            break
    assert [request.from_revision for _, request in script.asked] == [0, 0]


@pytest.mark.parametrize("reason", ["REVISION_COMPACTED", "PARSE_ERROR"])
async def test_a_refusal_ends_a_stream(reason: str) -> None:
    refusal = HeadgateError(Reason(reason, UNREACHABLE.code, ""), "no")
    script = Script([events(6), refusal], [events(7)])
    with pytest.raises(HeadgateError, match=reason):
        async for _ in Connection(script, "a:1", 1).watch_resumed(catalog.WatchRequest()):
            pass


async def test_a_coordinator_that_was_never_reached_is_not_waited_for() -> None:
    script = Script([HeadgateError(UNREACHABLE, "refused")], [events(7)])
    with pytest.raises(HeadgateError, match="UNREACHABLE"):
        async for _ in Connection(script, "a:1", 1).watch_resumed(catalog.WatchRequest()):
            pass
    assert COMMON.get("UNREACHABLE") is UNREACHABLE
