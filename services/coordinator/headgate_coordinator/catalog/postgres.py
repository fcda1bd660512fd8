"""The catalog in PostgreSQL, for one or several coordinators.

Writers of all processes are serial: each transaction first takes the one lock on `revision`, so that the order of
commits is the order of revisions. SERIALIZABLE stands guard; what it refuses is run again. A process that stands still
inside a transaction is ended by the database after `idle_transaction_timeout`, so it cannot keep the others from
writing.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import psycopg
from sqlalchemy import BigInteger, Connection, cast, create_engine, event, func, make_url, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from headgate_common.clock import Clock
from headgate_common.ids import Ids
from headgate_coordinator.catalog import schema
from headgate_coordinator.catalog.changes import append
from headgate_coordinator.catalog.migrations import migrate
from headgate_coordinator.catalog.store import (
    START,
    Operation,
    Outcome,
    StoreSettings,
    run_group,
    unavailable,
    uncertain,
)
from headgate_coordinator.catalog.threaded import ThreadedStore, Work
from headgate_coordinator.catalog.tx import Tx

T = TypeVar("T")

# Serialization failure and deadlock: the transaction lost to another and is run again.
_LOST = {"40001", "40P01"}
# With these a commit certainly did not happen: lost to another, or ended while it stood still.
_ROLLED_BACK_CLASSES = ("40", "23")
_IDLE_TIMEOUT = "25P03"
# How often a transaction is begun anew on a new connection. What is beyond is left to the caller.
_RECONNECTS = 2
# An arbitrary number that says "migrating a Headgate catalog" among the advisory locks of the database.
_MIGRATION_LOCK = 0x48454144
# How long a migration may take, and a coordinator that starts waits for another that migrates.
_MIGRATION_PATIENCE_MS = 600_000

_NOW = cast(func.extract("epoch", func.clock_timestamp()) * 1_000_000, BigInteger).label("now")
_HEAD = select(schema.revision.c.value, _NOW)
_START = START.add_columns(_NOW)


class PostgresStore(ThreadedStore):
    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        ids: Ids,
        settings: StoreSettings | None = None,
        jitter: random.Random | None = None,
    ) -> None:
        super().__init__(clock=clock, ids=ids, settings=settings or StoreSettings())
        self._jitter = jitter or random.SystemRandom()
        self._engine = create_engine(
            make_url(url).set(drivername="postgresql+psycopg"),
            poolclass=NullPool,
            hide_parameters=True,
            connect_args={
                "connect_timeout": max(2, round(self._settings.connect_timeout)),
                "application_name": "headgate-coordinator",
                "keepalives_idle": 5,
                "keepalives_interval": 2,
                "keepalives_count": 3,
                "tcp_user_timeout": 10_000,
            },
        )
        event.listen(self._engine, "connect", self._configure)
        self._writing: Connection | None = None
        self._local = threading.local()
        self._reading_connections: set[Connection] = set()

    def _configure(self, connection: psycopg.Connection[Any], _: object) -> None:
        settings = self._settings
        limits = {
            "lock_timeout": settings.lock_timeout,
            "idle_in_transaction_session_timeout": settings.idle_transaction_timeout,
            "statement_timeout": settings.statement_timeout,
        }
        # Outside of a transaction, so that they outlive every rollback.
        connection.autocommit = True
        connection.execute("; ".join(f"SET {name} = {round(value * 1000)}" for name, value in limits.items()).encode())
        connection.autocommit = False

    def _open_database(self) -> int:
        """Migrates under READ COMMITTED: whoever waited for the lock must see what the one before it has done."""
        try:
            with self._engine.connect() as connection:
                for limit in ("lock_timeout", "idle_in_transaction_session_timeout", "statement_timeout"):
                    connection.exec_driver_sql(f"SET LOCAL {limit} = {_MIGRATION_PATIENCE_MS}")
                connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
                migrate(connection)
                last: int = connection.execute(_HEAD).one().value
                connection.commit()
            return last
        except DBAPIError as error:
            raise unavailable(error) from error

    def _commit_group(self, group: Sequence[Work]) -> list[Outcome]:
        lost = broken = 0
        while True:
            committing = False
            try:
                connection = self._write_connection()
                with connection.begin() as transaction:
                    connection.exec_driver_sql("LOCK TABLE revision IN EXCLUSIVE MODE")
                    start = connection.execute(_START).one()
                    done = run_group(connection, group, start=start, now=start.now, ids=self._ids, aborts=_aborts)
                    if done.failed:
                        transaction.rollback()
                        return done.outcomes
                    append(connection, done.head, done.rows)
                    committing = True
                    transaction.commit()
                self._stats.commits += 1
                return done.outcomes
            except DBAPIError as error:
                state = _state(error)
                gone = _gone(error)
                if gone:
                    self._drop_writer()
                if committing and not (state.startswith(_ROLLED_BACK_CLASSES) or state == _IDLE_TIMEOUT):
                    raise uncertain(error) from error
                lost += state in _LOST
                broken += gone
                if not (gone or state in _LOST) or lost >= self._settings.max_attempts or broken > _RECONNECTS:
                    raise unavailable(error) from error
                self._stats.retries += 1
                time.sleep(self._jitter.uniform(0.001, 0.02) * 2 ** min(lost + broken, 5))
            except BaseException:
                self._drop_writer()
                raise

    def _read_once(self, operation: Operation[T]) -> T:
        broken = 0
        while True:
            try:
                connection = self._read_connection()
                with connection.begin() as transaction:
                    try:
                        head = connection.execute(_HEAD).one()
                        return operation(Tx(connection, head.now, head.value, self._ids))
                    finally:
                        if not connection.invalidated:
                            transaction.rollback()
            except DBAPIError as error:
                if not _aborts(error):
                    raise
                self._drop_reader()
                broken += 1
                if not _gone(error) or broken > _RECONNECTS:
                    raise unavailable(error) from error

    def _close_database(self) -> None:
        for connection in self._reading_connections:
            connection.close()
        self._drop_writer()
        self._engine.dispose()

    def _write_connection(self) -> Connection:
        if self._writing is None:
            self._writing = self._engine.connect().execution_options(isolation_level="SERIALIZABLE")
        return self._writing

    def _drop_writer(self) -> None:
        connection, self._writing = self._writing, None
        if connection is not None:
            connection.invalidate()
            connection.close()

    def _read_connection(self) -> Connection:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._engine.connect().execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
            self._local.connection = connection
            self._reading_connections.add(connection)
        return connection

    def _drop_reader(self) -> None:
        connection: Connection | None = getattr(self._local, "connection", None)
        self._local.connection = None
        if connection is not None:
            self._reading_connections.discard(connection)
            connection.invalidate()
            connection.close()


def _state(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlstate", None) or ""


def _gone(error: DBAPIError) -> bool:
    """Whether the connection is lost, or could not be made."""
    return error.connection_invalidated or (
        isinstance(error.orig, psycopg.OperationalError) and _state(error)[:2] in {"", "08", "57", "25"}
    )


def _aborts(error: DBAPIError) -> bool:
    """Whether the whole transaction is lost, and not just the operation that met the error."""
    return _gone(error) or _state(error) in _LOST or _state(error)[:2] in {"53", "55", "58"}
