"""Many creators fight over few slots: exactly as many queries are accepted as there is room for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from tests.e2e.api.kit import Client, Server, running_agent, running_coordinator, wait_until

pytestmark = pytest.mark.slow

CREATORS = 64
SLOTS = 10
# From topic to topic at least once: one compute fragment, one slot.
SET_UP = """
    CREATE LOGICAL SOURCE orders (id INT64, amount FLOAT64);
    CREATE PHYSICAL SOURCE FOR orders TYPE KAFKA SET (
        'broker:9092' AS "SOURCE".BOOTSTRAP_SERVERS, 'orders' AS "SOURCE".TOPIC, 'JSON' AS PARSER."TYPE");
    CREATE SINK large (id INT64, amount FLOAT64) TYPE KAFKA SET (
        'broker:9092' AS "SINK".BOOTSTRAP_SERVERS, 'large' AS "SINK".TOPIC);
"""
QUERY = "SELECT id, amount FROM orders WHERE amount > 100 INTO large WITH (delivery = 'at_least_once')"


@pytest.fixture(params=["sqlite", "postgres"])
def coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    with (
        running_coordinator(tmp_path, url, "--set", "server.limits.in_flight=128") as server,
        running_agent(tmp_path, "edge", server.address, slots=SLOTS),
    ):
        yield server


def test_ten_slots_take_ten_queries_and_are_returned_once(coordinator: Server) -> None:
    client = Client(coordinator.address)

    def agent() -> catalog.Agent:
        found: catalog.Agent = client(catalog.GetAgentRequest(name="edge")).agent
        return found

    wait_until(lambda: agent().state == catalog.AGENT_STATE_ACTIVE)
    assert not client(catalog.ExecuteStatementRequest(statement=SET_UP)).HasField("failure")
    for round_ in range(2):
        begin = Barrier(CREATORS)
        outcomes = _fight(client, begin, round_)
        assert Counter(outcomes.values()) == {"": SLOTS, "INSUFFICIENT_CAPACITY": CREATORS - SLOTS}
        accepted = sorted(name for name, reason in outcomes.items() if not reason)
        assert [query.name for query in client(catalog.ListQueriesRequest()).queries] == accepted
        assert agent().slots_used == SLOTS
        # Each has its one fragment, and each fragment its one slot.
        fragments = client(catalog.ListFragmentsRequest()).fragments
        assert [(fragment.query, fragment.slots, fragment.slots_held) for fragment in fragments] == [
            (name, 1, True) for name in accepted
        ]
        for name in accepted:
            client(catalog.DropQueryRequest(name=name))
        wait_until(lambda: not client(catalog.ListQueriesRequest()).queries)
        assert agent().slots_used == 0
    client.close()


def _fight(client: Client, begin: Barrier, round_: int) -> dict[str, str]:
    """The reason with which each of the creators was refused; empty for those that were not."""

    def create(number: int) -> tuple[str, str]:
        name = f"q{round_}_{number:02}"
        begin.wait(60)
        try:
            client(catalog.CreateQueryRequest(name=name, statement=QUERY))
        except HeadgateError as error:
            return name, error.reason.name
        return name, ""

    with ThreadPoolExecutor(CREATORS) as creators:
        return dict(creators.map(create, range(CREATORS)))
