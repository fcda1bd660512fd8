"""Two coordinators on one Postgres, with real agents: the leader is killed, or frozen and woken up again.

The standby must act within the time that docs/coordinator.md states, whatever the database's clock says.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psycopg
import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.cluster.leadership import take_over_within
from headgate_coordinator.config import CoordinatorConfig
from tests.e2e.life.kit import Cluster, Process, cluster_of, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DEFAULTS = CoordinatorConfig()
# What a busy machine, the test's own looking, and the transaction of the take-over may add to the stated time.
MARGIN = 5.0
# A clock of the database that can be moved: found before the real one by whoever asks without naming a schema.
MOVABLE_CLOCK = """
    CREATE SCHEMA moved;
    CREATE TABLE moved.clock (ahead interval NOT NULL);
    INSERT INTO moved.clock VALUES ('0 days');
    CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
        'SELECT pg_catalog.clock_timestamp() + ahead FROM moved.clock';
    CREATE FUNCTION moved.now() RETURNS timestamptz LANGUAGE sql STABLE AS
        'SELECT pg_catalog.now() + ahead FROM moved.clock';
"""


def leads(cluster: Cluster, process: Process) -> bool:
    """Whether this process accepts a mutation."""
    if process.running is None:
        return False
    with cluster.client(process) as client:
        try:
            client(catalog.DropQueryRequest(name="nothing", allow_missing=True), timeout=2.0)
        except HeadgateError:
            return False
    return True


def stop(process: Process, how: signal.Signals) -> None:
    if how is signal.SIGKILL:
        process.kill()
    else:
        process.signal(how)


def stated(how: signal.Signals) -> float:
    """Seconds within which a standby with default settings takes over."""
    within = take_over_within(DEFAULTS.timings)
    # One that stands still may do so in a transaction, for which the database waits.
    return within if how is signal.SIGKILL else within + DEFAULTS.catalog.idle_transaction_timeout


def leader_first(cluster: Cluster) -> tuple[Process, Process]:
    first, second = cluster.coordinators
    if not leads(cluster, first):
        first, second = second, first
    assert leads(cluster, first) and not leads(cluster, second)
    return first, second


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_standby_takes_over_and_the_former_leader_does_no_harm(
    tmp_path: Path, postgres_url: str, how: signal.Signals
) -> None:
    with cluster_of(tmp_path, "a", "b", "c", url=postgres_url, coordinators=2) as cluster:
        first, second = leader_first(cluster)
        cluster.declare()
        cluster.create("before")
        cluster.until_state("before", "RUNNING")
        stop(first, how)
        stopped = time.monotonic()
        cluster.coordinators = [second]
        until(lambda: leads(cluster, second), "the standby to take over", 60)
        took = time.monotonic() - stopped
        assert took <= stated(how) + MARGIN, f"{took:.1f} s, and {stated(how):.1f} s are stated"
        cluster.create("after")
        cluster.until_state("after", "RUNNING")
        cluster.ask(catalog.DropQueryRequest(name="before"))
        cluster.until_state("before", "")
        if how is signal.SIGKILL:
            first.start()
        else:
            first.signal(signal.SIGCONT)
        cluster.coordinators = [first, second]
        until(lambda: not leads(cluster, first) and leads(cluster, second), "one of them to lead")
        assert cluster.state("after") == "RUNNING"
        assert cluster.state("before") == ""
        assert {one.epoch for one in cluster.fragments("after")} == {1}
        second.stop()
        cluster.coordinators = [first]
        until(lambda: leads(cluster, first), "the leadership to be handed over")
        cluster.ask(catalog.DropQueryRequest(name="after"))
        cluster.until_state("after", "")
        assert set(cluster.slots().values()) == {0}


def test_the_clock_of_the_database_may_be_moved_anywhere_and_decides_nothing(tmp_path: Path, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.execute(MOVABLE_CLOCK)
        name = database.info.dbname
        database.execute(f'ALTER DATABASE "{name}" SET search_path = moved, pg_catalog, public'.encode())
    with (
        cluster_of(tmp_path, "a", "b", "c", url=postgres_url, coordinators=2) as cluster,
        psycopg.connect(postgres_url, autocommit=True) as database,
    ):
        first, second = leader_first(cluster)
        cluster.declare()
        cluster.create("kept")
        cluster.until_state("kept", "RUNNING")
        for days in (-400, 400):
            database.execute(f"UPDATE moved.clock SET ahead = '{days} days'".encode())
            moved = time.monotonic()
            while time.monotonic() - moved < 2 * DEFAULTS.timings.session_ttl:
                assert leads(cluster, first) and not leads(cluster, second)
                assert all(cluster.is_active(agent) for agent in cluster.agents)
                time.sleep(0.5)
            source = f"made_at_{days + 400}"
            cluster.ask(catalog.ExecuteStatementRequest(statement=f"CREATE LOGICAL SOURCE {source} (x INT32)"))
            made = cluster.ask(catalog.GetLogicalSourceRequest(name=source)).logical_source
            away = (made.create_time.ToSeconds() - time.time()) / 86400
            assert abs(away - days) < 1, "the catalog's times are the database's, so its clock was moved"
            assert cluster.state("kept") == "RUNNING"
            assert {one.epoch for one in cluster.fragments("kept")} == {1}
        database.execute(b"UPDATE moved.clock SET ahead = '-4000 days'")
        stop(first, signal.SIGKILL)
        stopped = time.monotonic()
        cluster.coordinators = [second]
        until(lambda: leads(cluster, second), "the standby to take over", 60)
        assert time.monotonic() - stopped <= stated(signal.SIGKILL) + MARGIN
        cluster.create("after")
        cluster.until_state("after", "RUNNING")
        assert {one.epoch for one in cluster.fragments("kept")} == {1}
