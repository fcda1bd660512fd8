"""A cluster of real processes, and the examples built against the protos as they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from headgate.catalog import v1 as catalog
from tests.e2e.life.kit import Cluster, Process, cluster_of, until
from tests.e2e.sdk.example import Example
from tests.servers.cache import ServerMissing, servers_required
from tests.servers.postgres import Postgres
from tests.servers.sdks import ROOT, build_sdk
from tests.servers.tcp_proxy import TcpProxy, tcp_proxy

AGENT = "edge"
# A poll over a link that is cut waits, so that the agent stays ACTIVE and queries can still be placed on it.
PATIENT = ("--set", "timings.poll_timeout_min=30s", "--set", "timings.poll_timeout_max=30s")


@dataclass(frozen=True, slots=True)
class Behind:
    """A cluster of which two links can be cut: the client's to the coordinator, and the coordinator's to the agent. The
    agent reaches the coordinator all the time, and stays ACTIVE for a while though no command reaches it."""

    cluster: Cluster
    client_link: TcpProxy
    agent_link: TcpProxy

    @property
    def address(self) -> str:
        return self.client_link.address

    def cut_agent(self) -> None:
        """From now on no command reaches the agent, which is ACTIVE."""
        until(lambda: self.cluster.agent(AGENT).state == catalog.AGENT_STATE_ACTIVE, f"{AGENT} to be ACTIVE")
        self.agent_link.cut()

    def names(self) -> set[str]:
        """Of every source, sink and query in the catalog."""
        kinds = (
            catalog.RESOURCE_KIND_LOGICAL_SOURCE,
            catalog.RESOURCE_KIND_PHYSICAL_SOURCE,
            catalog.RESOURCE_KIND_SINK,
            catalog.RESOURCE_KIND_QUERY,
        )
        found = self.cluster.ask(catalog.GetSnapshotRequest(kinds=kinds)).resources
        return {getattr(one, one.WhichOneof("resource")).name for one in found}


def add_agent(cluster: Cluster, link: TcpProxy) -> None:
    """An agent that runs nothing for real and is reached through the link."""
    addresses = ",".join(one.address for one in cluster.coordinators)
    arguments = ["-m", "headgate_agent.server", "--coordinator", addresses, "--name", AGENT, "--engine", "simulated"]
    arguments += ["--data", str(cluster.folder / AGENT), "--object-store", str(cluster.folder / "objects")]
    arguments += ["--kafka-listen", "127.0.0.1:0", "--advertise", link.address]
    agent = cluster.agents[AGENT] = Process(AGENT, arguments, cluster.folder)
    link.target = agent.address
    agent.start()
    until(lambda: cluster.agent(AGENT).state == catalog.AGENT_STATE_ACTIVE, f"{AGENT} to be ACTIVE")


@pytest.fixture(scope="session")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    folder = tmp_path_factory.mktemp("sdk")
    with tcp_proxy() as client_link, tcp_proxy() as agent_link, cluster_of(folder, options=PATIENT) as cluster:
        client_link.target = cluster.coordinator.address
        add_agent(cluster, agent_link)
        yield Behind(cluster, client_link, agent_link)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, postgres_server: Postgres) -> Iterator[Cluster]:
    """Two coordinators on one database, of which one leads, and an agent."""
    folder = tmp_path_factory.mktemp("pair")
    with ExitStack() as stack:
        url = stack.enter_context(postgres_server.fresh_database())
        link = stack.enter_context(tcp_proxy())
        cluster = stack.enter_context(cluster_of(folder, url=url, coordinators=2))
        add_agent(cluster, link)
        yield cluster


@pytest.fixture(scope="session", params=["go", "typescript"])
def example(request: pytest.FixtureRequest) -> Example:
    language: str = request.param
    try:
        path = build_sdk(language)
    except ServerMissing as missing:
        if servers_required():
            pytest.fail(f"HEADGATE_REQUIRE_SERVERS is set: {missing}", pytrace=False)
        pytest.skip(str(missing))
    command = (str(path),) if language == "go" else ("node", str(path))
    return Example(language, ROOT / "examples" / language, command)
