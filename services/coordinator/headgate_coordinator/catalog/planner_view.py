"""What the planner reads of the catalog, read at once: plans are made outside of any transaction.

This is the only place that makes messages of sources and sinks with their secrets in them. They go into plans, which go
to agents, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sqlalchemy import Table, bindparam, select
from sqlglot import exp

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import agent_rows, links, sinks, sources
from headgate_coordinator.catalog.descriptors import BUILT_IN_NAMES, built_in_feeds, built_in_source, is_built_in
from headgate_coordinator.catalog.plan_uses import PlanChanged
from headgate_coordinator.catalog.schema import agents, logical_sources, physical_sources
from headgate_coordinator.catalog.schema import sinks as sinks_table
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, from_json_object
from headgate_coordinator.errors import SINK_CONFLICT
from headgate_coordinator.sql.names import fold
from headgate_coordinator.sql.statements import QueryStatement

M = TypeVar("M", catalog.PhysicalSource, catalog.Sink)
Content = TypeVar("Content", catalog.LogicalSource, catalog.PhysicalSource, catalog.Sink)

# Names that are offered where one is misspelt: of those with the same first letter, so many.
SUGGESTED = 1_000

_LOGICAL = sources.LOGICAL.where(logical_sources.c.name.in_(bindparam("names_", expanding=True)))
_PHYSICAL = sources.PHYSICAL.where(physical_sources.c.logical_uid.in_(bindparam("uids_", expanding=True))).order_by(
    physical_sources.c.name
)
_SINKS = sinks.SINKS.where(sinks_table.c.name.in_(bindparam("names_", expanding=True)))
_AGENTS = select(agents.c.uid, agents.c.revision)
_ALL_AGENTS = select(agents)
_AGENTS_BY_UID = select(agents).where(agents.c.uid.in_(bindparam("uids_", expanding=True)))


@dataclass(frozen=True, slots=True)
class Named:
    """What a statement names and what there is of it, secrets included."""

    # By name.
    logical: Mapping[str, catalog.LogicalSource]
    # By the uid of the logical source that they feed.
    physical: Mapping[str, Sequence[catalog.PhysicalSource]]
    # By name.
    sinks: Mapping[str, catalog.Sink]

    def require_same(self, now: Named) -> None:
        """PlanChanged unless a plan made against this fits `now`, when and at which revision it became so aside."""
        _require_same("logical source", self.logical, now.logical)
        _require_same("physical source", _by_name(self.physical), _by_name(now.physical))
        _require_same("sink", self.sinks, now.sinks)


@dataclass(frozen=True, slots=True)
class Topology:
    """All agents, without their peers, and all links."""

    agents: Sequence[catalog.Agent]
    links: Sequence[catalog.NetworkLink]


@dataclass(frozen=True, slots=True)
class LoadedView:
    """A `CatalogView` of what one statement names, at one revision. See sql/view.py."""

    revision: int
    named: Named
    topology: Topology
    _logical_names: Sequence[str]
    _sink_names: Sequence[str]

    def logical_source(self, name: str) -> catalog.LogicalSource | None:
        return built_in_source(name) or self.named.logical.get(name)

    def physical_sources(self, logical_uid: str) -> Sequence[catalog.PhysicalSource]:
        if is_built_in(logical_uid):
            return built_in_feeds(logical_uid, self.topology.agents, self._agents_named())
        return self.named.physical.get(logical_uid, ())

    def sink(self, name: str) -> catalog.Sink | None:
        return self.named.sinks.get(name)

    def agents(self) -> Sequence[catalog.Agent]:
        return self.topology.agents

    def links(self) -> Sequence[catalog.NetworkLink]:
        return self.topology.links

    def logical_source_names(self) -> Sequence[str]:
        return (*self._logical_names, *sorted(BUILT_IN_NAMES))

    def sink_names(self) -> Sequence[str]:
        return self._sink_names

    def _agents_named(self) -> set[str]:
        """Agents of the sources and sinks that the statement names, where those are bound to one."""
        found = {sink.agent for sink in self.named.sinks.values()}
        found.update(source.agent for feeding in self.named.physical.values() for source in feeding)
        return found - {""}

    def with_slots_used(self, more: Mapping[str, int]) -> LoadedView:
        """The same, with so many more slots in use on agents, by their uid."""
        agents_ = [_using(agent, more[agent.uid]) if agent.uid in more else agent for agent in self.topology.agents]
        return replace(self, topology=Topology(agents_, self.topology.links))


@dataclass(slots=True)
class AgentCache:
    """Messages of agents by uid, good while the row's revision is the same.

    Only for reads of committed state: a transaction that is rolled back may give its revision to another.
    """

    _known: dict[str, catalog.Agent] = field(default_factory=dict)

    def read(self, tx: Tx) -> list[catalog.Agent]:
        known = self._known
        rows = tx.connection.execute(_AGENTS).all()
        changed = [uid for uid, revision in rows if uid not in known or known[uid].revision != revision]
        if changed:
            fresh = {agent.uid: agent for agent in _agents(tx, changed)}
            known = {uid: fresh.get(uid) or known[uid] for uid, _ in rows}
        elif len(known) != len(rows):
            known = {uid: known[uid] for uid, _ in rows}
        self._known = known
        return list(known.values())


def load_view(tx: Tx, query: QueryStatement, cache: AgentCache) -> LoadedView:
    """All that a plan of `query` may ask for, of committed state."""
    return view_of(tx, query, sources_named(query), Topology(cache.read(tx), _links(tx)))


def view_of(tx: Tx, query: QueryStatement, named: Set[str], topology: Topology) -> LoadedView:
    """The same, with the `sources_named`, and agents and links that were loaded in this transaction."""
    found = load_named(tx, query, named)
    return LoadedView(
        revision=tx.revision,
        named=found,
        topology=topology,
        _logical_names=_suggestions(tx, logical_sources, named - found.logical.keys() - BUILT_IN_NAMES),
        _sink_names=_suggestions(tx, sinks_table, _sinks_named(query) - found.sinks.keys()),
    )


def load_named(tx: Tx, query: QueryStatement, named: Set[str]) -> Named:
    """What there is of the `sources_named`, and of the query's sink."""
    logical = _logical(tx, named)
    return Named(
        logical=logical,
        physical=_physical(tx, [source.uid for source in logical.values()]),
        sinks=_sinks(tx, _sinks_named(query)),
    )


def load_topology(tx: Tx) -> Topology:
    """What placing a fragment needs."""
    return Topology(_agents(tx, None), _links(tx))


def with_sink(query: QueryStatement, asked: str) -> QueryStatement:
    """The query with the sink of its request; SINK_CONFLICT where its INTO names another."""
    if not asked:
        return query
    sink = fold(asked, "sink")
    if query.sink is not None and fold(query.sink, "sink") != sink:
        raise HeadgateError(
            SINK_CONFLICT,
            f"the statement writes INTO {fold(query.sink)}, and the request names the sink {sink}; name one",
            metadata={"statement": fold(query.sink), "request": sink},
        )
    return replace(query, sink=sink)


def sources_named(query: QueryStatement) -> frozenset[str]:
    """Names of sources, there or not. Takes as long as the statement is: not for while others wait."""
    return _folded(_tables(query.select))


def _sinks_named(query: QueryStatement) -> frozenset[str]:
    return _folded([query.sink] if query.sink else [])


def _tables(select_: exp.Expr) -> Iterable[str]:
    defined = {cte.alias.lower() for cte in select_.find_all(exp.CTE)}
    return (table.name for table in select_.find_all(exp.Table) if table.name.lower() not in defined)


def _folded(names: Iterable[str]) -> frozenset[str]:
    """Names that may exist; what breaks the rule for names exists nowhere."""
    folded = set()
    for name in names:
        try:
            folded.add(fold(name))
        except HeadgateError:
            continue
    return frozenset(folded)


def _logical(tx: Tx, names: Set[str]) -> dict[str, catalog.LogicalSource]:
    if not names:
        return {}
    rows = tx.connection.execute(_LOGICAL, {"names_": sorted(names)})
    return {row.name: sources.logical_message(row) for row in rows}


def _physical(tx: Tx, logical_uids: list[str]) -> dict[str, list[catalog.PhysicalSource]]:
    found: dict[str, list[catalog.PhysicalSource]] = {uid: [] for uid in logical_uids}
    if logical_uids:
        for row in tx.connection.execute(_PHYSICAL, {"uids_": logical_uids}):
            found[row.logical_uid].append(_unredacted(sources.physical_message(row), row))
    return found


def _sinks(tx: Tx, names: Set[str]) -> dict[str, catalog.Sink]:
    if not names:
        return {}
    rows = tx.connection.execute(_SINKS, {"names_": sorted(names)})
    return {row.name: _unredacted(sinks.message(row), row) for row in rows}


def _unredacted(message: M, row: AnyRow) -> M:
    message.options.update(from_json_object(row.options))
    return message


def _agents(tx: Tx, uids: list[str] | None) -> list[catalog.Agent]:
    """Agents without their peers: the view has the links themselves."""
    if uids is None:
        rows = tx.connection.execute(_ALL_AGENTS)
    else:
        rows = tx.connection.execute(_AGENTS_BY_UID, {"uids_": uids})
    return [agent_rows.message(row, ()) for row in rows]


def _links(tx: Tx) -> list[catalog.NetworkLink]:
    return [links.message(row) for row in links.all_links(tx)]


def _using(agent: catalog.Agent, more: int) -> catalog.Agent:
    using = catalog.Agent()
    using.CopyFrom(agent)
    using.slots_used += more
    return using


def _by_name(physical: Mapping[str, Sequence[catalog.PhysicalSource]]) -> dict[str, catalog.PhysicalSource]:
    return {source.name: source for feeding in physical.values() for source in feeding}


def _require_same(kind: str, before: Mapping[str, Content], now: Mapping[str, Content]) -> None:
    for name in sorted(before.keys() | now.keys()):
        if name not in before:
            raise PlanChanged(f"{kind} {name} was added")
        if name not in now:
            raise PlanChanged(f"{kind} {name} is gone")
        if _content(before[name]) != _content(now[name]):
            raise PlanChanged(f"{kind} {name} is another now")


def _content(message: Content) -> Content:
    """A copy without its place in time."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.ClearField("create_time")
    copy.ClearField("revision")
    return copy


def _suggestions(tx: Tx, table: Table, missing: Set[str]) -> Sequence[str]:
    found: list[str] = []
    for first in sorted({name[0] for name in missing}):
        selected = select(table.c.name).where(table.c.name.startswith(first, autoescape=True)).limit(SUGGESTED)
        found.extend(tx.connection.execute(selected).scalars())
    return found
