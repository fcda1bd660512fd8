"""The topics that a query makes for itself: one for each edge of its plan, one of error rows for each fragment that
writes an edge, or a topic without one. An edge on Kafka has its topic there, under the same name, and agents make it.

They are made in the transaction that accepts the query and are led by the agent of the edge's leader fragment, to which
they are pinned. A fragment's error rows are committed in one append with its rows, so their topic is led where the edge
is, survives what the edge survives, and moves with it; without an edge it is led by the fragment's own agent. Names
carry the query's uid: a query that gets the name of another finds nothing of it.

Edges are deleted in the transaction in which the query ends. Error rows are what a user looks at afterwards: their
topics, where there is anything in them, are kept for a stated time after the query has ended or was dropped, and need
nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, or_, select, update

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate.log import v1 as log
from headgate_coordinator.catalog.log import settings, topics
from headgate_coordinator.catalog.log.schema import partitions
from headgate_coordinator.catalog.log.schema import topics as table
from headgate_coordinator.catalog.log.settings import TopicRules
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow, duration, number
from headgate_coordinator.sql.names import INTERNAL_PREFIX

EDGE_PREFIX = f"{INTERNAL_PREFIX}edge."
ERRORS_PREFIX = f"{INTERNAL_PREFIX}errors."
PARTITIONS = 1

_OF_QUERY = topics.TOPICS.where(table.c.query_uid == bindparam("query_uid_")).order_by(table.c.name)
_TOLD = (
    select(table.c.name, table.c.uid, table.c.partitions, table.c.pinned_agent, agents.c.address)
    .outerjoin(agents, agents.c.name == table.c.pinned_agent)
    .where(table.c.query_uid == bindparam("query_uid_"))
)
_PIN = (
    update(table)
    .where(table.c.uid.in_(bindparam("uids_", expanding=True)))
    .values(pinned_agent=bindparam("agent_"), revision=bindparam("revision_"))
)
_UNUSED = (
    update(table).where(table.c.uid.in_(bindparam("uids_", expanding=True))).values(unused_since=bindparam("now_"))
)
# Nothing is acknowledged that is neither in a segment nor below an offset that was reserved for it.
_WRITTEN = select(partitions.c.topic_uid).where(
    partitions.c.topic_uid.in_(bindparam("uids_", expanding=True)),
    or_(partitions.c.committed > 0, partitions.c.reserved > 0),
)
_OLD = topics.TOPICS.where(table.c.unused_since < bindparam("before_")).order_by(table.c.unused_since, table.c.name)


def edge_topic(query_uid: str, edge: int) -> str:
    return f"{EDGE_PREFIX}{query_uid}.{edge}"


def error_topic(query_uid: str, fragment: int) -> str:
    return f"{ERRORS_PREFIX}{query_uid}.{fragment}"


def create(tx: Tx, query_uid: str, plan: catalog.QueryPlan, rules: TopicRules) -> None:
    """Makes all topics of an accepted query."""
    rows = []
    for edge in plan.edges:
        names = []
        if not edge.kafka:
            names.append((edge_topic(query_uid, edge.ordinal), settings.columns_of(_edge_settings(edge, rules), rules)))
        if _error_edge(plan, edge.from_fragment) == edge.ordinal:
            errors = settings.columns_of(_error_settings(edge.durability), rules)
            names.append((error_topic(query_uid, edge.from_fragment), errors))
        leader = plan.fragments[edge.leader_fragment - 1].agent
        rows += [
            topics.new_row(tx, name, PARTITIONS, columns, internal=True, query_uid=query_uid, pinned=leader)
            for name, columns in names
        ]
    for fragment in plan.fragments:
        if _writes_a_topic(fragment):
            # It moves with its fragment, whatever becomes of the disk where it was.
            errors = settings.columns_of(_error_settings("OBJECT"), rules)
            name = error_topic(query_uid, fragment.ordinal)
            pinned = fragment.agent
            rows.append(topics.new_row(tx, name, PARTITIONS, errors, internal=True, query_uid=query_uid, pinned=pinned))
    if rows:
        topics.insert_topics(tx, rows)


def _writes_a_topic(fragment: catalog.FragmentPlan) -> bool:
    """Whether Spark writes what it gives to a topic by itself, without an edge."""
    return fragment.HasField("compute") and fragment.compute.HasField("target")


def _edge_settings(edge: catalog.EdgePlan, rules: TopicRules) -> log.TopicSettings:
    """Whoever reads an edge trims it: nothing is too old, and a batch is as large as its writer made it."""
    return log.TopicSettings(
        durability=number(log.Durability, edge.durability),
        format=log.TOPIC_FORMAT_ARROW,
        retention=duration(0),
        retention_bytes=0,
        segment_bytes=rules.edge_segment_bytes,
        max_message_bytes=settings.SETTINGS["max_message_bytes"].most,
    )


def _error_settings(durability: str) -> log.TopicSettings:
    """As long as user topics are kept by default."""
    return log.TopicSettings(
        durability=number(log.Durability, durability),
        format=log.TOPIC_FORMAT_ARROW,
        max_message_bytes=settings.SETTINGS["max_message_bytes"].most,
    )


def _error_edge(plan: catalog.QueryPlan, fragment: int) -> int:
    """Ordinal of the edge beside which the error rows of a fragment are: the first that it writes."""
    return next((edge.ordinal for edge in plan.edges if edge.from_fragment == fragment), 0)


def told(tx: Tx, query_uid: str) -> Mapping[str, cluster.EdgeTopic]:
    """The topics of a query by name, with their leaders as they are now; without address where an agent is gone."""
    return {
        row.name: cluster.EdgeTopic(
            topic=row.name,
            topic_uid=row.uid,
            partitions=row.partitions,
            agent=row.pinned_agent,
            address=row.address or "",
        )
        for row in tx.connection.execute(_TOLD, {"query_uid_": query_uid})
    }


def move_leader(tx: Tx, query_uid: str, plan: catalog.QueryPlan, fragment: int, agent: str) -> Sequence[int]:
    """Pins what the fragment leads to the agent that it has moved to.

    Answers the ordinals of the fragments at the other ends of those edges, which were told of the former one.
    """
    led = [edge for edge in plan.edges if edge.leader_fragment == fragment]
    names = {edge_topic(query_uid, edge.ordinal) for edge in led}
    names |= {error_topic(query_uid, edge.from_fragment) for edge in led}
    if any(one.ordinal == fragment and _writes_a_topic(one) for one in plan.fragments):
        names.add(error_topic(query_uid, fragment))
    moved = [row for row in _rows(tx, query_uid) if row.name in names and row.pinned_agent != agent]
    if moved:
        tx.connection.execute(_PIN, {"uids_": [row.uid for row in moved], "agent_": agent, "revision_": tx.revision})
    for row in moved:
        before = topics.message(row)
        after = log.Topic()
        after.CopyFrom(before)
        after.pinned_agent, after.revision = agent, tx.revision
        tx.record("TOPIC", row.name, row.uid, before, after)
    ends = {end for edge in led for end in (edge.from_fragment, edge.to_fragment)}
    return sorted(ends - {fragment})


def let_go(tx: Tx, query_uid: str) -> None:
    """The query has ended, or is deleted: its edges go, and from now on the time of its error rows runs.

    A topic into which nobody has ever written anything goes at once.
    """
    rows = _rows(tx, query_uid)
    errors = [row.uid for row in rows if row.name.startswith(ERRORS_PREFIX)]
    kept = set(tx.connection.execute(_WRITTEN, {"uids_": errors}).scalars()) if errors else set()
    if kept:
        tx.connection.execute(_UNUSED, {"uids_": sorted(kept), "now_": tx.now})
    topics.delete_topics(tx, [row for row in rows if row.uid not in kept])


def forget(tx: Tx, age: float, limit: int) -> int:
    """Deletes up to `limit` topics of error rows whose query is gone for more than `age` seconds; says how many."""
    rows = tx.connection.execute(_OLD.limit(limit), {"before_": tx.now - round(age * 1_000_000)}).all()
    topics.delete_topics(tx, rows)
    return len(rows)


def _rows(tx: Tx, query_uid: str) -> Sequence[AnyRow]:
    return tx.connection.execute(_OF_QUERY, {"query_uid_": query_uid}).all()
