"""A refusal is true: at some moment between the arrival of a request and its answer, what it says was so.

What a refusal says of names is held against the names (`history.py`). Here it is what it says of use, of room and of
places: that something is in use, that no agent has the slots, that no place can be reached, that something named is not
there. Each is asked of the catalog as it is when the server answers, and where it is not so now, of every revision back
to the one at which the request came. Whether a query could be placed is found by trying every place there is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.tx import Change
from headgate_simulation.plan import Operation
from headgate_simulation.violation import fail

if TYPE_CHECKING:
    from headgate_simulation.edges import Edges
    from headgate_simulation.invariants import Mirror

INVARIANT = "a refusal is true"
# Resources by kind and uid, at one revision.
Tables = Mapping[str, Mapping[str, Any]]
Was = Callable[[Tables, Operation], bool]

_STATEMENT = re.compile(r"FROM (\S+) .*INTO (\S+)$")
_ENDED = (catalog.QUERY_STATE_STOPPED, catalog.QUERY_STATE_TERMINATED, catalog.QUERY_STATE_FAILED)


class Refusals:
    def __init__(self, mirror: Mirror, edges: Edges) -> None:
        self._mirror = mirror
        self._edges = edges
        # Commits by tick, the last one last.
        self._commits: list[tuple[int, tuple[Change, ...]]] = []

    def committed(self, tick: int, changes: tuple[Change, ...]) -> None:
        self._commits.append((tick, changes))

    def refused(self, operation: Operation, since: int, error: HeadgateError) -> None:
        """A server answers a request that came at tick `since` with an error."""
        was = self._claim(operation.kind, error.reason.name)
        if was is None or any(was(tables, operation) for tables in self._back_to(since)):
            return
        text = f"{operation} was refused ({error}), and that was not so at any moment"
        fail(INVARIANT, text, (operation.id, str(operation.get("name", ""))))

    def _back_to(self, since: int) -> Iterator[Tables]:
        """The catalog as it is, and as it was at each revision back to the tick."""
        yield self._mirror.by_kind
        earlier: dict[str, dict[str, Any]] | None = None
        for tick, changes in reversed(self._commits):
            if tick <= since:
                return
            if earlier is None:
                earlier = {kind: dict(table) for kind, table in self._mirror.by_kind.items()}
            for change in reversed(changes):
                if change.before is None:
                    earlier[change.kind].pop(change.uid, None)
                else:
                    earlier[change.kind][change.uid] = change.before
            yield earlier

    def _claim(self, kind: str, reason: str) -> Was | None:
        """What a refusal of an operation says; None if it says nothing that is looked at here."""
        if reason == "LINK_IN_USE":
            return self._link_is_used
        return _CLAIMS.get((kind, reason))

    def _link_is_used(self, tables: Tables, operation: Operation) -> bool:
        """Some query that has not ended has data to send along it, or had when it was last placed."""
        link = (operation["from_agent"], operation["to_agent"])
        return any(
            link in self._edges.ways(query.uid, tables["FRAGMENT"])
            for query in tables["QUERY"].values()
            if query.state not in _ENDED
        )


def can_be_placed(tables: Tables, statement: str, *, slots: bool) -> bool | None:
    """Whether some choice of agents could run a query; where `slots` is False, as if all of them had plenty. None where
    what the statement names is not there."""
    found = _STATEMENT.search(statement)
    assert found is not None, statement
    feeding = [one for one in tables["PHYSICAL_SOURCE"].values() if one.logical_source == found[1]]
    sink = next((one for one in tables["SINK"].values() if one.name == found[2]), None)
    if not feeding or sink is None:
        return None
    agents = {one.name: one for one in tables["AGENT"].values() if one.state == catalog.AGENT_STATE_ACTIVE}
    links = {(one.from_agent, one.to_agent) for one in tables["NETWORK_LINK"].values()}
    computing = [name for name, one in agents.items() if one.has_engine]
    leading = {name for name, one in agents.items() if catalog.AGENT_ROLE_LOG in one.roles}
    sources = [one.agent for one in feeding]
    if not leading.issuperset(sources):
        return False
    for compute, end in product(computing, [sink.agent] if sink.agent else leading):
        ways = [*((source, compute) for source in sources), (compute, end)]
        if end not in leading or (links and any(way not in links for way in ways if way[0] != way[1])):
            continue
        needed = Counter([*sources, compute, end])
        if not slots or all(agents[name].slots - agents[name].slots_used >= count for name, count in needed.items()):
            return True
    return False


def _no_slots(tables: Tables, operation: Operation) -> bool:
    statement = str(operation["statement"])
    limited = can_be_placed(tables, statement, slots=True)
    return limited is False and can_be_placed(tables, statement, slots=False) is True


def _no_place(tables: Tables, operation: Operation) -> bool:
    return can_be_placed(tables, str(operation["statement"]), slots=False) is False


def _sink_is_used(tables: Tables, operation: Operation) -> bool:
    return any(operation["name"] in query.sinks for query in tables["QUERY"].values())


def _source_is_read(tables: Tables, operation: Operation) -> bool:
    return any(operation["name"] in query.physical_sources for query in tables["QUERY"].values())


def _source_is_fed(tables: Tables, operation: Operation) -> bool:
    return any(one.logical_source == operation["name"] for one in tables["PHYSICAL_SOURCE"].values())


def agent_is_used(tables: Tables, name: object) -> bool:
    """Whether a source, a sink, a fragment that holds slots or a link is on an agent."""
    return (
        any(one.agent == name for kind in ("PHYSICAL_SOURCE", "SINK") for one in tables[kind].values())
        or any(one.agent == name and one.slots_held for one in tables["FRAGMENT"].values())
        or any(name in (one.from_agent, one.to_agent) for one in tables["NETWORK_LINK"].values())
    )


def topic_is_used(tables: Tables, name: str) -> bool:
    return any(one.type == catalog.SINK_TYPE_TOPIC and one.options["topic"] == name for one in tables["SINK"].values())


def _no_sink(tables: Tables, operation: Operation) -> bool:
    found = _STATEMENT.search(str(operation["statement"]))
    return found is not None and all(one.name != found[2] for one in tables["SINK"].values())


def _no_logical_source(tables: Tables, operation: Operation) -> bool:
    found = _STATEMENT.search(str(operation["statement"]))
    return found is not None and all(one.name != found[1] for one in tables["LOGICAL_SOURCE"].values())


def _not_fed(tables: Tables, operation: Operation) -> bool:
    found = _STATEMENT.search(str(operation["statement"]))
    return found is not None and all(one.logical_source != found[1] for one in tables["PHYSICAL_SOURCE"].values())


def _no_link(tables: Tables, operation: Operation) -> bool:
    return _link(operation) not in {(one.from_agent, one.to_agent) for one in tables["NETWORK_LINK"].values()}


def _link(operation: Operation) -> tuple[object, object]:
    return operation["from_agent"], operation["to_agent"]


def _no_end(tables: Tables, operation: Operation) -> bool:
    return not {one.name for one in tables["AGENT"].values()}.issuperset(_link(operation))


# What the refusals of operations say.
_CLAIMS: dict[tuple[str, str], Was] = {
    ("create_query", "INSUFFICIENT_CAPACITY"): _no_slots,
    ("create_query", "PLACEMENT_ERROR"): _no_place,
    ("create_query", "SINK_NOT_FOUND"): _no_sink,
    ("create_query", "LOGICAL_SOURCE_NOT_FOUND"): _no_logical_source,
    ("create_query", "NO_PHYSICAL_SOURCE"): _not_fed,
    ("drop_sink", "SINK_IN_USE"): _sink_is_used,
    ("drop_physical_source", "PHYSICAL_SOURCE_IN_USE"): _source_is_read,
    ("drop_logical_source", "LOGICAL_SOURCE_IN_USE"): _source_is_fed,
    ("drop_agent", "AGENT_IN_USE"): lambda tables, operation: agent_is_used(tables, operation["name"]),
    ("drop_topic", "TOPIC_IN_USE"): lambda tables, operation: topic_is_used(tables, str(operation["name"])),
    ("create_link", "ALREADY_EXISTS"): lambda tables, operation: not _no_link(tables, operation),
    ("create_link", "AGENT_NOT_FOUND"): _no_end,
    ("drop_link", "NETWORK_LINK_NOT_FOUND"): _no_link,
}
