"""SIGKILL of the coordinator at every step of a deployment and of a drop, with real agent processes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator import failpoints
from tests.e2e.life.kit import Cluster, cluster_of, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DEPLOYMENT = (
    "taken-up",
    "before-register",
    "after-register",
    "after-register:3",
    "registered",
    "before-start",
    "after-start",
    "after-start:3",
    "started",
    "running",
)
DROP = ("stopping", "before-unregister", "after-unregister", "after-unregister:3", "gone", "ended", "deleted")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster_of(tmp_path_factory.mktemp("crashes"), "a", "b", "c") as made:
        made.declare()
        yield made


def test_every_failpoint_is_tried() -> None:
    assert {where.partition(":")[0] for where in (*DEPLOYMENT, *DROP)} == set(failpoints.NAMES)


def restart(cluster: Cluster, crash: str = "") -> None:
    if cluster.coordinator.running is not None:
        cluster.coordinator.kill()
    cluster.coordinator.start(crash=crash)


def assert_running_everywhere(cluster: Cluster, name: str) -> None:
    """What the catalog says runs is what the agents run, once each."""
    for fragment in cluster.fragments(name):
        for agent in cluster.agents:
            held = cluster.held(agent).get(fragment.uid)
            assert held == ((fragment.epoch, "RUNNING") if agent == fragment.agent else None)


@pytest.mark.parametrize("where", DEPLOYMENT)
def test_a_deployment_goes_on_after_the_coordinator_was_killed(cluster: Cluster, where: str) -> None:
    name = f"up_{where}".replace(":", "_")
    restart(cluster, crash=where)
    cluster.create(name)
    cluster.coordinator.wait_for_death()
    row = cluster.row(name)
    assert row is not None, "what was accepted is lost"
    restart(cluster)
    cluster.until_state(name, "RUNNING")
    assert_running_everywhere(cluster, name)
    cluster.ask(catalog.DropQueryRequest(name=name))
    cluster.until_state(name, "")
    assert set(cluster.slots().values()) == {0}


@pytest.mark.parametrize("where", DROP)
def test_a_drop_goes_on_after_the_coordinator_was_killed_and_the_name_is_not_released_early(
    cluster: Cluster, where: str
) -> None:
    name = f"down_{where}".replace(":", "_")
    restart(cluster, crash=where)
    uid = cluster.create(name)
    cluster.until_state(name, "RUNNING")
    fragments = [fragment.uid for fragment in cluster.fragments(name)]
    cluster.ask(catalog.DropQueryRequest(name=name))
    cluster.coordinator.wait_for_death()
    left = {uid for agent in cluster.agents for uid in cluster.held(agent) if uid in fragments}
    row = cluster.row(name)
    if left:
        assert row is not None and row[1] == "DROPPED", "the name was released while something of it ran"
    restart(cluster)
    again = _create_again(cluster, name)
    for agent in cluster.agents:
        assert not [found for found in cluster.held(agent) if found in fragments], "something old is left"
    cluster.until_state(name, "RUNNING")
    assert again != uid
    assert cluster.story(uid)[-1].to_state == ""
    cluster.ask(catalog.DropQueryRequest(name=name))
    cluster.until_state(name, "")
    assert set(cluster.slots().values()) == {0}


def _create_again(cluster: Cluster, name: str) -> str:
    """Asks for the name until it is free; until then the answer must be that it is locked."""
    made: list[str] = []

    def try_it() -> bool:
        request = catalog.CreateQueryRequest(
            name=name, statement="SELECT sensor, value FROM readings WHERE value > 1 INTO out"
        )
        try:
            made.append(cluster.ask(request).query.uid)
        except HeadgateError as error:
            assert error.reason.name == "QUERY_NAME_LOCKED"
            return False
        return True

    until(try_it, "the name to be free")
    return made[0]


def test_a_drop_of_a_deployment_that_a_crash_interrupted_leaves_nothing(cluster: Cluster) -> None:
    restart(cluster, crash="after-start")
    cluster.create("interrupted")
    cluster.coordinator.wait_for_death()
    restart(cluster, crash="after-unregister:2")
    cluster.ask(catalog.DropQueryRequest(name="interrupted"))
    cluster.coordinator.wait_for_death()
    restart(cluster)
    cluster.until_state("interrupted", "")
    assert all(not cluster.held(agent) for agent in cluster.agents)
    assert set(cluster.slots().values()) == {0}
