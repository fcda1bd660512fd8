"""Triggers by which the database itself refuses what must never happen, for SQLite and Postgres.

They are rules of the form "on this event of this table, refuse when this condition holds", made from
`query/transitions.py` and `log/transitions.py` where they are about states. They are made anew whenever a database is
migrated, so a change of the rules needs a migration, if an empty one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection

from headgate_coordinator.catalog.log.transitions import TRANSFER_TRANSITIONS
from headgate_coordinator.query.transitions import FRAGMENT_TRANSITIONS, QUERY_ENDED, QUERY_TRANSITIONS


@dataclass(frozen=True, slots=True)
class Rule:
    """`condition` is over OLD and NEW, in SQL that both databases read alike."""

    name: str
    event: str
    table: str
    condition: str
    message: str


def _other_than(transitions: Iterable[tuple[str, str]]) -> str:
    legal = " OR ".join(f"(OLD.state = '{before}' AND NEW.state = '{after}')" for before, after in transitions)
    return f"OLD.state <> NEW.state AND NOT ({legal})"


def _none_of(column: str, values: Iterable[str]) -> str:
    return f"{column} NOT IN ({', '.join(repr(value) for value in values)})"


RULES = (
    Rule(
        "revision_only_grows",
        "UPDATE",
        "revision",
        "NEW.value < OLD.value OR NEW.compacted < OLD.compacted",
        "the revision only grows",
    ),
    Rule("revision_stays", "DELETE", "revision", "TRUE", "the revision is never deleted"),
    Rule("catalog_identity_is_final", "UPDATE", "catalog_identity", "TRUE", "a catalog keeps its uid"),
    Rule("catalog_identity_stays", "DELETE", "catalog_identity", "TRUE", "a catalog keeps its uid"),
    Rule("changes_are_final", "UPDATE", "changes", "TRUE", "the history is never rewritten"),
    Rule(
        "sessions_only_renew",
        "UPDATE",
        "sessions",
        "NEW.renewals < OLD.renewals",
        "the renewals of a session only grow",
    ),
    Rule("grants_epoch_only_grows", "UPDATE", "grants", "NEW.epoch < OLD.epoch", "the epoch of a grant only grows"),
    Rule(
        "grants_pass_with_new_epoch",
        "UPDATE",
        "grants",
        "NEW.session_uid IS NOT NULL AND NEW.epoch <= OLD.epoch"
        " AND (OLD.session_uid IS NULL OR OLD.session_uid <> NEW.session_uid)",
        "a grant passes to another session with a higher epoch only",
    ),
    # A topic has a uid that no other topic will have, and a group that comes back begins above every epoch that was
    # forgotten: nothing is left that an old epoch could be taken for.
    Rule(
        "grants_stay",
        "DELETE",
        "grants",
        _none_of("OLD.kind", ("partition", "group")),
        "a grant keeps its row, and with it its epoch",
    ),
    Rule("agents_keep_number", "UPDATE", "agents", "NEW.node_id <> OLD.node_id", "an agent keeps its node_id"),
    Rule("counters_only_grow", "UPDATE", "counters", "NEW.value < OLD.value", "a counter only grows"),
    Rule("counters_stay", "DELETE", "counters", "TRUE", "a counter is never deleted"),
    Rule(
        "topics_fixed",
        "UPDATE",
        "topics",
        "NEW.partitions <> OLD.partitions OR NEW.durability <> OLD.durability OR NEW.format <> OLD.format"
        " OR NEW.name <> OLD.name",
        "name, partitions, durability and format of a topic are fixed at creation",
    ),
    Rule(
        "partitions_only_grow",
        "UPDATE",
        "partitions",
        "NEW.log_start < OLD.log_start OR NEW.committed < OLD.committed",
        "the start and the end of a partition only grow",
    ),
    Rule("segments_are_final", "UPDATE", "segments", "TRUE", "a segment is never changed, only replaced"),
    Rule(
        "consumer_groups_generation",
        "UPDATE",
        "consumer_groups",
        "NEW.generation < OLD.generation",
        "the generation of a group only grows",
    ),
    Rule("transfers_begin", "INSERT", "transfers", "NEW.state <> 'PENDING'", "a transfer begins PENDING"),
    Rule(
        "transfers_transition",
        "UPDATE",
        "transfers",
        _other_than(TRANSFER_TRANSITIONS),
        "no such transition of a transfer",
    ),
    Rule("queries_begin", "INSERT", "queries", "NEW.state <> 'PENDING'", "a query begins PENDING"),
    Rule(
        "queries_transition",
        "UPDATE",
        "queries",
        _other_than(QUERY_TRANSITIONS),
        "no such transition of a query",
    ),
    Rule(
        "queries_end",
        "DELETE",
        "queries",
        _none_of("OLD.state", QUERY_ENDED),
        "a query is deleted only after it has ended",
    ),
    Rule("fragments_begin", "INSERT", "fragments", "NEW.state <> 'PENDING'", "a fragment begins PENDING"),
    Rule(
        "fragments_transition",
        "UPDATE",
        "fragments",
        _other_than(FRAGMENT_TRANSITIONS),
        "no such transition of a fragment",
    ),
    Rule(
        "fragments_epoch_only_grows",
        "UPDATE",
        "fragments",
        "NEW.epoch < OLD.epoch",
        "the epoch of a fragment only grows",
    ),
    Rule(
        "fragments_begin_again",
        "UPDATE",
        "fragments",
        "OLD.state <> 'PENDING' AND NEW.state = 'PENDING' AND NEW.epoch <= OLD.epoch",
        "a fragment begins again with a higher epoch only",
    ),
    Rule(
        "fragments_take_slots",
        "UPDATE",
        "fragments",
        "NEW.slots_held AND NOT OLD.slots_held AND NEW.epoch <= OLD.epoch",
        "a fragment takes slots again with a higher epoch only",
    ),
    Rule(
        "fragments_keep_starts",
        "UPDATE",
        "fragments",
        "OLD.starts IS NOT NULL AND (NEW.starts IS NULL OR NEW.starts <> OLD.starts)",
        "where a fragment begins to read is kept once, and never moved",
    ),
    Rule(
        "fragments_return_slots",
        "DELETE",
        "fragments",
        "OLD.slots_held",
        "a fragment is deleted only after its slots are returned",
    ),
)


def fingerprint() -> str:
    """What the last migration carries: a test tells whether the rules have changed since."""
    return hashlib.sha256(repr(RULES).encode()).hexdigest()[:16]


def install(connection: Connection) -> None:
    """Makes the triggers of all rules, in place of those that are there."""
    make = _sqlite if connection.dialect.name == "sqlite" else _postgres
    for rule in RULES:
        for statement in make(rule):
            connection.exec_driver_sql(statement)


def _sqlite(rule: Rule) -> tuple[str, ...]:
    return (
        f"DROP TRIGGER IF EXISTS {rule.name}",
        f"CREATE TRIGGER {rule.name} BEFORE {rule.event} ON {rule.table} FOR EACH ROW WHEN {rule.condition} "
        f"BEGIN SELECT RAISE(ABORT, '{rule.message}'); END",
    )


def _postgres(rule: Rule) -> tuple[str, ...]:
    """Refusals carry the SQLSTATE of a violated check, so that they arrive as an IntegrityError, as in SQLite."""
    return (
        f"CREATE OR REPLACE FUNCTION {rule.name}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{rule.message}' USING ERRCODE = 'check_violation', CONSTRAINT = '{rule.name}'; "
        f"END $$",
        f"DROP TRIGGER IF EXISTS {rule.name} ON {rule.table}",
        f"CREATE TRIGGER {rule.name} BEFORE {rule.event} ON {rule.table} FOR EACH ROW WHEN ({rule.condition}) "
        f"EXECUTE FUNCTION {rule.name}()",
    )
