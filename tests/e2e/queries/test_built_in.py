"""Queries over what agents say of themselves, with real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headgate_common.errors import HeadgateError
from tests.e2e.queries.kit import QueryCluster, json_lines, query_cluster, until

ROWS = 20_000
AGENTS = ("a", "b")
# An agent that is shut out because the machine is busy reads rows again, and counts them again.
PATIENT = (
    "--set",
    "profile=documents",
    "--set",
    "timings.deployment_deadline=5m",
    "--set",
    "timings.drain_deadline=5m",
)


# As it is written in the documents.
PHI = """
SELECT workerId, (timestamp - prev_timestamp) as inter_arrival_time
FROM (SELECT workerId, timestamp, LAG(timestamp) OVER (PARTITION BY workerId) as prev_timestamp FROM heartbeats)
WINDOW SLIDING(size = 1m, advance = 1s)
GROUP BY workerId
HAVING inter_arrival_time > (AVG(inter_arrival_time) + 3 * STDDEV(inter_arrival_time))
INTO failure_alert_sink
""".strip()


def refusal(cluster: QueryCluster, statement: str) -> str:
    with pytest.raises(HeadgateError) as refused:
        cluster.sql(statement)
    return str(refused.value)


def sink(cluster: QueryCluster, name: str, columns: str) -> str:
    path = cluster.files / f"{name}.json"
    return (
        f"CREATE SINK {name} ({columns}) TYPE FILE ON a "
        f"SET('{path}' AS `SINK`.file_path, 'JSON' AS `SINK`.input_format)"
    )


def found(cluster: QueryCluster, name: str) -> list[dict[str, Any]]:
    return json_lines(cluster.files / f"{name}.json")


def test_dashboard_and_overload_queries_tell_what_the_agents_did(tmp_path: Path) -> None:
    """The rows of a bounded generator on one agent are all counted, and only there; both agents tell of themselves."""
    with query_cluster(tmp_path, agents=AGENTS, settings=PATIENT) as cluster:
        queries = {
            # As it is written in the documents, in Headgate's words.
            "dashboard": "SELECT start, end, SUM(rows_read) AS total FROM agent_statistics "
            "WINDOW TUMBLING(size = 5s) INTO dashboard",
            # The same with shorter windows, and a threshold that any agent reaches.
            "overload": "SELECT agent, AVG(cpu) AS avg_cpu, MIN(memory_bytes) AS memory FROM worker_resources "
            "WINDOW SLIDING(size = 4 SECONDS, advance = 2 SECONDS) GROUP BY agent HAVING avg_cpu >= 0.0 INTO overload",
            # The share of the processors that an agent takes is never above one.
            "calm": "SELECT agent, AVG(cpu) AS avg_cpu, MIN(memory_bytes) AS memory FROM worker_resources "
            "WINDOW SLIDING(size = 4 SECONDS, advance = 2 SECONDS) GROUP BY agent HAVING avg_cpu > 1.5 INTO calm",
            "told": "SELECT agent, number, 0 AS rows_read, 0 AS rows_kept FROM heartbeats UNION ALL "
            "SELECT agent, NULL, rows_read, rows_kept FROM agent_statistics WHERE rows_read > 0 INTO told",
        }
        for statement in (
            sink(cluster, "dashboard", "start TIMESTAMP, `end` TIMESTAMP, total INT64"),
            sink(cluster, "overload", "agent VARCHAR, avg_cpu FLOAT64, memory INT64"),
            sink(cluster, "calm", "agent VARCHAR, avg_cpu FLOAT64, memory INT64"),
            sink(cluster, "told", "agent VARCHAR, number INT64, rows_read INT64, rows_kept INT64"),
            "CREATE LOGICAL SOURCE numbers (n INT64)",
            f"CREATE PHYSICAL SOURCE FOR numbers TYPE GENERATOR ON b SET({ROWS} AS `SOURCE`.rows, "
            "10000 AS `SOURCE`.rate, 'sequence(0)' AS `SOURCE`.field.n)",
            "CREATE SINK nowhere (n INT64) TYPE VOID",
        ):
            cluster.sql(statement)
        # Failure detection by the row before is refused, with our names where LAG stands, with what to write instead.
        in_our_words = (
            PHI.replace("workerId", "agent")
            .replace("prev_timestamp", "p")
            .replace("timestamp", "ts")
            .replace("failure_alert_sink", "told")
        )
        assert "workerId" in refusal(cluster, PHI)
        told = refusal(cluster, in_our_words)
        assert "LAG OVER (...) cannot run as part of a continuous query" in told
        assert "join the stream with itself within a time range" in told
        for name, query in queries.items():
            cluster.sql(f"CREATE QUERY {name} AS {query}")
            cluster.wait(name, "RUNNING", seconds=300)

        cluster.sql(f"CREATE QUERY load AS SELECT n FROM numbers WHERE n < {ROWS // 2} INTO nowhere")
        cluster.wait("load", "TERMINATED", seconds=300)
        until(
            lambda: sum(row["total"] for row in found(cluster, "dashboard")) == ROWS,
            f"the dashboard to have counted {ROWS} rows",
            120,
            lambda: str(found(cluster, "dashboard")),
        )
        until(
            lambda: {row["agent"] for row in found(cluster, "overload")} == set(AGENTS),
            "windows of both agents",
            120,
            lambda: str(found(cluster, "overload")),
        )
        for name in queries:
            cluster.sql(f"STOP QUERY {name}")
        for name in queries:
            cluster.wait(name, "STOPPED", seconds=300)

        # Nothing was counted twice, and what the queries read about agents is not work.
        assert sum(row["total"] for row in found(cluster, "dashboard")) == ROWS
        work: dict[str, list[int]] = {name: [0, 0] for name in AGENTS}
        beats: dict[str, list[int]] = {name: [] for name in AGENTS}
        for row in found(cluster, "told"):
            work[row["agent"]][0] += row["rows_read"]
            work[row["agent"]][1] += row["rows_kept"]
            if row["number"] is not None:
                beats[row["agent"]].append(row["number"])
        assert work == {"a": [0, 0], "b": [ROWS, ROWS // 2]}
        for numbers in beats.values():
            assert numbers and sorted(numbers) == list(range(len(numbers)))
        for row in found(cluster, "overload"):
            assert 0.0 <= row["avg_cpu"] <= 1.0
            assert row["memory"] > 2**20
        assert found(cluster, "calm") == []
