"""An agent among coordinators: registering, renewing, leaving, being dropped."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from headgate.cluster import v1 as cluster
from headgate.cluster.v1 import membership_service_pb2
from headgate_agent.fragments.journal import MemoryJournal
from headgate_agent.fragments.registry import FragmentRegistry
from headgate_agent.member import PROTOCOL_VERSION, Identity, Member
from headgate_common.backoff import Backoff
from headgate_common.clock import SystemClock
from headgate_common.dispatch import Call, Dispatcher
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError, Reason
from headgate_coordinator.errors import (
    AGENT_DROPPED,
    AGENT_NAME_TAKEN,
    CATALOG_MISMATCH,
    INVALID_NAME,
    NOT_LEADER,
    PROTOCOL_VERSION_UNSUPPORTED,
    REPLACES_MISMATCH,
    SESSION_EXPIRED,
)
from tests.integration.cluster.kit import Wires
from tests.integration.cluster.runners import Script


def _duration(seconds: float) -> Duration:
    made = Duration()
    made.FromNanoseconds(int(seconds * 1e9))
    return made


@dataclass
class FakeCoordinator:
    """Answers as told: one entry of `refusals` is used up by each call of that method."""

    descriptor = membership_service_pb2.DESCRIPTOR.services_by_name["MembershipService"]

    ttl: float = 0.15
    renew_after: float = 0.0
    term: int = 1
    catalog_uid: str = ""
    refusals: dict[str, list[HeadgateError]] = field(default_factory=dict)
    registered: list[cluster.RegisterAgentRequest] = field(default_factory=list)
    renewed: list[str] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    left: list[cluster.LeaveClusterRequest] = field(default_factory=list)

    def _refuse(self, method: str) -> None:
        waiting = self.refusals.get(method)
        if waiting:
            raise waiting.pop(0)

    async def register_agent(self, request: cluster.RegisterAgentRequest, call: Call) -> cluster.RegisterAgentResponse:
        self._refuse("register")
        self.registered.append(request)
        return cluster.RegisterAgentResponse(
            session_id=f"s{len(self.registered)}",
            session_ttl=_duration(self.ttl),
            term=self.term,
            catalog_uid=self.catalog_uid,
        )

    async def renew_session(self, request: cluster.RenewSessionRequest, call: Call) -> cluster.RenewSessionResponse:
        self._refuse("renew")
        self.renewed.append(request.session_id)
        self.versions.append(request.version)
        answer = cluster.RenewSessionResponse(session_ttl=_duration(self.ttl), term=self.term)
        if self.renew_after:
            answer.renew_after.CopyFrom(_duration(self.renew_after))
        return answer

    async def find_fragments(self, request: cluster.FindFragmentsRequest, call: Call) -> cluster.FindFragmentsResponse:
        return cluster.FindFragmentsResponse(uids=request.uids)

    async def keep_starts(self, request: cluster.KeepStartsRequest, call: Call) -> cluster.KeepStartsResponse:
        return cluster.KeepStartsResponse(starts=request.starts)

    async def leave_cluster(self, request: cluster.LeaveClusterRequest, call: Call) -> cluster.LeaveClusterResponse:
        self._refuse("leave")
        self.left.append(request)
        return cluster.LeaveClusterResponse()


class Setting:
    def __init__(self, **coordinators: FakeCoordinator) -> None:
        self.wires = Wires()
        for name, one in coordinators.items():
            self.wires.servers[f"{name}:1"] = Dispatcher([one])
        self.script = Script()
        self.registry = FragmentRegistry(
            incarnation="p1", runner=self.script, journal=MemoryJournal(), clock=SystemClock()
        )
        self.member = Member(
            Identity("a", "a:1", "p1", slots=3, zone="z", roles=("fragments",), volume_id="v", has_engine=True),
            self.registry,
            transport=self.wires,
            coordinators=[f"{name}:1" for name in coordinators],
            clock=SystemClock(),
            source=random.Random(1),
            timeout=0.5,
            backoff=Backoff(initial=0.01, cap=0.05),
        )
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Setting:
        await self.registry.open()
        self.task = asyncio.create_task(self.member.run())
        return self

    async def __aexit__(self, *_: Any) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.registry.close()

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - any condition
                await asyncio.sleep(0.005)

    async def hold(self, uid: str = "f") -> None:
        ref = cluster.FragmentRef(uid=uid, epoch=1)
        await self.registry.register(cluster.RegisterFragmentRequest(command=cluster.Command(term=9), fragment=ref))
        await self.registry.start(cluster.StartFragmentRequest(command=cluster.Command(term=9), fragment=ref))


async def test_it_says_who_it_is_and_renews_its_session() -> None:
    one = FakeCoordinator(term=4)
    async with Setting(one=one) as s:
        await s.until(lambda: len(one.renewed) >= 3)
        request = one.registered[0]
        assert (request.name, request.address, request.incarnation, request.slots) == ("a", "a:1", "p1", 3)
        assert request.protocol_version == PROTOCOL_VERSION and request.volume_id == "v" and request.fragments == 0
        assert s.member.session == "s1" and not s.member.trouble
        assert s.registry.term == 4, "what the leader says of its term is remembered"
        assert len(one.registered) == 1


async def test_news_is_told_by_an_early_renewal_and_not_all_the_time() -> None:
    one = FakeCoordinator(ttl=600.0)
    async with Setting(one=one) as s:
        await s.until(lambda: one.registered)
        for number in range(200):
            await s.hold(f"f{number}")
        await s.until(lambda: one.versions and one.versions[-1] == s.registry.version)
        assert len(one.versions) < 50


async def test_a_standby_that_names_the_leader_is_followed() -> None:
    leader = FakeCoordinator()
    standby = FakeCoordinator(
        refusals={"register": [HeadgateError(NOT_LEADER, "not me", metadata={"leader": "two:1"})] * 100}
    )
    async with Setting(one=standby, two=leader) as s:
        await s.until(lambda: leader.registered)
        await s.until(lambda: leader.renewed)
        assert len(standby.refusals["register"]) == 99


async def test_coordinators_are_tried_in_turn_until_one_answers() -> None:
    two = FakeCoordinator()
    async with Setting(one=FakeCoordinator(), two=two) as s:
        s.wires.cut.add("one:1")
        await s.until(lambda: two.registered)


async def test_after_a_coordinators_restart_it_goes_on_and_registers_again_if_its_session_is_gone() -> None:
    one = FakeCoordinator()
    async with Setting(one=one) as s:
        await s.until(lambda: one.renewed)
        s.wires.cut.add("one:1")
        await s.until(lambda: s.member.session is None and s.member.trouble)
        again = FakeCoordinator(term=2, refusals={"renew": [HeadgateError(SESSION_EXPIRED, "gone")]})
        s.wires.servers["one:1"] = Dispatcher([again])
        s.wires.cut.clear()
        await s.until(lambda: again.renewed)
        assert again.registered and s.registry.term == 2 and not s.member.trouble


async def test_a_process_names_the_one_whose_place_it_takes() -> None:
    def before(incarnation: str) -> HeadgateError:
        return HeadgateError(REPLACES_MISMATCH, "not you", metadata={"incarnation": incarnation})

    one = FakeCoordinator(refusals={"register": [before("p0"), before("q"), before("q")]})
    async with Setting(one=one) as s:
        await s.until(lambda: one.renewed)
        assert [request.replaces for request in one.registered] == ["q"]
        assert not s.member.trouble


async def test_a_name_that_is_still_taken_is_asked_for_again() -> None:
    one = FakeCoordinator(refusals={"register": [HeadgateError(AGENT_NAME_TAKEN, "p0 answers")] * 3})
    async with Setting(one=one) as s:
        await s.until(lambda: one.registered)


async def test_what_was_dropped_stops_everything_and_may_then_register_if_it_is_let() -> None:
    one = FakeCoordinator(refusals={"register": [HeadgateError(AGENT_DROPPED, "it still has fragments")]})
    setting = Setting(one=one)
    await setting.registry.open()
    await setting.hold()
    setting.task = asyncio.create_task(setting.member.run())
    await setting.until(lambda: one.registered)
    assert setting.script.stops == ["f"] and one.registered[0].fragments == 0
    await setting.__aexit__()


async def test_a_process_that_is_shut_out_for_good_ends() -> None:
    one = FakeCoordinator(refusals={"register": [HeadgateError(AGENT_DROPPED, "dropped")] * 2})
    setting = Setting(one=one)
    await setting.registry.open()
    await setting.hold()
    with pytest.raises(HeadgateError) as caught:
        await setting.member.run()
    assert caught.value.reason.name == "AGENT_DROPPED"
    assert setting.registry.fragments == 0
    await setting.registry.close()


async def test_it_says_goodbye_and_silence_does_not_keep_it() -> None:
    one = FakeCoordinator()
    async with Setting(one=one) as s:
        await s.until(lambda: one.registered)
        await s.member.leave()
        assert [(left.name, left.incarnation) for left in one.left] == [("a", "p1")]
        s.wires.cut.add("one:1")
        await s.member.leave()


@pytest.mark.parametrize("reason", [INVALID_ARGUMENT, INVALID_NAME, PROTOCOL_VERSION_UNSUPPORTED])
async def test_a_refusal_that_trying_again_cannot_change_ends_it(reason: Reason) -> None:
    one = FakeCoordinator(
        refusals={"register": [HeadgateError(reason, "labels: too long", metadata={"field": "labels"})]}
    )
    setting = Setting(one=one)
    await setting.registry.open()
    with pytest.raises(HeadgateError) as caught:
        await asyncio.wait_for(setting.member.run(), 60)
    assert caught.value.reason.name == reason.name and caught.value.metadata["field"] == "labels"
    assert caught.value.message == "the coordinator refuses agent a for good: labels: too long"
    assert not one.registered
    await setting.registry.close()


async def test_a_member_that_a_later_coordinator_refuses_for_good_goes_on_trying() -> None:
    refused = HeadgateError(PROTOCOL_VERSION_UNSUPPORTED, "this coordinator speaks 7")
    one = FakeCoordinator()
    async with Setting(one=one) as s:
        await s.until(lambda: one.renewed)
        one.refusals = {"renew": [HeadgateError(SESSION_EXPIRED, "gone")], "register": [refused] * 3}
        await s.until(lambda: len(one.registered) == 2)
        assert not s.member.trouble


async def test_it_renews_when_it_is_told_to_and_never_so_late_that_its_session_could_end() -> None:
    one = FakeCoordinator(ttl=60.0, renew_after=0.1)
    async with Setting(one=one) as s:
        await s.registry.saw_term(1)
        s.registry.changed.set()
        await s.until(lambda: len(one.renewed) >= 4)
        one.ttl, one.renew_after = 0.3, 60.0
        await s.until(lambda: len(one.renewed) >= 8)


async def test_the_data_is_of_the_first_catalog_that_it_joins_and_every_registration_says_so() -> None:
    one = FakeCoordinator(catalog_uid="catalog-1")
    async with Setting(one=one) as s:
        assert await asyncio.wait_for(s.member.joined(), 60) == "catalog-1"
        assert s.member.coordinators.catalog_uid == "catalog-1"
        one.refusals = {"renew": [HeadgateError(SESSION_EXPIRED, "gone")]}
        await s.until(lambda: len(one.registered) == 2)
        assert [request.catalog_uid for request in one.registered] == ["", "catalog-1"]


async def test_a_coordinator_that_says_of_no_catalog_is_joined_all_the_same() -> None:
    one = FakeCoordinator()
    async with Setting(one=one) as s:
        assert await asyncio.wait_for(s.member.joined(), 60) == ""


@pytest.mark.parametrize("was_member", [False, True])
async def test_another_catalog_than_that_of_the_data_ends_it_at_any_time_and_stops_nothing(was_member: bool) -> None:
    refused = HeadgateError(CATALOG_MISMATCH, "this one is catalog-2")
    one = FakeCoordinator()
    if not was_member:
        one.refusals = {"register": [refused]}
    setting = Setting(one=one)
    await setting.registry.open()
    await setting.hold()
    running = asyncio.create_task(setting.member.run())
    if was_member:
        await setting.until(lambda: one.renewed)
        one.refusals = {"renew": [HeadgateError(SESSION_EXPIRED, "gone")], "register": [refused]}
    with pytest.raises(HeadgateError) as caught:
        await asyncio.wait_for(running, 60)
    assert caught.value.reason.name == "CATALOG_MISMATCH"
    assert setting.registry.fragments == 1, "what it has is not forgotten"
    await setting.registry.close()
