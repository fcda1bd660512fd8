"""A query whose fragment moves takes other links, and those are the ones in use."""

from __future__ import annotations

from sqlalchemy import select

from headgate.catalog import v1 as catalog
from headgate_coordinator import errors
from headgate_coordinator.catalog import links, schema
from headgate_coordinator.catalog.replacing import choose_agent
from tests.unit.entities.kit import Catalog, set_state
from tests.unit.entities.refusals import refused


def plan(compute: str) -> catalog.QueryPlan:
    made = catalog.QueryPlan()
    made.fragments.add(ordinal=1, agent="edge", slots=1, node_local=True, kind=catalog.FRAGMENT_KIND_SOURCE)
    made.fragments.add(ordinal=2, agent=compute, slots=1, kind=catalog.FRAGMENT_KIND_COMPUTE)
    made.edges.add(ordinal=1, from_fragment=1, to_fragment=2)
    return made


async def test_a_fragment_moves_along_links_and_takes_them(made: Catalog) -> None:
    for name in ("one", "two", "full"):
        await made.agent(name, slots=0 if name == "full" else 4)
    await made.apply(catalog.CreateAgentRequest(name="edge", address="edge:1", slots=4, peers=["one", "two", "full"]))
    rows = {row.name: row.uid for row in await made.rows(schema.agents)}
    await made.query("q", ["one"])
    (query,) = await made.rows(schema.queries)
    await made.write(lambda tx: links.take_links(tx, query.uid, plan("one")))
    chosen = await made.read(lambda tx: choose_agent(tx, plan("one"), 2, rows["one"]))
    assert chosen == rows["two"]
    assert await made.read(lambda tx: choose_agent(tx, plan("one"), 1, rows["edge"])) is None
    await made.write(lambda tx: links.take_links(tx, query.uid, plan("two")))
    drop = catalog.DropNetworkLinkRequest(from_agent="edge", to_agent="two")
    error = await refused(made, drop, errors.LINK_IN_USE)
    assert "q (PENDING)" in error.message
    await made.apply(catalog.DropNetworkLinkRequest(from_agent="edge", to_agent="one"))
    used = await made.read(lambda tx: tx.connection.execute(select(schema.query_links)).all())
    assert len(used) == 1
    for state in ("STOPPING", "STOPPED"):
        await set_state(made, "q", state)
    await made.apply(drop)
    assert await made.read(lambda tx: tx.connection.execute(select(schema.query_links)).all()) == []


async def test_a_link_that_is_declared_later_is_used_by_what_runs_that_way(made: Catalog) -> None:
    """Without any link every agent reaches every other, so queries run before the first is declared."""
    for name in ("one", "two"):
        await made.agent(name)
    edge = catalog.EdgePlan(ordinal=1, from_fragment=1, to_fragment=2, leader_fragment=1)
    await made.query("q", ["one", "two"], edges=[edge])
    for sending, receiving in (("one", "two"), ("two", "one")):
        await made.apply(catalog.CreateNetworkLinkRequest(from_agent=sending, to_agent=receiving))
    drop = catalog.DropNetworkLinkRequest(from_agent="one", to_agent="two")
    error = await refused(made, drop, errors.LINK_IN_USE)
    assert "q (PENDING)" in error.message
    await made.apply(catalog.DropNetworkLinkRequest(from_agent="two", to_agent="one"))
    await made.end_query("q")
    await made.apply(drop)
