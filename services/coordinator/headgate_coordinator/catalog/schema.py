"""The tables of the catalog: one definition for SQLite and Postgres.

The skeleton is relational, with foreign keys and RESTRICT; configuration and plans are protobuf or JSON. What a
database can hold, it holds: uniqueness, references, ranges, and (by triggers made in the migrations from
`query/transitions.py`) legal transitions. Times are microseconds since 1970 by the database's clock, for people to
read; nothing is decided by them.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

from headgate_coordinator.query.transitions import DESIRED_STATES, FRAGMENT_STATES, QUERY_STATES

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


# Names are listed in the order of their bytes on every database, whatever its locale; SQLite does so anyway.
Name = Text().with_variant(Text(collation="C"), "postgresql")


def one_of(column: str, values: tuple[str, ...]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


# The one row that every write locks first: `value` is the last committed revision; history up to and including
# `compacted` is gone.
revision = Table(
    "revision",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("value", BigInteger, nullable=False),
    Column("compacted", BigInteger, nullable=False),
    CheckConstraint("id = 1", name="single_row"),
    CheckConstraint("compacted <= value", name="compacted"),
)

# Which catalog this is, from the first registration of an agent on. A copy of the database is the same catalog.
catalog_identity = Table(
    "catalog_identity",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("uid", Text, nullable=False),
    CheckConstraint("id = 1", name="single_row"),
)

# What each transaction changed, in order. `kind` names the resource; `before` and `after` are its protobuf message.
changes = Table(
    "changes",
    metadata,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("time", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("uid", Text, nullable=False),
    Column("before", LargeBinary),
    Column("after", LargeBinary),
    CheckConstraint("before IS NOT NULL OR after IS NOT NULL", name="something"),
)

# Answers to mutations that carried a request_id.
requests = Table(
    "requests",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("method", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("response", LargeBinary, nullable=False),
    Column("time", BigInteger, nullable=False),
    Index("ix_requests_time", "time"),
)

# A process's presence. `renewals` grows with every renewal that is written (those of coordinators; an agent's are
# counted in the leader's memory). Observers decide by watching it on their own monotonic clock.
sessions = Table(
    "sessions",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("holder", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("ttl_us", BigInteger, nullable=False),
    Column("renewals", BigInteger, nullable=False),
    Column("time", BigInteger, nullable=False),
    CheckConstraint("ttl_us > 0", name="ttl"),
)

# What a session may do. A grant that nobody holds keeps its row, and so its epoch, which only grows.
grants = Table(
    "grants",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("session_uid", Text, ForeignKey("sessions.uid", ondelete="RESTRICT")),
    Column("time", BigInteger, nullable=False),
    CheckConstraint("epoch > 0", name="epoch"),
    Index("ix_grants_session_uid", "session_uid"),
)

# `node_id` is what Kafka clients know the agent by: given once, never to another (log/schema.py: counters).
agents = Table(
    "agents",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("address", Text, nullable=False, unique=True),
    Column("slots", Integer, nullable=False),
    Column("slots_used", Integer, nullable=False, default=0),
    Column("zone", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("labels", Text, nullable=False),  # JSON object
    Column("roles", Text, nullable=False),  # JSON array of role names
    Column("has_engine", Boolean, nullable=False),
    Column("state", Text, nullable=False),
    Column("state_reason", Text, nullable=False),
    Column("state_time", BigInteger, nullable=False),
    Column("incarnation", Text, nullable=False),
    Column("protocol_version", Integer, nullable=False),
    Column("volume_id", Text, nullable=False),
    Column("session_uid", Text, ForeignKey("sessions.uid", ondelete="SET NULL"), unique=True),
    Column("time", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("kafka_address", Text, nullable=False),
    Column("node_id", Integer, nullable=False, unique=True),
    one_of("state", ("ACTIVE", "UNREACHABLE")),
    CheckConstraint("node_id > 0", name="node_id"),
    CheckConstraint("slots >= 0", name="slots"),
    CheckConstraint("slots_used >= 0 AND slots_used <= slots", name="capacity"),
)

# Incarnations that were declared gone: they must not come back by themselves.
fenced_incarnations = Table(
    "fenced_incarnations",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("agent_name", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
)

network_links = Table(
    "network_links",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("from_uid", Text, ForeignKey("agents.uid", ondelete="RESTRICT"), nullable=False),
    Column("to_uid", Text, ForeignKey("agents.uid", ondelete="RESTRICT"), nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    UniqueConstraint("from_uid", "to_uid"),
    CheckConstraint("from_uid <> to_uid", name="not_itself"),
    Index("ix_network_links_to_uid", "to_uid"),
)

logical_sources = Table(
    "logical_sources",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("schema", LargeBinary, nullable=False),  # catalog.v1.Schema
    Column("time", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
)

# `locus` is what must be unique beside logical source and type: the agent's uid where the source is node-local, the
# topic (and cluster) where it is not.
physical_sources = Table(
    "physical_sources",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("logical_uid", Text, ForeignKey("logical_sources.uid", ondelete="RESTRICT"), nullable=False),
    Column("agent_uid", Text, ForeignKey("agents.uid", ondelete="RESTRICT")),
    Column("type", Text, nullable=False),
    Column("locus", Text, nullable=False),
    Column("options", Text, nullable=False),  # JSON object
    Column("parser_options", Text, nullable=False),  # JSON object
    Column("time", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    UniqueConstraint("logical_uid", "type", "locus"),
    one_of("type", ("FILE", "TCP", "GENERATOR", "KAFKA", "TOPIC")),
    CheckConstraint("agent_uid IS NOT NULL OR type IN ('KAFKA', 'TOPIC')", name="placed"),
    Index("ix_physical_sources_agent_uid", "agent_uid"),
)

sinks = Table(
    "sinks",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("agent_uid", Text, ForeignKey("agents.uid", ondelete="RESTRICT")),
    Column("type", Text, nullable=False),
    Column("schema", LargeBinary, nullable=False),  # catalog.v1.Schema
    Column("options", Text, nullable=False),  # JSON object
    Column("time", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    one_of("type", ("FILE", "PRINT", "KAFKA", "TOPIC", "VOID")),
    CheckConstraint("agent_uid IS NOT NULL OR type IN ('KAFKA', 'TOPIC', 'VOID')", name="placed"),
    Index("ix_sinks_agent_uid", "agent_uid"),
)

# `drain_deadline_us` and `deployment_deadline_us` are lengths, not points in time; the leader counts them on its own
# monotonic clock from when it first saw the state they belong to.
queries = Table(
    "queries",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("name", Name, nullable=False, unique=True),
    Column("statement", Text, nullable=False),
    Column("mode", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("desired_state", Text, nullable=False),
    Column("stop_mode", Text, nullable=False),
    Column("waiting", LargeBinary),  # catalog.v1.Waiting
    Column("failure", LargeBinary),  # catalog.v1.QueryFailure
    Column("has_run", Boolean, nullable=False, default=False),  # RUNNING at least once: the deployment deadline is met
    Column("temporary", Boolean, nullable=False, default=False),  # rows go to a reader; dropped some time after its end
    Column("plan", LargeBinary, nullable=False),  # catalog.v1.QueryPlan
    Column("deployment_deadline_us", BigInteger, nullable=False),
    Column("drain_deadline_us", BigInteger, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("state_time", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    one_of("state", QUERY_STATES),
    one_of("desired_state", DESIRED_STATES),
    one_of("stop_mode", ("", "SOFT", "HARD")),
    one_of("mode", ("EXACTLY_ONCE", "REALTIME")),
    CheckConstraint("state <> 'FAILED' OR failure IS NOT NULL", name="failed_with_reason"),
    Index("ix_queries_state", "state"),
)

query_sources = Table(
    "query_sources",
    metadata,
    Column("query_uid", Text, ForeignKey("queries.uid", ondelete="CASCADE"), primary_key=True),
    Column(
        "physical_source_uid",
        Text,
        ForeignKey("physical_sources.uid", ondelete="RESTRICT"),
        primary_key=True,
    ),
    Index("ix_query_sources_physical_source_uid", "physical_source_uid"),
)

query_sinks = Table(
    "query_sinks",
    metadata,
    Column("query_uid", Text, ForeignKey("queries.uid", ondelete="CASCADE"), primary_key=True),
    Column("sink_uid", Text, ForeignKey("sinks.uid", ondelete="RESTRICT"), primary_key=True),
    Index("ix_query_sinks_sink_uid", "sink_uid"),
)

# Links that the data of a query flows along, where links are declared.
query_links = Table(
    "query_links",
    metadata,
    Column("query_uid", Text, ForeignKey("queries.uid", ondelete="CASCADE"), primary_key=True),
    Column("link_uid", Text, ForeignKey("network_links.uid", ondelete="RESTRICT"), primary_key=True),
    Index("ix_query_links_link_uid", "link_uid"),
)

# `slots_held` turns false once, in the transaction that records the fragment as gone from its agent and gives the
# slots back. `incarnation` is the process of the agent that this epoch was sent to.
fragments = Table(
    "fragments",
    metadata,
    Column("uid", Text, primary_key=True),
    Column("query_uid", Text, ForeignKey("queries.uid", ondelete="RESTRICT"), nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("kind", Text, nullable=False),
    Column("node_local", Boolean, nullable=False),
    Column("agent_uid", Text, ForeignKey("agents.uid", ondelete="RESTRICT")),
    Column("agent_name", Text, nullable=False),
    Column("incarnation", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("slots_held", Boolean, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("last_error", Text, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("waiting", Text, nullable=False),  # What its run waits for before it can be RUNNING, as its agent says.
    Column("starts", LargeBinary),  # catalog.v1.Fragment with nothing but `starts`; set once.
    UniqueConstraint("query_uid", "ordinal"),
    one_of("kind", ("SOURCE", "COMPUTE", "SINK")),
    one_of("state", FRAGMENT_STATES),
    CheckConstraint("slots >= 0", name="slots"),
    CheckConstraint("epoch > 0", name="epoch"),
    CheckConstraint("NOT slots_held OR agent_uid IS NOT NULL", name="held_somewhere"),
    CheckConstraint("slots_held OR state IN ('STOPPED', 'TERMINATED', 'FAILED')", name="released_when_ended"),
    Index("ix_fragments_agent_uid", "agent_uid"),
)

# What happened to a query and its fragments. No foreign key: it outlives the query for a stated time.
story = Table(
    "story",
    metadata,
    Column("query_uid", Text, primary_key=True),
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("query_name", Text, nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("fragment", Integer, nullable=False),
    Column("from_state", Text, nullable=False),
    Column("to_state", Text, nullable=False),
    Column("cause", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Index("ix_story_time", "time"),
)
