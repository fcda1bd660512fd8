"""The PostgreSQL of the test-server kit."""

from __future__ import annotations

import psycopg
import pytest

from tests.servers.postgres import Postgres, running_postgres


def test_each_test_gets_an_empty_database_of_its_own(postgres_server: Postgres) -> None:
    with postgres_server.fresh_database() as first, postgres_server.fresh_database() as second:
        with psycopg.connect(first) as connection:
            connection.execute("CREATE TABLE seen (n int)")
        with psycopg.connect(second) as connection:
            tables = connection.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'seen'").fetchone()
        assert tables == (0,)


def test_a_database_is_dropped_although_a_connection_to_it_is_open(postgres_server: Postgres) -> None:
    with postgres_server.fresh_database() as url:
        left_open = psycopg.connect(url)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    left_open.close()


def test_the_fixture_is_a_url_that_a_client_can_use(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute("SELECT 40 + 2").fetchone() == (42,)


def test_two_servers_run_side_by_side_and_both_end(tmp_path_factory: pytest.TempPathFactory) -> None:
    logs = tmp_path_factory.mktemp("logs")
    with running_postgres(logs / "a.log") as a, running_postgres(logs / "b.log") as b:
        assert a.port != b.port
        urls = [a.url("postgres"), b.url("postgres")]
        for url in urls:
            psycopg.connect(url).close()
    for url in urls:
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
    assert "database system is shut down" in (logs / "a.log").read_text()
