"""A PostgreSQL server with a fresh database for each test."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg

from tests.servers.cache import ServerMissing
from tests.servers.ports import free_port
from tests.servers.process import Command, ServerProcess, start_with_retry

# PostgreSQL refuses to run as root, so that root runs it as this user.
UNPRIVILEGED_USER = "postgres"
# A crash of the machine is not among the things tested: the server may keep data in the page cache.
SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
    "log_statement": "none",
    "timezone": "UTC",
}


def find_bin_folder() -> Path:
    """The folder with initdb and postgres: of HEADGATE_POSTGRES_BIN, of PATH, or where Debian puts it."""
    if chosen := os.environ.get("HEADGATE_POSTGRES_BIN"):
        return Path(chosen)
    candidates = [Path(found).resolve().parent for name in ("initdb", "postgres") if (found := shutil.which(name))]
    candidates += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: int(p.parent.name), reverse=True)
    for folder in candidates:
        if (folder / "initdb").is_file() and (folder / "postgres").is_file():
            return folder
    raise ServerMissing(
        "PostgreSQL is not installed (Debian package postgresql), nor does HEADGATE_POSTGRES_BIN name it"
    )


def unprivileged_user() -> str | None:
    """Whom to run the server as; None where this process is not root."""
    if os.geteuid() != 0:
        return None
    try:
        pwd.getpwnam(UNPRIVILEGED_USER)
    except KeyError:
        raise ServerMissing(
            f"PostgreSQL refuses to run as root, and there is no user {UNPRIVILEGED_USER} to run it as"
        ) from None
    return UNPRIVILEGED_USER


class Postgres:
    """One server. `fresh_database` gives a database that nobody else uses. `settings` go before those of the tests."""

    def __init__(self, folder: Path, log: Path, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**SETTINGS, **(settings or {})}
        self._bin = find_bin_folder()
        self._user = unprivileged_user()
        self._folder = folder
        self._log = log
        self._numbers = count(1)
        self._initialise()
        self.port = 0
        self.process = start_with_retry(self._start)

    def _initialise(self) -> None:
        if self._user:
            # The folders above may be closed to the user that the server runs as, its own may not.
            shutil.chown(self._folder, self._user, self._user)
        command: list[str | Path] = [
            self._bin / "initdb",
            "-D",
            self._folder / "data",
            "-U",
            "postgres",
            "-A",
            "trust",
            "-N",
            "-E",
            "UTF8",
        ]
        done = subprocess.run(
            [*command, "--no-instructions", "--locale=C"],
            user=self._user,
            group=self._user,
            extra_groups=[] if self._user else None,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        if done.returncode != 0:
            raise ServerMissing(f"initdb failed:\n{done.stdout}")

    def _start(self) -> ServerProcess:
        self.port = free_port()
        settings = {**self._settings, "port": str(self.port), "unix_socket_directories": str(self._folder)}
        options = [text for name, value in settings.items() for text in ("-c", f"{name}={value}")]
        process = ServerProcess(
            Command(
                name="PostgreSQL",
                arguments=[self._bin / "postgres", "-D", self._folder / "data", *options],
                log=self._log,
                user=self._user,
                # A fast shutdown: SIGTERM would wait for clients to leave.
                stop_signal=signal.SIGINT,
                folder=self._folder,
            )
        )
        process.wait_until_ready(self._answers, 60)
        return process

    def _answers(self) -> bool:
        try:
            psycopg.connect(self.url("postgres"), connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    @contextmanager
    def fresh_database(self) -> Iterator[str]:
        """The URL of a new database, dropped afterwards together with the connections still open to it."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        yield self.url(name)
        if self.process.alive:
            with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
                connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())


@contextmanager
def running_postgres(log: Path, settings: Mapping[str, str] | None = None) -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix="headgate-postgres-", ignore_cleanup_errors=True) as folder:
        server = Postgres(Path(folder), log, settings)
        try:
            yield server
        finally:
            server.process.stop()
