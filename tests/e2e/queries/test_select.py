"""A SELECT without INTO in the `headgate` command: rows of a whole cluster to the terminal, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headgate.catalog import v1 as catalog
from tests.e2e.cli.command import Headgate
from tests.e2e.cli.test_shell import PROMPT, at_a_terminal
from tests.e2e.queries.kit import QueryCluster, query_cluster, until

pytestmark = pytest.mark.timeout(600)

HEADGATE = Path(sys.executable).parent / "headgate"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryCluster]:
    folder = tmp_path_factory.mktemp("select")
    settings = ("--set", "timings.temporary_memory=1s", "--set", "timings.housekeeping_interval=500ms")
    with query_cluster(folder, settings=settings) as made:
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
