"""Built-in sources: what agents say of themselves, for queries to read as they read any other source.

They are in no table of the catalog. A plan that names one reads it from the agents that are there when it is made; the
names are reserved. The agents' side is `headgate_agent.fragments.sources.samples`, and a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Iterable

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.descriptors.sources import SourceDescriptor

# Their type is not among those that can be created.
AGENT = SourceDescriptor(
    catalog.SOURCE_TYPE_AGENT,
    "AGENT",
    "What an agent says of itself.",
    (),
    (),
    node_local=True,
    bounded=lambda options: False,
)

_COMMON = {"agent": "VARCHAR", "ts": "TIMESTAMP", "number": "INT64"}
_COLUMNS: dict[str, dict[str, str]] = {
    "agent_statistics": {
        "rows_read": "INT64",
        "rows_kept": "INT64",
        "rows_malformed": "INT64",
        "rows_computed": "INT64",
        "rows_delivered": "INT64",
        "bytes_read": "INT64",
        "bytes_delivered": "INT64",
        "fragments": "INT32",
    },
    "agent_resources": {"cpu": "FLOAT64", "memory_bytes": "INT64", "backlog": "INT64", "slots_used": "INT32"},
    "heartbeats": {},
}
# The reference documents call agents workers.
_SYNONYMS = {"worker_statistics": "agent_statistics", "worker_resources": "agent_resources"}

BUILT_IN_NAMES = frozenset((*_COLUMNS, *_SYNONYMS))
_UID = "builtin-"


def built_in_source(name: str) -> catalog.LogicalSource | None:
    """The built-in source of a folded name or synonym; None where there is none."""
    name = _SYNONYMS.get(name, name)
    if name not in _COLUMNS:
        return None
    fields = [catalog.Field(name=n, type=t, not_null=True) for n, t in (_COMMON | _COLUMNS[name]).items()]
    return catalog.LogicalSource(name=name, uid=_UID + name, schema=catalog.Schema(fields=fields))


def is_built_in(uid: str) -> bool:
    """Whether the uid of a logical source is that of a built-in one."""
    return uid.startswith(_UID)


def built_in_feeds(uid: str, agents: Iterable[catalog.Agent], beside: Iterable[str]) -> list[catalog.PhysicalSource]:
    """What feeds a built-in source: each agent that answers and can run and lead a fragment.

    A query stays inside one group: that of the agents `beside`, by name, which it needs for other reasons. Where there
    are none, it is the group `default`, or the first by name if nobody is in that.
    """
    by_name = {agent.name: agent for agent in agents}
    able = [by_name[name] for name in sorted(by_name) if _is_able(by_name[name])]
    groups = sorted({_group(by_name[name]) for name in beside if name in by_name})
    groups = groups or sorted({_group(agent) for agent in able}, key=lambda group: (group != "default", group))
    return [_feed(uid, agent) for agent in able if _group(agent) == groups[0]]


def every_feed(uid: str, agents: Iterable[catalog.Agent]) -> list[catalog.PhysicalSource]:
    """What can feed a built-in source, in any group, by name."""
    feeds = [_feed(uid, agent) for agent in agents if _is_able(agent)]
    return sorted(feeds, key=lambda feed: feed.name)


def _feed(uid: str, agent: catalog.Agent) -> catalog.PhysicalSource:
    name = uid.removeprefix(_UID)
    return catalog.PhysicalSource(
        # No name that could be given is like it.
        name=f"{name}@{agent.name}",
        uid=f"{uid}-{agent.uid}",
        logical_source=name,
        agent=agent.name,
        type=catalog.SOURCE_TYPE_AGENT,
        options={"built_in": name},
    )


def _is_able(agent: catalog.Agent) -> bool:
    roles = {catalog.AGENT_ROLE_FRAGMENTS, catalog.AGENT_ROLE_LOG}
    return agent.state == catalog.AGENT_STATE_ACTIVE and roles <= set(agent.roles)


def _group(agent: catalog.Agent) -> str:
    return agent.group or "default"
