"""Agents and links: what is stored, what is refused, and what is said about it."""

from __future__ import annotations

import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator import errors
from headgate_coordinator.catalog import agent_rows, agents, links, schema
from headgate_coordinator.catalog.operations import Rules
from tests.unit.entities.kit import RULES, Catalog
from tests.unit.entities.refusals import refused


async def test_a_declared_agent_is_unreachable_until_it_answers(made: Catalog) -> None:
    agent = await made.agent("Alpha", slots=3, active=False, zone="z1", labels={"os": "linux"})
    assert agent.name == "alpha"
    assert agent.state == catalog.AGENT_STATE_UNREACHABLE
    assert agent.group == "default"
    assert list(agent.roles) == [catalog.AGENT_ROLE_FRAGMENTS, catalog.AGENT_ROLE_LOG]
    assert agent.has_engine
    assert agent.labels == {"os": "linux"}
    read = await made.read(lambda tx: agents.get_agent(tx, catalog.GetAgentRequest(name="ALPHA")))
    assert read == agent


async def test_a_name_or_address_is_given_once(made: Catalog) -> None:
    await made.apply(catalog.CreateAgentRequest(name="a", address="Host:7000", slots=1))
    same_name = catalog.CreateAgentRequest(name="A", address="host:7001", slots=1)
    error = await refused(made, same_name, errors.ALREADY_EXISTS)
    assert error.metadata["field"] == "name"
    same_address = catalog.CreateAgentRequest(name="b", address="host:07000", slots=1)
    error = await refused(made, same_address, errors.ALREADY_EXISTS)
    assert error.metadata == {"kind": "agent", "name": "a", "field": "address"}


@pytest.mark.parametrize(
    "address",
    [
        "host",
        "host:",
        ":7000",
        "host:0",
        "host:65536",
        "host:+1",
        "host:١",
        "a b:7000",
        "::1:7000",
        "[::g]:1",
        "1.2.3:1",
        "-h:1",
        "h\0:1",
    ],
)
async def test_an_address_that_is_not_host_and_port_is_refused(made: Catalog, address: str) -> None:
    await refused(made, catalog.CreateAgentRequest(name="a", address=address), errors.INVALID_ADDRESS)


@pytest.mark.parametrize(
    ("given", "stored"),
    [("EXAMPLE.com:80", "example.com:80"), ("[0:0::1]:9", "[::1]:9"), ("10.0.0.1:65535", "10.0.0.1:65535")],
)
async def test_an_address_is_stored_in_one_spelling(made: Catalog, given: str, stored: str) -> None:
    agent = await made.apply(catalog.CreateAgentRequest(name="a", address=given))
    assert agent.address == stored


async def test_peers_become_links_and_change_the_agent(made: Catalog) -> None:
    await made.agent("b")
    await made.agent("c", peers=["b"])
    assert [row.from_uid for row in await made.rows(schema.network_links)]
    link = await made.apply(catalog.CreateNetworkLinkRequest(from_agent="b", to_agent="c"))
    revision = (await made.history())[-1]
    assert [(change.kind, change.name) for change in revision.changes] == [("NETWORK_LINK", "b->c"), ("AGENT", "b")]
    assert list(revision.changes[1].after.peers) == ["c"]  # type: ignore[union-attr]
    assert link.revision == revision.number
    await made.apply(catalog.DropNetworkLinkRequest(from_agent="b", to_agent="c"))
    agent = await made.read(lambda tx: agents.get_agent(tx, catalog.GetAgentRequest(name="b")))
    assert list(agent.peers) == []
    assert agent.revision == made.store.changes.position


async def test_links_are_refused_to_itself_twice_and_to_nobody(made: Catalog) -> None:
    await made.agent("a")
    await made.agent("b", peers=["a"])
    refuse = catalog.CreateNetworkLinkRequest
    await refused(made, refuse(from_agent="b", to_agent="a"), errors.ALREADY_EXISTS)
    await refused(made, refuse(from_agent="b", to_agent="ghost"), errors.AGENT_NOT_FOUND)
    with pytest.raises(HeadgateError, match="to itself"):
        await made.apply(refuse(from_agent="a", to_agent="A"))
    await refused(made, catalog.CreateAgentRequest(name="d", address="h:1", peers=["ghost"]), errors.AGENT_NOT_FOUND)
    with pytest.raises(HeadgateError, match="own peer"):
        await made.apply(catalog.CreateAgentRequest(name="d", address="h:1", peers=["D"]))


async def test_an_agent_without_a_link_is_refused_where_links_are_declared(made: Catalog) -> None:
    await made.agent("a")
    await made.agent("b", peers=["a"])
    error = await refused(made, catalog.CreateAgentRequest(name="c", address="h:1"), errors.TOPOLOGY_DISCONNECTED)
    assert error.metadata["agents"] == "c"
    await made.agent("c", peers=["b"])


async def test_the_first_links_must_join_every_agent(made: Catalog) -> None:
    for name in ("a", "b", "c"):
        await made.agent(name)
    link = catalog.CreateNetworkLinkRequest(from_agent="a", to_agent="b")
    error = await refused(made, link, errors.TOPOLOGY_DISCONNECTED)
    assert error.metadata["agents"] == "c"


async def test_another_group_needs_no_link_to_this_one(made: Catalog) -> None:
    await made.agent("a")
    await made.agent("b", peers=["a"])
    await made.agent("lonely", group="other")
    await refused(
        made, catalog.CreateAgentRequest(name="second", address="h:1", group="other"), errors.TOPOLOGY_DISCONNECTED
    )


async def test_cycles_are_allowed_unless_configured_otherwise() -> None:
    for refuse in (False, True):
        rules = Rules(RULES.schema, RULES.deployment_deadline_us, RULES.drain_deadline_us, refuse_cycles=refuse)
        made = Catalog(rules)
        await made.agent("a")
        await made.agent("b", peers=["a"])
        await made.agent("c", peers=["b"])
        closing = catalog.CreateNetworkLinkRequest(from_agent="a", to_agent="c")
        if refuse:
            error = await refused(made, closing, errors.TOPOLOGY_CYCLE)
            assert "a -> c -> b -> a" in error.message
        else:
            await made.apply(closing)
        await made.close()


async def test_an_agent_in_use_is_not_dropped_and_the_error_says_by_what(made: Catalog) -> None:
    await made.agent("a")
    await made.agent("b", peers=["a"])
    await made.logical()
    await made.physical(agent="a", name="p")
    await made.sink("s", agent="a")
    await made.query("q", ["a"], sources=["p"], sinks=["s"])
    error = await refused(made, catalog.DropAgentRequest(name="a"), errors.AGENT_IN_USE)
    assert "physical source: p (FILE)" in error.message
    assert "sink: s (FILE)" in error.message
    assert "query: q (PENDING)" in error.message
    assert "network link: b->a" in error.message
    assert error.metadata["count"] == "4"


async def test_an_ended_query_does_not_hold_an_agent_and_keeps_its_name(made: Catalog) -> None:
    await made.agent("a")
    await made.query("q", ["a"])
    await made.end_query("q")
    dropped = await made.apply(catalog.DropAgentRequest(name="a"))
    assert dropped.name == "a"
    (fragment,) = await made.rows(schema.fragments)
    assert (fragment.agent_uid, fragment.agent_name) == (None, "a")


async def test_a_dropped_process_is_shut_out(made: Catalog) -> None:
    agent = await made.agent("a")
    await made.write(lambda tx: agent_rows.update_agent(tx, agent.uid, incarnation="process-1"))
    await made.apply(catalog.DropAgentRequest(name="a"))
    (fenced,) = await made.rows(schema.fenced_incarnations)
    assert (fenced.incarnation, fenced.agent_name) == ("process-1", "a")


async def test_force_releases_fragments_slots_and_links(made: Catalog) -> None:
    await made.agent("a", slots=2)
    await made.agent("b", slots=2, peers=["a"])
    await made.query("q", ["a", "b"])
    dropped = await made.apply(catalog.DropAgentRequest(name="a", force=True))
    assert dropped.name == "a"
    fragments = sorted(await made.rows(schema.fragments), key=lambda row: row.ordinal)
    assert [(row.agent_name, row.slots_held) for row in fragments] == [("a", False), ("b", True)]
    assert await made.rows(schema.network_links) == []
    (left,) = await made.rows(schema.agents)
    assert (left.name, left.slots_used) == ("b", 1)


async def test_force_keeps_the_row_for_sources_on_it_but_releases_what_ran(made: Catalog) -> None:
    await made.agent("a")
    await made.logical()
    await made.physical(agent="a", name="p")
    await made.query("q", ["a"], sources=["p"])
    kept = await made.apply(catalog.DropAgentRequest(name="a", force=True))
    assert kept.state == catalog.AGENT_STATE_UNREACHABLE
    assert "declared gone for good" in kept.state_reason
    assert "p (FILE)" in kept.state_reason
    (fragment,) = await made.rows(schema.fragments)
    assert not fragment.slots_held
    # Without an agent the query fails with AGENT_GONE at the next look, instead of waiting for good.
    assert (fragment.agent_uid, fragment.agent_name) == (None, "a")
    (row,) = await made.rows(schema.agents)
    assert row.slots_used == 0


async def test_drop_checks_the_uid_and_may_miss(made: Catalog) -> None:
    agent = await made.agent("a")
    error = await refused(made, catalog.DropAgentRequest(name="a", uid="agent-other"), errors.UID_MISMATCH)
    assert error.metadata["uid"] == agent.uid
    await refused(made, catalog.DropAgentRequest(name="b"), errors.AGENT_NOT_FOUND)
    assert await made.apply(catalog.DropAgentRequest(name="b", allow_missing=True)) is None
    assert (await made.apply(catalog.DropAgentRequest(name="a", uid=agent.uid))).uid == agent.uid


async def test_agents_are_listed_by_state_room_group_zone_and_address(made: Catalog) -> None:
    await made.agent("a", slots=1, zone="z")
    await made.agent("b", slots=5, group="g")
    await made.agent("c", slots=5, active=False)

    async def names(**filters: object) -> list[str]:
        request = catalog.ListAgentsRequest(**filters)  # type: ignore[arg-type]
        return [agent.name for agent in (await made.read(lambda tx: agents.list_agents(tx, request))).agents]

    assert await names() == ["a", "b", "c"]
    assert await names(state=catalog.AGENT_STATE_ACTIVE) == ["a", "b"]
    assert await names(min_free_slots=2) == ["b", "c"]
    assert await names(group="g") == ["b"]
    assert await names(zone="z") == ["a"]
    (b,) = (await made.read(lambda tx: agents.list_agents(tx, catalog.ListAgentsRequest(group="g")))).agents
    assert await names(address=b.address) == ["b"]
    assert await names(address="elsewhere:1") == []


async def test_links_are_listed_by_agent_in_order(made: Catalog) -> None:
    await made.agent("b")
    await made.agent("a", peers=["b"])
    await made.apply(catalog.CreateNetworkLinkRequest(from_agent="b", to_agent="a"))
    await made.agent("c", peers=["a"])
    request = catalog.ListNetworkLinksRequest(agent="b")
    found = await made.read(lambda tx: links.list_network_links(tx, request))
    assert [(link.from_agent, link.to_agent) for link in found.network_links] == [("a", "b"), ("b", "a")]
    one = catalog.GetNetworkLinkRequest(from_agent="c", to_agent="a")
    assert (await made.read(lambda tx: links.get_network_link(tx, one))).from_agent == "c"
