"""What the planner reads of the catalog, read at once: plans are made outside of any transaction.

This is the only place that makes messages of sources and sinks with their secrets in them. They go into plans, which go
to agents, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy import Table, bindparam, select
from sqlglot import exp

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import agent_rows, links, sinks, sources
from headgate_coordinator.catalog.schema import agents, logical_sources, physical_sources
from headgate_coordinator.catalog.schema import sinks as sinks_table
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, from_json_object
from headgate_coordinator.sql.names import fold
from headgate_coordinator.sql.statements import QueryStatement

M = TypeVar("M", catalog.PhysicalSource, catalog.Sink)

# Names that are offered where one is misspelt: of those with the same first letter, so many.
SUGGESTED = 1_000

_LOGICAL = sources.LOGICAL.where(logical_sources.c.name.in_(bindparam("names_", expanding=True)))
_PHYSICAL = sources.PHYSICAL.where(physical_sources.c.logical_uid.in_(bindparam("uids_", expanding=True))).order_by(
    physical_sources.c.name
)
_SINKS = sinks.SINKS.where(sinks_table.c.name.in_(bindparam("names_", expanding=True)))
_AGENTS = select(agents.c.uid, agents.c.revision)


@dataclass(frozen=True, slots=True)
class LoadedView:
    """A `CatalogView` of what one statement names, at one revision. See sql/view.py."""

    revision: int
    _logical: Mapping[str, catalog.LogicalSource]
    _physical: Mapping[str, Sequence[catalog.PhysicalSource]]
    _sinks: Mapping[str, catalog.Sink]
    _agents: Sequence[catalog.Agent]
    _links: Sequence[catalog.NetworkLink]
    _logical_names: Sequence[str]
    _sink_names: Sequence[str]

    def logical_source(self, name: str) -> catalog.LogicalSource | None:
        return self._logical.get(name)

    def physical_sources(self, logical_uid: str) -> Sequence[catalog.PhysicalSource]:
        return self._physical.get(logical_uid, ())

    def sink(self, name: str) -> catalog.Sink | None:
        return self._sinks.get(name)

    def agents(self) -> Sequence[catalog.Agent]:
        return self._agents

    def links(self) -> Sequence[catalog.NetworkLink]:
        return self._links

    def logical_source_names(self) -> Sequence[str]:
        return self._logical_names

    def sink_names(self) -> Sequence[str]:
        return self._sink_names


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


def load_view(tx: Tx, query: QueryStatement, cache: AgentCache | None = None) -> LoadedView:
    """All that a plan of `query` may ask for."""
    sources_named = _folded(_tables(query.select))
    sinks_named = _folded([query.sink] if query.sink else [])
    logical = _logical(tx, sources_named)
    found_sinks = _sinks(tx, sinks_named)
    return LoadedView(
        revision=tx.revision,
        _logical=logical,
        _physical=_physical(tx, [source.uid for source in logical.values()]),
        _sinks=found_sinks,
        _agents=_agents(tx, None) if cache is None else cache.read(tx),
        _links=[links.message(row) for row in links.all_links(tx)],
        _logical_names=_suggestions(tx, logical_sources, sources_named - logical.keys()),
        _sink_names=_suggestions(tx, sinks_table, sinks_named - found_sinks.keys()),
    )


def agents_and_links(tx: Tx) -> tuple[list[catalog.Agent], list[catalog.NetworkLink]]:
    """What placing a fragment anew needs."""
    return _agents(tx, None), [links.message(row) for row in links.all_links(tx)]


def _tables(select_: exp.Expr) -> Iterable[str]:
    defined = {cte.alias.lower() for cte in select_.find_all(exp.CTE)}
    return (table.name for table in select_.find_all(exp.Table) if table.name.lower() not in defined)


def _folded(names: Iterable[str]) -> set[str]:
    """Names that may exist; what breaks the rule for names exists nowhere."""
    folded = set()
    for name in names:
        try:
            folded.add(fold(name))
        except HeadgateError:
            continue
    return folded


def _logical(tx: Tx, names: set[str]) -> dict[str, catalog.LogicalSource]:
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


def _sinks(tx: Tx, names: set[str]) -> dict[str, catalog.Sink]:
    if not names:
        return {}
    rows = tx.connection.execute(_SINKS, {"names_": sorted(names)})
    return {row.name: _unredacted(sinks.message(row), row) for row in rows}


def _unredacted(message: M, row: AnyRow) -> M:
    message.options.update(from_json_object(row.options))
    return message


def _agents(tx: Tx, uids: list[str] | None) -> list[catalog.Agent]:
    """Agents without their peers: the view has the links themselves."""
    selected = select(agents) if uids is None else select(agents).where(agents.c.uid.in_(uids))
    return [agent_rows.message(row, ()) for row in tx.connection.execute(selected)]


def _suggestions(tx: Tx, table: Table, missing: set[str]) -> Sequence[str]:
    found: list[str] = []
    for first in sorted({name[0] for name in missing}):
        selected = select(table.c.name).where(table.c.name.startswith(first, autoescape=True)).limit(SUGGESTED)
        found.extend(tx.connection.execute(selected).scalars())
    return found
