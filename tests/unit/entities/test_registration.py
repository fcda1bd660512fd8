"""Agents that register themselves: which are taken, and which are refused and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.dispatch import Call
from headgate_common.errors import HeadgateError, Reason
from headgate_coordinator import errors
from headgate_coordinator.api.membership import MembershipService
from headgate_coordinator.catalog import agent_rows, operations, registration, schema, sessions
from headgate_coordinator.catalog.registration import Registered
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.cluster.presence import Renewed
from tests.unit.entities.kit import Catalog

TTL = 6.0


def request(**fields: Any) -> cluster.RegisterAgentRequest:
    given: dict[str, Any] = {
        "name": "a",
        "address": "127.0.0.1:7000",
        "incarnation": "process-1",
        "protocol_version": 1,
        "slots": 4,
        "has_engine": True,
    }
    return cluster.RegisterAgentRequest(**(given | fields))


async def register(made: Catalog, **fields: Any) -> Registered:
    def operation(tx: Tx) -> Registered:
        registered = registration.register_agent(tx, request(**fields), TTL)
        operations.settle(tx, made.rules)
        return registered

    return await made.write(operation)


async def refused(made: Catalog, reason: Reason, **fields: Any) -> HeadgateError:
    before = made.store.database.image()
    with pytest.raises(HeadgateError) as caught:
        await register(made, **fields)
    assert caught.value.reason is reason
    assert made.store.database.image() == before
    return caught.value


async def set_state(made: Catalog, uid: str, **values: Any) -> None:
    await made.write(lambda tx: agent_rows.update_agent(tx, uid, **values))


async def test_an_agent_that_joins_declared_links_names_its_peers(made: Catalog) -> None:
    await made.agent("b")
    await made.agent("c", peers=["b"])
    await refused(made, errors.TOPOLOGY_DISCONNECTED, address="new:7000")
    await refused(made, errors.AGENT_NOT_FOUND, address="new:7000", peers=["nobody"])
    assert list((await register(made, address="new:7000", peers=["B"])).agent.peers) == ["b"]


async def test_a_new_agent_gets_a_row_and_a_session(made: Catalog) -> None:
    registered = await register(made, labels={"k": "v"}, zone="z", volume_id="vol-1")
    agent = registered.agent
    assert agent.state == catalog.AGENT_STATE_UNREACHABLE
    assert (agent.incarnation, agent.slots, agent.zone, agent.volume_id) == ("process-1", 4, "z", "vol-1")
    assert registered.session.ttl == TTL
    (row,) = await made.rows(schema.agents)
    assert row.session_uid == registered.session.uid


async def test_registering_again_changes_nothing(made: Catalog) -> None:
    first = await register(made)
    position = made.store.changes.position
    assert await register(made) == replace(first, again=True)
    assert made.store.changes.position == position


async def test_a_declared_agent_and_a_registered_one_are_the_same_row(made: Catalog) -> None:
    declared = await made.apply(catalog.CreateAgentRequest(name="a", address="127.0.0.1:7000", slots=1))
    registered = await register(made, slots=8)
    assert registered.agent.uid == declared.uid
    assert registered.agent.slots == 8


async def test_another_address_is_refused(made: Catalog) -> None:
    await register(made)
    error = await refused(made, errors.ADDRESS_MISMATCH, address="127.0.0.1:7001")
    assert error.metadata["address"] == "127.0.0.1:7000"
    await refused(made, errors.ALREADY_EXISTS, name="b")


async def test_a_second_process_is_refused_while_the_first_answers(made: Catalog) -> None:
    first = await register(made)
    await set_state(made, first.agent.uid, state="ACTIVE")
    error = await refused(made, errors.AGENT_NAME_TAKEN, incarnation="process-2")
    assert error.metadata["incarnation"] == "process-1"
    await set_state(made, first.agent.uid, state="UNREACHABLE")
    second = await register(made, incarnation="process-2", replaces="process-1")
    assert second.agent.incarnation == "process-2"
    assert second.session.uid != first.session.uid
    (left,) = await made.rows(schema.sessions)
    assert left.uid == second.session.uid


async def test_a_process_that_a_poll_found_first_gets_a_session_of_its_own(made: Catalog) -> None:
    """Not that of its predecessor, with all that was granted to it."""
    first = await register(made)
    await set_state(made, first.agent.uid, state="ACTIVE", incarnation="process-2")
    second = await register(made, incarnation="process-2")
    assert second.session.uid != first.session.uid and not second.again
    assert second.session.holder == "agent/a/process-2"
    left = await made.read(lambda tx: [session.uid for session in sessions.list_sessions(tx)])
    assert left == [second.session.uid]


async def test_a_process_that_was_replaced_cannot_come_back_by_a_call_that_comes_late(made: Catalog) -> None:
    await register(made)
    replaced = await register(made, incarnation="process-2", replaces="process-1")
    assert replaced.agent.state == catalog.AGENT_STATE_UNREACHABLE
    await refused(made, errors.AGENT_DROPPED, incarnation="process-1")
    assert (await register(made, incarnation="process-2")).session.uid == replaced.session.uid


async def test_a_process_that_nobody_knew_cannot_take_a_place_by_a_call_that_comes_late(made: Catalog) -> None:
    """It was sent while another process was the last one, or none."""
    first = await register(made)
    for replaces in ("", "process-0"):
        error = await refused(made, errors.REPLACES_MISMATCH, incarnation="process-2", replaces=replaces)
        assert error.metadata["incarnation"] == "process-1"
    again = await register(made)
    assert again.session.uid == first.session.uid, "the one that lives goes on"
    await register(made, incarnation="process-2", replaces="process-1")
    await refused(made, errors.REPLACES_MISMATCH, incarnation="process-3", replaces="process-1")


async def test_replaced_processes_are_forgotten_in_time_and_those_of_dropped_agents_never(made: Catalog) -> None:
    first = await register(made)
    await register(made, name="b", address="127.0.0.1:7001", incarnation="process-b")
    await made.apply(catalog.DropAgentRequest(name="b", force=True))
    for number in (2, 3):
        await set_state(made, first.agent.uid, state="UNREACHABLE")
        await register(made, incarnation=f"process-{number}", replaces=f"process-{number - 1}")
    assert len(await made.rows(schema.fenced_incarnations)) == 3
    assert await made.write(lambda tx: agent_rows.forget_replaced(tx, 3_600.0, 10)) == 0
    assert await made.write(lambda tx: agent_rows.forget_replaced(tx, -1.0, 1)) == 1
    assert await made.write(lambda tx: agent_rows.forget_replaced(tx, -1.0, 10)) == 1
    (row,) = await made.rows(schema.fenced_incarnations)
    assert row.incarnation == "process-b"


async def test_registering_again_renews_the_session(made: Catalog) -> None:
    renewed: list[str] = []

    class Renewals:
        async def renew(self, uid: str, version: int, reports: Sequence[cluster.FragmentReport]) -> Renewed:
            renewed.append(uid)
            return Renewed(TTL, TTL / 3)

    class Leading:
        def require_term(self) -> None:
            return None

    service = MembershipService(made.store, Leading(), Renewals(), made.rules, TTL)  # type: ignore[arg-type]
    first = await service.register_agent(request(), Call(peer="a", timeout=1.0))
    assert renewed == [], "everybody counts from when it was opened"
    again = await service.register_agent(request(), Call(peer="a", timeout=1.0))
    assert renewed == [first.session_id] == [again.session_id]


async def test_incompatible_versions_are_refused(made: Catalog) -> None:
    for version in (0, 2, 999):
        await refused(made, errors.PROTOCOL_VERSION_UNSUPPORTED, protocol_version=version)


async def test_a_dropped_process_cannot_come_back_and_a_new_one_must_be_empty(made: Catalog) -> None:
    await register(made)
    await made.apply(catalog.DropAgentRequest(name="a"))
    assert await made.rows(schema.sessions) == []
    await refused(made, errors.AGENT_DROPPED)
    await refused(made, errors.AGENT_DROPPED, name="other")
    await refused(made, errors.AGENT_DROPPED, incarnation="process-2", fragments=3)
    assert (await register(made, incarnation="process-2")).agent.incarnation == "process-2"


async def test_an_agent_declared_gone_must_stop_everything_before_it_registers(made: Catalog) -> None:
    await register(made)
    await made.sink("s", "a")
    await made.apply(catalog.DropAgentRequest(name="a", force=True))
    await refused(made, errors.AGENT_DROPPED, fragments=1)
    await refused(made, errors.AGENT_DROPPED, incarnation="process-2", fragments=1)
    assert (await register(made, incarnation="process-2")).agent.incarnation == "process-2"


async def test_an_agent_cannot_offer_fewer_slots_than_are_in_use(made: Catalog) -> None:
    first = await register(made)
    await set_state(made, first.agent.uid, state="ACTIVE")
    await made.query("q", ["a", "a", "a"])
    assert (await register(made, slots=1)).agent.slots == 3
    assert (await register(made, slots=5)).agent.slots == 5


async def test_a_process_that_leaves_is_unreachable_and_its_session_ends(made: Catalog) -> None:
    registered = await register(made)
    await set_state(made, registered.agent.uid, state="ACTIVE")
    other = cluster.LeaveClusterRequest(name="a", incarnation="process-0")
    await made.write(lambda tx: registration.leave_cluster(tx, other))
    (row,) = await made.rows(schema.agents)
    assert row.state == "ACTIVE"
    leaving = cluster.LeaveClusterRequest(name="a", incarnation="process-1")
    await made.write(lambda tx: registration.leave_cluster(tx, leaving))
    (row,) = await made.rows(schema.agents)
    assert (row.state, row.state_reason, row.session_uid) == ("UNREACHABLE", "it has left", None)
    with pytest.raises(HeadgateError):
        await made.read(lambda tx: sessions.get_session(tx, registered.session.uid))


async def test_where_links_are_declared_an_unlinked_agent_must_be_declared_first(made: Catalog) -> None:
    await made.agent("x")
    await made.agent("y", peers=["x"])
    await refused(made, errors.TOPOLOGY_DISCONNECTED, address="127.0.0.1:7777")
    await made.apply(catalog.CreateAgentRequest(name="a", address="127.0.0.1:7777", peers=["x"]))
    await register(made, address="127.0.0.1:7777")
