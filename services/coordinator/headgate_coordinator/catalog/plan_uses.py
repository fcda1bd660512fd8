"""Whether what a plan was made against is still so: looked up in the transaction that accepts the plan, at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy import ColumnElement, bindparam, func, literal_column, select, union_all

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.schema import agents, network_links, physical_sources, sinks
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow

Uses = Mapping[str, Mapping[str, str]]

_NOTHING: ColumnElement[str] = literal_column("''")
_ZERO: ColumnElement[int] = literal_column("0")
# One round trip for all of it. `number` is an agent's free slots, and in the last row how many links there are.
_NOW = union_all(
    select(
        literal_column("'sink'").label("kind"),
        sinks.c.uid.label("uid"),
        sinks.c.name.label("name"),
        _NOTHING.label("state"),
        _ZERO.label("number"),
    ).where(sinks.c.uid.in_(bindparam("sinks_", expanding=True))),
    select(literal_column("'physical_source'"), physical_sources.c.uid, physical_sources.c.name, _NOTHING, _ZERO).where(
        physical_sources.c.logical_uid.in_(bindparam("logical_sources_", expanding=True))
    ),
    select(literal_column("'link'"), network_links.c.uid, _NOTHING, _NOTHING, _ZERO).where(
        network_links.c.uid.in_(bindparam("links_", expanding=True))
    ),
    select(
        literal_column("'agent'"), agents.c.uid, agents.c.name, agents.c.state, agents.c.slots - agents.c.slots_used
    ).where(agents.c.uid.in_(bindparam("agents_", expanding=True))),
    select(literal_column("'links'"), _NOTHING, _NOTHING, _NOTHING, func.count()).select_from(network_links),
)


class PlanChanged(Exception):
    """Something that a plan was made against has changed; the message says what."""


def require_unchanged(tx: Tx, plan: catalog.QueryPlan, *, links_declared: bool) -> Uses:
    """Names of what the plan uses, by kind and uid; PlanChanged unless all of it is still so and slots are free.

    `links_declared` says whether there were links when it was made: without any, every agent reaches every other.
    """
    uses: dict[str, dict[str, str]] = defaultdict(dict)
    for use in plan.uses:
        uses[use.kind][use.uid] = use.name
    now: dict[str, dict[str, AnyRow]] = defaultdict(dict)
    wanted = {f"{kind}s_": list(uses[kind]) for kind in ("sink", "logical_source", "link", "agent")}
    for row in tx.connection.execute(_NOW, wanted):
        now[row.kind][row.uid] = row
    # A physical source that is there has its logical source: the database sees to that.
    for kind in ("sink", "physical_source", "link", "agent"):
        _require_all(kind, uses[kind], now[kind])
    for uid, row in now["physical_source"].items():
        if uid not in uses["physical_source"]:
            raise PlanChanged(f"physical source {row.name} was added")
    if not links_declared and now["links"][""].number:
        raise PlanChanged("network links were declared")
    _require_room(plan, {row.name: row for row in now["agent"].values()})
    return uses


def _require_all(kind: str, used: Mapping[str, str], there: Collection[str]) -> None:
    for uid, name in used.items():
        if uid not in there:
            raise PlanChanged(f"{kind.replace('_', ' ')} {name} is gone")


def _require_room(plan: catalog.QueryPlan, there: Mapping[str, AnyRow]) -> None:
    needed: dict[str, int] = defaultdict(int)
    for fragment in plan.fragments:
        needed[fragment.agent] += fragment.slots
    for name, slots in needed.items():
        row = there.get(name)
        if row is None:
            raise PlanChanged(f"agent {name} is gone")
        if row.state != "ACTIVE":
            raise PlanChanged(f"agent {name} became {row.state}")
        if row.number < slots:
            raise PlanChanged(f"agent {name} has no longer {slots} free slots")
