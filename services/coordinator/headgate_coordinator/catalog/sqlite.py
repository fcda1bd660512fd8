"""The catalog in an SQLite file: one writer with BEGIN IMMEDIATE and WAL, readers on snapshots beside it.

A commit is durable when `synchronous` is FULL, the default: the log is flushed to the disk before `write` returns.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from headgate_common.clock import Clock
from headgate_common.errors import INTERNAL, HeadgateError
from headgate_common.ids import Ids
from headgate_coordinator.catalog import changes
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

# Errors after which the transaction is lost, whatever the operation was.
_ABORTING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOTADB,
}
# Those with which a commit certainly did not happen.
_REFUSED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY}


class SqliteStore(ThreadedStore):
    def __init__(self, path: Path, *, clock: Clock, ids: Ids, settings: StoreSettings | None = None) -> None:
        super().__init__(clock=clock, ids=ids, settings=settings or StoreSettings())
        self._path = path
        self._engine = create_engine("sqlite://", creator=self._connect, poolclass=NullPool, hide_parameters=True)
        self._writing: Connection | None = None
        self._local = threading.local()
        self._reading_connections: list[Connection] = []

    def _connect(self) -> sqlite3.Connection:
        settings = self._settings
        connection = sqlite3.connect(
            self._path,
            timeout=settings.lock_timeout,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {settings.synchronous}")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    def _open_database(self) -> int:
        self._make_private()
        try:
            with self._engine.connect() as connection:
                # A migration may make a table anew that others refer to: references are checked at its end instead, as
                # SQLite advises. The setting holds for a connection, and cannot be changed inside a transaction.
                connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
                connection.commit()
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                if migrate(connection):
                    _require_references(connection)
                last, _ = changes.head(connection)
                connection.commit()
            return last
        except (DBAPIError, sqlite3.Error) as error:
            raise unavailable(error) from error

    def _make_private(self) -> None:
        """Passwords of sources and sinks are in it: a new one is for its user alone, and so are the files that SQLite
        makes beside it."""
        with contextlib.suppress(OSError):
            # That it is there is fine; what else is wrong SQLite says.
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))

    def _commit_group(self, group: Sequence[Work]) -> list[Outcome]:
        try:
            connection = self._write_connection()
            transaction = connection.begin()
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            start = connection.execute(START).one()
            done = run_group(connection, group, start=start, now=self._now(), ids=self._ids, aborts=_aborts)
            changes.append(connection, done.head, done.rows)
        except BaseException as error:
            self._drop_writer()
            if isinstance(error, DBAPIError | sqlite3.Error):
                raise unavailable(error) from error
            raise
        if done.failed:
            transaction.rollback()
            return done.outcomes
        try:
            transaction.commit()
        except DBAPIError as error:
            self._drop_writer()
            raise self._failed_commit(error) from error
        self._stats.commits += 1
        return done.outcomes

    def _failed_commit(self, error: DBAPIError) -> HeadgateError:
        return unavailable(error) if _code(error) in _REFUSED else uncertain(error)

    def _read_once(self, operation: Operation[T]) -> T:
        connection: Connection | None = getattr(self._local, "connection", None)
        try:
            if connection is None:
                connection = self._engine.connect()
                connection.exec_driver_sql("PRAGMA query_only = ON")
                connection.rollback()
                self._local.connection = connection
                self._reading_connections.append(connection)
            with connection.begin() as transaction:
                try:
                    connection.exec_driver_sql("BEGIN")
                    last, _ = changes.head(connection)
                    return operation(Tx(connection, self._now(), last, self._ids))
                finally:
                    transaction.rollback()
        except (DBAPIError, sqlite3.Error) as error:
            if isinstance(error, DBAPIError) and not _aborts(error):
                raise
            raise unavailable(error) from error

    def _close_database(self) -> None:
        for connection in self._reading_connections:
            connection.close()
        self._drop_writer()
        self._engine.dispose()

    def _write_connection(self) -> Connection:
        if self._writing is None:
            self._writing = self._engine.connect()
        return self._writing

    def _drop_writer(self) -> None:
        """Closing rolls back whatever is open."""
        connection, self._writing = self._writing, None
        if connection is not None:
            connection.close()

    def _now(self) -> int:
        return int(self._clock.wall().timestamp() * 1_000_000)


def _require_references(connection: Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise HeadgateError(INTERNAL, f"the migration would break references of table {broken[0]}, and was undone")


def _code(error: DBAPIError) -> int:
    """The primary result code of SQLite."""
    return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF


def _aborts(error: DBAPIError) -> bool:
    return _code(error) in _ABORTING
