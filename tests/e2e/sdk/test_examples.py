"""Generated clients in Go and TypeScript do what their examples promise, against real servers."""

from __future__ import annotations

import re
import subprocess

import pytest

from tests.e2e.life.kit import Cluster
from tests.e2e.sdk.conftest import Behind
from tests.e2e.sdk.example import PATIENCE, Example

# The first use of a client may have to generate and compile it. All in one process, so that it starts one cluster.
pytestmark = pytest.mark.timeout(900)

OWN_TESTS = {
    "go": [("go", "vet", "./..."), ("go", "test", "./...")],
    "typescript": [("npm", "test", "--silent")],
}
REVISION = re.compile(r"^revision (\d+): ([A-Z]+)")
RESUMED = re.compile(r"^watching again after revision (\d+): UNREACHABLE$")


def states(lines: list[str]) -> list[str]:
    return [found.group(2) for line in lines if (found := REVISION.match(line))]


def test_the_tests_of_the_client_itself_pass(example: Example) -> None:
    for command in OWN_TESTS[example.language]:
        done = subprocess.run(
            command, cwd=example.folder, capture_output=True, text=True, timeout=PATIENCE * 2, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_submits_a_query_and_watches_it_to_running(example: Example, behind: Behind) -> None:
    name = f"plain_{example.language}"
    done = example("--name", name, behind.address)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("declared: 3 resources at revision ")
    assert re.match(rf"created: query {name} at revision \d+, PENDING", lines[1])
    assert states(lines) == ["DEPLOYING", "RUNNING"]
    assert "story: query is PENDING: created" in lines
    assert any(line.startswith("story: query is RUNNING: ") for line in lines)
    assert any(line.startswith("story: fragment 1 is RUNNING: ") for line in lines)
    assert lines[-1].startswith("dropped: the name is free since revision ")
    assert not {one for one in behind.names() if one.startswith(name)}, "something was left behind"


def test_a_mistake_in_the_statement_comes_with_its_reason_and_place(example: Example, behind: Behind) -> None:
    name = f"wrong_{example.language}"
    done = example("--name", name, "--statement", f"SELECT sensr FROM {name}_readings", behind.address)
    assert done.returncode == 3, done.stdout + done.stderr
    told, statement, caret, suggestion = done.stderr.splitlines()
    assert told.startswith("BIND_ERROR (InvalidArgument): line 1, column 8: unknown column `sensr`")
    assert statement == f"SELECT sensr FROM {name}_readings"
    assert caret == "       ^"
    assert "`sensor`" in suggestion
    assert not {one for one in behind.names() if one.startswith(name)}, "something was left behind"


def test_a_refusal_without_a_place_has_its_reason_too(example: Example, behind: Behind) -> None:
    done = example("--name", f"ghost_{example.language}", "--agent", "ghost", behind.address)
    assert done.returncode == 1
    assert done.stderr.startswith("AGENT_NOT_FOUND (NotFound): ")


def test_a_coordinator_that_cannot_be_reached_is_told_apart(example: Example) -> None:
    seconds = "1s" if example.language == "go" else "1"
    done = example("--timeout", seconds, "127.0.0.1:1")
    assert done.returncode == 1
    assert done.stderr.startswith("UNREACHABLE (Unavailable): ")


def test_a_watch_goes_on_where_its_connection_was_cut(example: Example, behind: Behind) -> None:
    behind.cut_agent()
    try:
        with example.running("--name", f"cut_{example.language}", behind.address) as running:
            line = running.wait_for(": DEPLOYING")
            behind.client_link.cut()
            behind.client_link.heal()
            resumed = running.wait_for("watching again after revision")
            behind.agent_link.heal()
            assert running.exit_code() == 0, "\n".join(running.lines)
            running.reader.join(10)
    finally:
        behind.agent_link.heal()
    before, after = REVISION.match(line), RESUMED.match(resumed)
    assert before is not None
    assert after is not None, resumed
    assert int(after.group(1)) >= int(before.group(1)), "it did not resume from what it had seen"
    found = [int(one.group(1)) for line in running.lines if (one := REVISION.match(line))]
    assert found == sorted(set(found)), "a change came twice or out of order"
    assert states(running.lines)[-1] == "RUNNING"
    assert running.lines[-1].startswith("dropped: ")


def test_a_client_that_knows_only_a_standby_finds_the_leader(example: Example, pair: Cluster) -> None:
    for number, one in enumerate(pair.coordinators):
        done = example("--name", f"pair_{example.language}_{number}", one.address)
        assert done.returncode == 0, done.stdout + done.stderr
        assert states(done.stdout.splitlines())[-1] == "RUNNING"
