"""A SELECT without INTO in the `headgate` command: rows of a whole cluster to the terminal, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.catalog import v1 as catalog
from tests.e2e.cli.command import Headgate
from tests.e2e.cli.test_shell import PROMPT, at_a_terminal
from tests.e2e.queries.kit import QueryCluster, query_cluster, until
from tests.e2e.queries.slow_reader import memory, reading_slowly

pytestmark = pytest.mark.timeout(600)

HEADGATE = Path(sys.executable).parent / "headgate"
# Rows a second that a source could give, about 100 bytes each, and how much may wait between two fragments.
FAST, MAX_LAG = 20_000, 2 * 2**20
# More than buffers on the way hold, and much less than what the source could give until memory is looked at, and while.
MOST_ROWS_AHEAD, FILL_SECONDS, SAMPLES = 200_000, 15.0, 10
MOST_GROWTH = 150 * 2**20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryCluster]:
    folder = tmp_path_factory.mktemp("select")
    settings = ("--set", "timings.temporary_memory=1s", "--set", "timings.housekeeping_interval=500ms")
    of_agents, of_engines = ("--set", f"fragments.edge_max_lag={MAX_LAG}"), ("--set", f"edge_max_lag={MAX_LAG}")
    with query_cluster(folder, settings=settings, agent_options=of_agents, engine_options=of_engines) as made:
        made.sql(
            "CREATE LOGICAL SOURCE numbers (id INT64 NOT NULL, text VARCHAR); "
            "CREATE PHYSICAL SOURCE FOR numbers TYPE GENERATOR ON a SET(100 AS `SOURCE`.rate, "
            "'sequence(0, 1)' AS `SOURCE`.`field.id`, 'constant(x)' AS `SOURCE`.`field.text`)"
        )
        yield made


def started(cluster: QueryCluster, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [HEADGATE, "sql", *arguments],
        env={**os.environ, "HEADGATE_COORDINATOR": cluster.coordinator.address, "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def nothing_is_left(cluster: QueryCluster) -> None:
    until(lambda: not cluster.ask(catalog.ListQueriesRequest()).queries, "the query to be dropped", 60)


def test_rows_come_until_the_limit_and_the_query_is_dropped(cluster: QueryCluster) -> None:
    command = started(cluster, "-c", "SELECT id, id * 2 AS twice, text FROM numbers WHERE id < 1000 LIMIT 5")
    out, err = command.communicate(timeout=180)
    assert command.returncode == 0, err
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["ID", "TWICE", "TEXT"]
    assert [line[0] for line in lines[1:]] == ["0", "1", "2", "3", "4"]
    assert [line[1] for line in lines[1:]] == ["0", "2", "4", "6", "8"]
    nothing_is_left(cluster)


def test_rows_stream_as_json_until_the_reader_is_interrupted(cluster: QueryCluster) -> None:
    command = started(cluster, "-c", "SELECT id FROM numbers", "-o", "jsonl")
    assert command.stdout is not None
    found = [json.loads(command.stdout.readline())["id"] for _ in range(50)]
    assert found == list(range(50))
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert "Traceback" not in err
    nothing_is_left(cluster)


def test_rows_go_on_through_a_restart_of_the_coordinator(cluster: QueryCluster) -> None:
    command = started(cluster, "-c", "SELECT id FROM numbers", "-o", "jsonl")
    assert command.stdout is not None
    found = [json.loads(command.stdout.readline())["id"]]
    cluster.coordinator.kill()
    cluster.coordinator.start()
    found += [json.loads(command.stdout.readline())["id"] for _ in range(1_000)]
    # A start that takes longer than the agent's session lives ends its runs: what was on its way may then come twice.
    once = list(dict.fromkeys(found))
    assert once == list(range(len(once)))
    command.send_signal(signal.SIGINT)
    _, err = command.communicate(timeout=60)
    assert "Traceback" not in err
    nothing_is_left(cluster)


def test_control_c_ends_a_select_and_not_the_shell(cluster: QueryCluster, tmp_path: Path) -> None:
    with at_a_terminal(
        "sql", environment=Headgate(cluster.coordinator.address).environment(), state=tmp_path
    ) as terminal:
        terminal.expect(PROMPT)
        terminal.type("SELECT id + 1000000 AS far FROM numbers;\r")
        terminal.expect("FAR", "1000000", "1000001", seconds=180)
        os.killpg(os.getpgid(terminal.process.pid), signal.SIGINT)
        terminal.expect("interrupted", PROMPT)
        nothing_is_left(cluster)
        terminal.type("SHOW AGENTS;\r")
        terminal.expect("127.0.0.1:")


def test_a_reader_that_dies_leaves_nothing_behind(cluster: QueryCluster) -> None:
    command = started(cluster, "-c", "SELECT id FROM numbers", "-o", "jsonl")
    assert command.stdout is not None
    assert json.loads(command.stdout.readline()) == {"id": 0}
    command.kill()
    command.communicate(timeout=60)
    nothing_is_left(cluster)


def test_a_query_that_fails_says_why(cluster: QueryCluster) -> None:
    command = started(cluster, "-c", "SELECT 1 / (id - 3) AS x FROM numbers")
    _, err = command.communicate(timeout=180)
    assert command.returncode == 1
    assert "Division by zero" in err and "Traceback" not in err
    nothing_is_left(cluster)


def test_a_statement_that_is_wrong_is_shown_with_its_place(cluster: QueryCluster) -> None:
    command = started(cluster, "-c", "SELECT nope FROM numbers")
    _, err = command.communicate(timeout=60)
    assert command.returncode == 1
    assert "1:8: unknown column `nope`" in err and "^" in err


def test_a_slow_sink_pauses_a_fast_source_and_memory_stays_flat(cluster: QueryCluster) -> None:
    cluster.sql(
        "CREATE LOGICAL SOURCE fast (id INT64 NOT NULL, text VARCHAR); CREATE PHYSICAL SOURCE FOR fast "
        f"TYPE GENERATOR ON a SET({FAST} AS `SOURCE`.rate, 'sequence(0, 1)' AS `SOURCE`.`field.id`, "
        f"'constant({'x' * 80})' AS `SOURCE`.`field.text`)"
    )
    with reading_slowly(cluster, "SELECT id, text FROM fast WHERE id >= 0"):

        def progress() -> dict[int, catalog.FragmentProgress]:
            queries = cluster.ask(catalog.ListQueriesRequest()).queries
            return {one.kind: one.progress for query in queries for one in cluster.fragments(query.name)}

        def ahead() -> int:
            """Rows that the source has read, and the sink has not delivered."""
            now = progress()
            return now[catalog.FRAGMENT_KIND_SOURCE].rows_out - now[catalog.FRAGMENT_KIND_SINK].rows_out

        def delivers() -> bool:
            now = progress().get(catalog.FRAGMENT_KIND_SINK)
            return now is not None and now.rows_out > 0

        def paused() -> bool:
            return "which pauses" in progress()[catalog.FRAGMENT_KIND_SOURCE].waiting

        # Not because Spark has not begun.
        until(delivers, "the first rows to come out", 240, lambda: str(progress()))
        time.sleep(FILL_SECONDS)
        until(paused, "the source to pause", 60, lambda: str(progress()))
        held: list[tuple[int, int, int]] = []
        for _ in range(SAMPLES):
            held.append((ahead(), memory(cluster.agents["a"].pid), memory(cluster.engines[0].pid)))
            time.sleep(1.0)
        print(f"rows ahead, memory of agent and engine: {held}")
    rows, *memories = zip(*held, strict=True)
    assert max(rows) <= MOST_ROWS_AHEAD
    for samples in memories:
        assert max(samples) - samples[0] <= MOST_GROWTH, samples
    nothing_is_left(cluster)
