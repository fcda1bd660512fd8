"""Two coordinators on one Postgres, with real agents: the leader is killed, or frozen and woken up again."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from tests.e2e.life.kit import Cluster, Process, cluster_of, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


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


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_the_standby_takes_over_and_the_former_leader_does_no_harm(
    tmp_path: Path, postgres_url: str, how: signal.Signals
) -> None:
    with cluster_of(tmp_path, "a", "b", "c", url=postgres_url, coordinators=2) as cluster:
        first, second = cluster.coordinators
        if not leads(cluster, first):
            first, second = second, first
        assert leads(cluster, first) and not leads(cluster, second)
        cluster.declare()
        cluster.create("before")
        cluster.until_state("before", "RUNNING")
        if how is signal.SIGKILL:
            first.kill()
        else:
            first.signal(how)
            cluster.coordinators = [second]
        until(lambda: leads(cluster, second), "the standby to take over", 30)
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
