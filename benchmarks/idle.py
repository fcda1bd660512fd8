"""What an idle coordinator costs: 1,000 running queries, 100 agents, and nothing to do.

A real coordinator process on SQLite; the agents live in another process and answer over gRPC, each registered and
renewing its session. When every query is RUNNING, the coordinator's processor time is measured for a while. `ratio` is
the share of one core that it used over the share it may use, 5%.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from headgate.catalog import v1 as catalog
from tests.e2e.api.kit import Client, running_coordinator

sys.path.insert(0, str(Path(__file__).parent))

from processes import memory_mib, processor_seconds
from reconcile import agents_elsewhere

GOAL = "<= 1.0"
QUERIES = 1_000
AGENTS = 100
ALLOWED = 0.05
SETTLE = 10.0
SPAN = 30.0
DEADLINE = 600.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("the cluster did not settle")
        time.sleep(0.5)


def count(client: Client, request: catalog.ListQueriesRequest | catalog.ListAgentsRequest) -> int:
    request.page_size = 1000
    answer = client(request)
    return len(answer.queries if isinstance(request, catalog.ListQueriesRequest) else answer.agents)


def deploy(client: Client) -> None:
    until(lambda: count(client, catalog.ListAgentsRequest(state=catalog.AGENT_STATE_ACTIVE)) == AGENTS)
    statements = ""
    for number in range(AGENTS):
        statements += f"CREATE PHYSICAL SOURCE source{number} FOR readings{number} TYPE GENERATOR ON agent{number};"
        statements += f"CREATE SINK sink{number} (sensor INT32, value FLOAT64) TYPE PRINT ON agent{number};"
        statements = f"CREATE LOGICAL SOURCE readings{number} (sensor INT32, value FLOAT64);" + statements
    answer = client(catalog.ExecuteStatementRequest(statement=statements), timeout=60.0)
    assert not answer.HasField("failure"), answer.failure
    for number in range(QUERIES):
        source, sink = number % AGENTS, (number + 1) % AGENTS
        client(
            catalog.CreateQueryRequest(
                name=f"query_{number}",
                statement=f"SELECT sensor, value FROM readings{source} WHERE value > 1 INTO sink{sink}",
            )
        )
    until(lambda: count(client, catalog.ListQueriesRequest(state=catalog.QUERY_STATE_RUNNING)) == QUERIES)


def measure(folder: Path) -> dict[str, object]:
    with running_coordinator(folder) as server, agents_elsewhere(AGENTS, server.address):
        client = Client(server.address)
        deploy(client)
        client.close()
        time.sleep(SETTLE)
        pid = server.process.pid
        used, began = processor_seconds(pid), time.monotonic()
        time.sleep(SPAN)
        share = (processor_seconds(pid) - used) / (time.monotonic() - began)
        return {
            "name": "idle",
            "ratio": round(share / ALLOWED, 3),
            "goal": GOAL,
            "share_of_a_core": round(share, 4),
            "memory_mib": round(memory_mib(pid), 1),
            "queries": QUERIES,
            "agents": AGENTS,
        }


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        figures = measure(Path(folder))
    print(f"{'queries':>8}{'agents':>8}{'share of a core':>18}{'memory MiB':>12}")
    print(f"{QUERIES:>8}{AGENTS:>8}{figures['share_of_a_core']:>18}{figures['memory_mib']:>12}")
    print(json.dumps(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
