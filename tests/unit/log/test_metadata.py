"""The log's metadata: many partitions in one call, one stale leader alone, and no answer is asked for again."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import grpc
import pytest

from headgate.log import v1 as api
from headgate_agent.coordinators import Coordinators
from headgate_agent.log.contract import NotLeader, PartitionKey, SegmentInfo
from headgate_agent.log.metadata import LogCatalog, SessionMetadata
from headgate_common.backoff import Backoff
from headgate_common.dispatch import Method
from headgate_common.errors import UNREACHABLE, HeadgateError, Reason

STALE_EPOCH = Reason("STALE_EPOCH", grpc.StatusCode.ABORTED, "")


class Catalog:
    """Commits what it is sent, as the coordinator would, but for partitions that are `stale`."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.committed: list[int] = []
        self.stale: set[int] = set()
        self.failures: list[HeadgateError] = []
        self.lose_answers = 0

    async def call(self, address: str, method: Method, request: Any, *, timeout: float) -> Any:
        await asyncio.sleep(0)
        self.requests.append(request)
        if self.failures:
            raise self.failures.pop(0)
        if isinstance(request, api.CommitSegmentsRequest):
            indexes = [one.leader.partition.index for one in request.commits]
            if self.stale & set(indexes):
                raise HeadgateError(STALE_EPOCH, "the epoch has passed")
            self.committed += indexes
        if self.lose_answers:
            self.lose_answers -= 1
            raise HeadgateError(UNREACHABLE, "the answer was lost")
        if isinstance(request, api.ListSegmentsRequest):
            listed = [segment for segment in SEGMENTS if segment.next_offset > request.from_offset]
            return api.ListSegmentsResponse(segments=listed[: request.limit])
        return method.response()

    def stream(self, *arguments: Any, **options: Any) -> Any:
        raise NotImplementedError


SEGMENTS = [api.Segment(uid=f"s{n}", base_offset=n, next_offset=n + 1) for n in range(2500)]


def made(catalog: Catalog) -> tuple[LogCatalog, SessionMetadata]:
    backoff = Backoff(initial=0.001, cap=0.002)
    asked = LogCatalog(Coordinators(catalog, ["c:1"], timeout=1.0), source=random.Random(1), backoff=backoff)
    return asked, SessionMetadata(asked, "session-1")


def segment(index: int) -> SegmentInfo:
    return SegmentInfo(f"s{index}", f"k{index}", 0, 1, 10, 0, 0, 1)


async def commit(metadata: SessionMetadata, index: int) -> None:
    await metadata.commit(PartitionKey("t", index), 1, segment(index), ())


async def test_what_is_wanted_at_the_same_time_goes_in_one_call() -> None:
    catalog = Catalog()
    _, metadata = made(catalog)
    await asyncio.gather(*(commit(metadata, index) for index in range(50)))
    assert len(catalog.requests) <= 2
    assert sorted(catalog.committed) == list(range(50))
    assert catalog.requests[0].session_id == "session-1"


async def test_one_stale_leader_does_not_fail_the_others() -> None:
    catalog = Catalog()
    catalog.stale = {3}
    _, metadata = made(catalog)
    done = await asyncio.gather(*(commit(metadata, index) for index in range(6)), return_exceptions=True)
    assert [isinstance(one, NotLeader) for one in done] == [index == 3 for index in range(6)]
    assert sorted(catalog.committed) == [0, 1, 2, 4, 5]


async def test_a_call_that_was_not_answered_is_repeated_until_it_is() -> None:
    catalog = Catalog()
    catalog.failures = [HeadgateError(UNREACHABLE, "away")] * 5
    catalog.lose_answers = 2
    _, metadata = made(catalog)
    await asyncio.wait_for(commit(metadata, 1), 60)
    assert len(catalog.requests) == 8


async def test_nothing_is_repeated_for_someone_who_has_given_up() -> None:
    catalog = Catalog()
    catalog.failures = [HeadgateError(UNREACHABLE, "away")] * 10_000
    _, metadata = made(catalog)
    waiting = asyncio.ensure_future(commit(metadata, 1))
    await asyncio.sleep(0.02)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await asyncio.sleep(0.02)
    sent = len(catalog.requests)
    await asyncio.sleep(0.05)
    assert len(catalog.requests) == sent


async def test_who_waits_when_the_session_ends_is_told() -> None:
    catalog = Catalog()
    catalog.failures = [HeadgateError(UNREACHABLE, "away")] * 10_000
    _, metadata = made(catalog)
    waiting = asyncio.ensure_future(commit(metadata, 1))
    await asyncio.sleep(0.01)
    metadata.close()
    with pytest.raises((NotLeader, asyncio.CancelledError)):
        await asyncio.wait_for(waiting, 60)


async def test_segments_are_listed_page_by_page() -> None:
    asked, _ = made(Catalog())
    found = await asked.segments(PartitionKey("t", 0), 100, 2300)
    assert [one.base_offset for one in found] == list(range(100, 2300))
