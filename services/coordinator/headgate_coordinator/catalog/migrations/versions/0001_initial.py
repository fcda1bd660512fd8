"""The first catalog."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
# Of the rules in triggers.py that hold from here on.
rules = "6f2937afd754a645"

NAME = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "changes",
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("before", sa.LargeBinary(), nullable=True),
        sa.Column("after", sa.LargeBinary(), nullable=True),
        sa.CheckConstraint("before IS NOT NULL OR after IS NOT NULL", name=op.f("ck_changes_something")),
        sa.PrimaryKeyConstraint("revision", "ordinal", name=op.f("pk_changes")),
    )
    op.create_table(
        "fenced_incarnations",
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("agent_name", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("incarnation", name=op.f("pk_fenced_incarnations")),
    )
    op.create_table(
        "logical_sources",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("schema", sa.LargeBinary(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_logical_sources")),
        sa.UniqueConstraint("name", name=op.f("uq_logical_sources_name")),
    )
    op.create_table(
        "queries",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("statement", sa.Text(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("desired_state", sa.Text(), nullable=False),
        sa.Column("stop_mode", sa.Text(), nullable=False),
        sa.Column("waiting", sa.LargeBinary(), nullable=True),
        sa.Column("failure", sa.LargeBinary(), nullable=True),
        sa.Column("has_run", sa.Boolean(), nullable=False),
        sa.Column("plan", sa.LargeBinary(), nullable=False),
        sa.Column("deployment_deadline_us", sa.BigInteger(), nullable=False),
        sa.Column("drain_deadline_us", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("state_time", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("desired_state IN ('RUNNING', 'STOPPED', 'DROPPED')", name=op.f("ck_queries_desired_state")),
        sa.CheckConstraint("mode IN ('EXACTLY_ONCE', 'REALTIME')", name=op.f("ck_queries_mode")),
        sa.CheckConstraint("state <> 'FAILED' OR failure IS NOT NULL", name=op.f("ck_queries_failed_with_reason")),
        sa.CheckConstraint(
            "state IN ('PENDING', 'DEPLOYING', 'RUNNING', 'STOPPING', 'STOPPED', 'TERMINATED', 'FAILED')",
            name=op.f("ck_queries_state"),
        ),
        sa.CheckConstraint("stop_mode IN ('', 'SOFT', 'HARD')", name=op.f("ck_queries_stop_mode")),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_queries")),
        sa.UniqueConstraint("name", name=op.f("uq_queries_name")),
    )
    op.create_index("ix_queries_state", "queries", ["state"])

    op.create_table(
        "requests",
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("response", sa.LargeBinary(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", name=op.f("pk_requests")),
    )
    op.create_index("ix_requests_time", "requests", ["time"])

    op.create_table(
        "revision",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("value", sa.BigInteger(), nullable=False),
        sa.Column("compacted", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("compacted <= value", name=op.f("ck_revision_compacted")),
        sa.CheckConstraint("id = 1", name=op.f("ck_revision_single_row")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_revision")),
    )
    op.create_table(
        "sessions",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("ttl_us", sa.BigInteger(), nullable=False),
        sa.Column("renewals", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("ttl_us > 0", name=op.f("ck_sessions_ttl")),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_sessions")),
    )
    op.create_table(
        "story",
        sa.Column("query_uid", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("ordinal", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("query_name", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("fragment", sa.Integer(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=False),
        sa.Column("to_state", sa.Text(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("agent", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("query_uid", "revision", "ordinal", name=op.f("pk_story")),
    )
    op.create_index("ix_story_time", "story", ["time"])

    op.create_table(
        "agents",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("slots_used", sa.Integer(), nullable=False),
        sa.Column("zone", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("labels", sa.Text(), nullable=False),
        sa.Column("roles", sa.Text(), nullable=False),
        sa.Column("has_engine", sa.Boolean(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("state_reason", sa.Text(), nullable=False),
        sa.Column("state_time", sa.BigInteger(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("protocol_version", sa.Integer(), nullable=False),
        sa.Column("volume_id", sa.Text(), nullable=False),
        sa.Column("session_uid", sa.Text(), nullable=True),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("state IN ('ACTIVE', 'UNREACHABLE')", name=op.f("ck_agents_state")),
        sa.CheckConstraint("slots >= 0", name=op.f("ck_agents_slots")),
        sa.CheckConstraint("slots_used >= 0 AND slots_used <= slots", name=op.f("ck_agents_capacity")),
        sa.ForeignKeyConstraint(
            ["session_uid"], ["sessions.uid"], name=op.f("fk_agents_session_uid"), ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_agents")),
        sa.UniqueConstraint("address", name=op.f("uq_agents_address")),
        sa.UniqueConstraint("name", name=op.f("uq_agents_name")),
    )
    op.create_table(
        "grants",
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("session_uid", sa.Text(), nullable=True),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("epoch > 0", name=op.f("ck_grants_epoch")),
        sa.ForeignKeyConstraint(
            ["session_uid"], ["sessions.uid"], name=op.f("fk_grants_session_uid"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("kind", "key", name=op.f("pk_grants")),
    )
    op.create_index("ix_grants_session_uid", "grants", ["session_uid"])

    op.create_table(
        "fragments",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("query_uid", sa.Text(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("node_local", sa.Boolean(), nullable=False),
        sa.Column("agent_uid", sa.Text(), nullable=True),
        sa.Column("agent_name", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("slots_held", sa.Boolean(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("last_error", sa.Text(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("kind IN ('SOURCE', 'COMPUTE', 'SINK')", name=op.f("ck_fragments_kind")),
        sa.CheckConstraint(
            "slots_held OR state IN ('STOPPED', 'TERMINATED', 'FAILED')", name=op.f("ck_fragments_released_when_ended")
        ),
        sa.CheckConstraint(
            "state IN ('PENDING', 'REGISTERED', 'STARTED', 'RUNNING', 'STOPPED', 'TERMINATED', 'FAILED')",
            name=op.f("ck_fragments_state"),
        ),
        sa.CheckConstraint("NOT slots_held OR agent_uid IS NOT NULL", name=op.f("ck_fragments_held_somewhere")),
        sa.CheckConstraint("epoch > 0", name=op.f("ck_fragments_epoch")),
        sa.CheckConstraint("slots >= 0", name=op.f("ck_fragments_slots")),
        sa.ForeignKeyConstraint(
            ["agent_uid"], ["agents.uid"], name=op.f("fk_fragments_agent_uid"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["query_uid"], ["queries.uid"], name=op.f("fk_fragments_query_uid"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_fragments")),
        sa.UniqueConstraint("query_uid", "ordinal", name=op.f("uq_fragments_query_uid_ordinal")),
    )
    op.create_index("ix_fragments_agent_uid", "fragments", ["agent_uid"])

    op.create_table(
        "network_links",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("from_uid", sa.Text(), nullable=False),
        sa.Column("to_uid", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("from_uid <> to_uid", name=op.f("ck_network_links_not_itself")),
        sa.ForeignKeyConstraint(
            ["from_uid"], ["agents.uid"], name=op.f("fk_network_links_from_uid"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["to_uid"], ["agents.uid"], name=op.f("fk_network_links_to_uid"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_network_links")),
        sa.UniqueConstraint("from_uid", "to_uid", name=op.f("uq_network_links_from_uid_to_uid")),
    )
    op.create_index("ix_network_links_to_uid", "network_links", ["to_uid"])

    op.create_table(
        "physical_sources",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("logical_uid", sa.Text(), nullable=False),
        sa.Column("agent_uid", sa.Text(), nullable=True),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("locus", sa.Text(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("parser_options", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "agent_uid IS NOT NULL OR type IN ('KAFKA', 'TOPIC')", name=op.f("ck_physical_sources_placed")
        ),
        sa.CheckConstraint(
            "type IN ('FILE', 'TCP', 'GENERATOR', 'KAFKA', 'TOPIC')", name=op.f("ck_physical_sources_type")
        ),
        sa.ForeignKeyConstraint(
            ["agent_uid"], ["agents.uid"], name=op.f("fk_physical_sources_agent_uid"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["logical_uid"], ["logical_sources.uid"], name=op.f("fk_physical_sources_logical_uid"), ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_physical_sources")),
        sa.UniqueConstraint("logical_uid", "type", "locus", name=op.f("uq_physical_sources_logical_uid_type_locus")),
        sa.UniqueConstraint("name", name=op.f("uq_physical_sources_name")),
    )
    op.create_index("ix_physical_sources_agent_uid", "physical_sources", ["agent_uid"])

    op.create_table(
        "sinks",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("agent_uid", sa.Text(), nullable=True),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("schema", sa.LargeBinary(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("agent_uid IS NOT NULL OR type IN ('KAFKA', 'TOPIC', 'VOID')", name=op.f("ck_sinks_placed")),
        sa.CheckConstraint("type IN ('FILE', 'PRINT', 'KAFKA', 'TOPIC', 'VOID')", name=op.f("ck_sinks_type")),
        sa.ForeignKeyConstraint(["agent_uid"], ["agents.uid"], name=op.f("fk_sinks_agent_uid"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_sinks")),
        sa.UniqueConstraint("name", name=op.f("uq_sinks_name")),
    )
    op.create_index("ix_sinks_agent_uid", "sinks", ["agent_uid"])

    op.create_table(
        "query_links",
        sa.Column("query_uid", sa.Text(), nullable=False),
        sa.Column("link_uid", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["link_uid"], ["network_links.uid"], name=op.f("fk_query_links_link_uid"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["query_uid"], ["queries.uid"], name=op.f("fk_query_links_query_uid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("query_uid", "link_uid", name=op.f("pk_query_links")),
    )
    op.create_index("ix_query_links_link_uid", "query_links", ["link_uid"])

    op.create_table(
        "query_sinks",
        sa.Column("query_uid", sa.Text(), nullable=False),
        sa.Column("sink_uid", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["query_uid"], ["queries.uid"], name=op.f("fk_query_sinks_query_uid"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["sink_uid"], ["sinks.uid"], name=op.f("fk_query_sinks_sink_uid"), ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("query_uid", "sink_uid", name=op.f("pk_query_sinks")),
    )
    op.create_index("ix_query_sinks_sink_uid", "query_sinks", ["sink_uid"])

    op.create_table(
        "query_sources",
        sa.Column("query_uid", sa.Text(), nullable=False),
        sa.Column("physical_source_uid", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["physical_source_uid"],
            ["physical_sources.uid"],
            name=op.f("fk_query_sources_physical_source_uid"),
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["query_uid"], ["queries.uid"], name=op.f("fk_query_sources_query_uid"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("query_uid", "physical_source_uid", name=op.f("pk_query_sources")),
    )
    op.create_index("ix_query_sources_physical_source_uid", "query_sources", ["physical_source_uid"])
