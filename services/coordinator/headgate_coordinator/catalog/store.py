"""The store: where catalog operations run, and what a caller may rely on.

Contract of `Store`:

- `write(operation, term)` runs `operation(tx)` in a serializable transaction, serial with every other write of every
  process on the database, and returns its result once the commit is durable. An exception rolls back this operation
  alone and reaches the caller. With `term`, NOT_LEADER is raised and nothing happens unless that term still leads, as
  seen by the same transaction. CATALOG_UNAVAILABLE: the database failed, and nothing was done. CATALOG_UNCERTAIN: it
  failed during the commit, and nobody knows. OVERLOADED: too much is waiting; nothing was done. A caller that gives up
  while its operation waits takes it out of the queue; once it runs, it may take effect.
- Each operation that recorded changes becomes one revision: the previous one plus 1. One that recorded nothing takes
  none, though what it wrote is kept.
- `read(operation)` runs `operation(tx)` on one consistent snapshot, that of `tx.revision`. It cannot write and never
  makes a writer wait.
- `changes` is the feed of committed revisions (see `changes.py`), those of other processes on the database included.
  A revision is published before, or soon after, the `write` that made it returns.
- An operation may be run more than once before it is committed, on any thread, so it touches nothing but its `tx`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, and_, select
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError

from headgate_common.errors import INTERNAL, HeadgateError
from headgate_common.ids import Ids
from headgate_coordinator.catalog import changes, schema
from headgate_coordinator.catalog.changes import ChangeFeed, Revision
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import CATALOG_UNAVAILABLE, CATALOG_UNCERTAIN, NOT_LEADER

log = logging.getLogger(__name__)

T = TypeVar("T")
Operation = Callable[[Tx], T]

# The grant whose epoch is the term of the leading coordinator.
LEADER_KIND = "coordinator"
LEADER_KEY = "leader"


class Store(Protocol):
    """See the contract above."""

    @property
    def changes(self) -> ChangeFeed: ...

    @property
    def stats(self) -> StoreStats: ...

    async def write(self, operation: Operation[T], term: int | None = None) -> T: ...

    async def read(self, operation: Operation[T]) -> T: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """How a store behaves. Times in seconds."""

    # Writes and reads that may wait; beyond that the answer is OVERLOADED.
    max_waiting: int = 1024
    # Operations that share one commit.
    max_group: int = 64
    # Connections for reads.
    readers: int = 4
    # How often the database is asked for revisions that another process committed.
    poll_interval: float = 0.2
    # How long a write waits for the lock that another process holds.
    lock_timeout: float = 5.0
    # How long the database waits for a process that stands still inside a transaction before it ends it.
    idle_transaction_timeout: float = 2.0
    # Postgres only: how long one statement may take.
    statement_timeout: float = 30.0
    # How long a new connection to the database may take.
    connect_timeout: float = 3.0
    # How often a transaction that lost to another is run again.
    max_attempts: int = 8
    # SQLite only: FULL survives a power cut, NORMAL a crash of the process.
    synchronous: str = "FULL"
    # What may pile up for one subscriber of the feed.
    feed_revisions: int = 4096
    feed_bytes: int = 32 << 20


@dataclass(slots=True)
class StoreStats:
    """Counters since the store was opened, for metrics; `waiting` is how much waits now."""

    writes: int = 0
    reads: int = 0
    commits: int = 0
    refused: int = 0
    retries: int = 0
    unavailable: int = 0
    uncertain: int = 0
    waiting: int = 0


@dataclass(slots=True)
class Outcome:
    """What became of one operation, to be told once the transaction around it is committed."""

    result: Any = None
    error: Exception | None = None
    revision: Revision | None = None
    after_commit: Sequence[Callable[[], None]] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Group:
    """What became of operations that shared a transaction, and what is yet to be written before its commit."""

    outcomes: list[Outcome]
    # The last revision, once `rows` are in the history (`changes.append`).
    head: int
    rows: list[changes.Row]

    @property
    def failed(self) -> bool:
        """Whether there is nothing to commit."""
        return all(outcome.error is not None for outcome in self.outcomes)


def unavailable(cause: object) -> HeadgateError:
    return HeadgateError(CATALOG_UNAVAILABLE, f"the database cannot be used, and nothing was done: {_sentence(cause)}")


def uncertain(cause: object) -> HeadgateError:
    return HeadgateError(
        CATALOG_UNCERTAIN,
        f"the database failed during the commit, so the change may or may not have happened: {_sentence(cause)}",
    )


def _sentence(cause: object) -> str:
    """The first line of what a driver says, without the statement and its parameters, which may hold secrets."""
    if isinstance(cause, DBAPIError):
        cause = cause.orig
    lines = str(cause).strip().splitlines()
    return lines[0] if lines else type(cause).__name__


# What every write transaction asks first, in one round trip: the last revision, and in which term who leads.
START = select(schema.revision.c.value, schema.grants.c.epoch, schema.sessions.c.address).select_from(
    schema.revision.outerjoin(
        schema.grants, and_(schema.grants.c.kind == LEADER_KIND, schema.grants.c.key == LEADER_KEY)
    ).outerjoin(schema.sessions, schema.grants.c.session_uid == schema.sessions.c.uid)
)


def check_term(row: Any, term: int) -> None:
    """NOT_LEADER, with the leader's address where there is one, unless `term` leads according to a row of `START`."""
    if row.epoch == term and row.address is not None:
        return
    epoch, address = row.epoch or 0, row.address or ""
    raise HeadgateError(
        NOT_LEADER,
        f"term {term} is over: the current one is {epoch}, and {address or 'nobody'} leads",
        metadata={"leader": address, "term": str(epoch)},
    )


def run_group(
    connection: Connection,
    operations: Sequence[tuple[Operation[Any], int | None]],
    *,
    start: Any,
    now: int,
    ids: Ids,
    aborts: Callable[[DBAPIError], bool],
) -> Group:
    """Runs operations one after the other inside the open write transaction, each in a savepoint of its own.

    The caller has begun the transaction, holds the write lock and has read `START` under it. Afterwards it
    appends the rows to the history and commits, or rolls back if all failed (one that is alone gets no savepoint), and
    only then tells the outcomes. An error for which `aborts` says that the transaction as a whole is lost is raised.
    """
    alone = len(operations) == 1
    outcomes: list[Outcome] = []
    rows: list[changes.Row] = []
    number = start.value
    for operation, term in operations:
        tx = Tx(connection, now, number + 1, ids)
        if not alone:
            # The one before is left in place: releasing it would cost a round trip and win nothing.
            connection.exec_driver_sql("SAVEPOINT operation")
        try:
            if term is not None:
                # One before it in the group may have changed who leads.
                check_term(connection.execute(START).one() if outcomes else start, term)
            outcome = Outcome(operation(tx), after_commit=tx.after_commit)
            if recorded := tx.changes:
                outcome.revision, encoded = changes.encode(number + 1, now, recorded)
                rows += encoded
                number += 1
        except Exception as error:
            if isinstance(error, DBAPIError) and aborts(error):
                raise
            if not alone:
                connection.exec_driver_sql("ROLLBACK TO SAVEPOINT operation")
            outcome = Outcome(error=_explained(error, ids))
        outcomes.append(outcome)
    return Group(outcomes, number, rows)


def _explained(error: Exception, ids: Ids) -> Exception:
    """A refusal by the database that no operation foresaw is a defect, and is told as one."""
    if not isinstance(error, IntegrityError | DataError):
        return error
    incident = ids.uid("incident")
    log.error("the database refused a change", extra={"incident": incident}, exc_info=error)
    defect = HeadgateError(
        INTERNAL,
        f"the catalog refused the change: {_sentence(error)}; its trace is in the server's log under {incident}",
        metadata={"incident": incident},
    )
    defect.__cause__ = error
    return defect
