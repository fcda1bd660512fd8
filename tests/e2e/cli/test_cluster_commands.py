"""The command line against a real cluster."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.cli.command import HEADGATE, Headgate

SOURCE = "CREATE LOGICAL SOURCE {x} (ts TIMESTAMP NOT NULL, highway INT32, speed FLOAT32)"
PHYSICAL = """CREATE PHYSICAL SOURCE {x}_p FOR {x} TYPE Generator ON a SET(
  10 AS `SOURCE`.RATE, 'now()' AS `SOURCE`.`field.ts`, 'uniform(1, 9)' AS `SOURCE`.`field.highway`,
  'normal(60, 20)' AS `SOURCE`.`field.speed`)"""
SINK = "CREATE SINK {x}_out (highway INT32, speed FLOAT32) TYPE Void"
QUERY = "CREATE QUERY {x}_q AS SELECT highway, speed FROM {x} WHERE speed < 40 INTO {x}_out"
_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Names:
    """Names of a test's own in the shared cluster, and its bundle."""

    x: str

    @property
    def bundle(self) -> str:
        return ";\n".join(text.format(x=self.x) for text in (SOURCE, PHYSICAL, SINK, QUERY)) + ";\n"

    @property
    def drops(self) -> str:
        return f"DROP SINK {self.x}_out; DROP PHYSICAL SOURCE {self.x}_p; DROP LOGICAL SOURCE {self.x}"

    @property
    def query(self) -> str:
        return f"{self.x}_q"


@pytest.fixture
def names(headgate: Headgate) -> Iterator[Names]:
    made = Names(f"t{next(_numbers)}")
    yield made
    headgate("drop", "query", made.query, "--if-exists", "--wait")
    headgate("sql", "-c", made.drops.replace("SINK ", "SINK IF EXISTS ").replace("SOURCE ", "SOURCE IF EXISTS "))


def test_status_tells_agents_slots_and_revision(headgate: Headgate) -> None:
    status = headgate.json("status")
    assert status["agents"] == {"ACTIVE": 3}
    assert status["slots"]["total"] == 24
    assert status["revision"] > 0
    assert "3 ACTIVE" in headgate.ok("status")


def test_a_bundle_is_applied_waited_for_and_seen(headgate: Headgate, names: Names, tmp_path: Path) -> None:
    file = tmp_path / "bundle.sql"
    file.write_text(names.bundle)
    done = headgate("apply", str(file), "--wait", "--timeout", "60s")
    assert done.returncode == 0, done.stderr
    assert f"CREATE QUERY {names.query}" in done.stdout
    assert f"query {names.query}: RUNNING" in done.stderr
    query = headgate.json("get", f"query/{names.query}")
    assert query["state"] == "QUERY_STATE_RUNNING"
    assert names.query in headgate.ok("get", "queries", "-l", "state=RUNNING")
    assert headgate.json("get", "queries", "-l", "state=FAILED") == []
    fragments = headgate.lines("get", "fragments", "-l", f"query={names.query}")
    assert len(fragments) == query["fragment_count"] > 0


def test_a_dry_run_changes_nothing(headgate: Headgate, names: Names) -> None:
    before = headgate.json("status")["revision"]
    done = headgate("apply", "-", "--dry-run", stdin=names.bundle)
    assert done.returncode == 0, done.stderr
    assert "valid; nothing was changed" in done.stderr
    assert headgate("get", f"logical-source/{names.x}").returncode == 1
    assert headgate.json("status")["revision"] == before


def test_a_bundle_with_a_mistake_changes_nothing_and_points_to_the_place(
    headgate: Headgate, names: Names, tmp_path: Path
) -> None:
    file = tmp_path / "bundle.sql"
    file.write_text(names.bundle.replace("SELECT highway, speed", "SELECT highway, speeed AS speed"))
    done = headgate("apply", str(file))
    assert done.returncode == 1
    assert done.stdout == ""
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "speeed" in text)
    column = file.read_text().splitlines()[line - 1].index("speeed") + 1
    assert f"{file}:{line}:{column}: " in done.stderr
    shown = done.stderr.splitlines()
    caret = next(n for n, text in enumerate(shown) if text.strip() == "^")
    assert shown[caret - 1][shown[caret].index("^") :].startswith("speeed")
    assert "did you mean `speed`?" in done.stderr
    assert headgate("get", f"logical-source/{names.x}").returncode == 1


def test_describe_tells_state_fragments_and_story(headgate: Headgate, names: Names) -> None:
    headgate.ok("apply", "-", "--wait", stdin=names.bundle)
    text = headgate.ok("describe", f"query/{names.query}")
    for part in ("State:          RUNNING", "Statement", "Fragments", "Story", "PENDING", "DEPLOYING"):
        assert part in text
    story = headgate.json("describe", "query", names.query)["story"]
    states = [entry["to_state"] for entry in story if entry["fragment"] == 0]
    assert states[:3] == ["PENDING", "DEPLOYING", "RUNNING"]


def test_explain_shows_a_plan_and_creates_nothing(headgate: Headgate, names: Names) -> None:
    headgate.ok("apply", "-", stdin=";".join(t.format(x=names.x) for t in (SOURCE, PHYSICAL, SINK)))
    select = QUERY.format(x=names.x).split(" AS ", 1)[1]
    assert "fragment" in headgate.ok("explain", select).lower()
    assert headgate.json("explain", select)["plan"]["fragments"]
    assert headgate.ok("explain", "-", "--format", "dot", stdin=select).startswith("digraph")
    assert headgate("get", f"query/{names.query}").returncode == 1


def test_explain_takes_a_select_without_into_as_a_command_and_as_a_statement(headgate: Headgate, names: Names) -> None:
    headgate.ok("apply", "-", stdin=";".join(t.format(x=names.x) for t in (SOURCE, PHYSICAL)))
    select = f"SELECT highway, speed FROM {names.x} WHERE speed < 40"
    explained = headgate.ok("explain", select).splitlines()
    assert any("sink result" in line.lower() for line in explained), explained
    as_statement = headgate.ok("sql", "-c", f"EXPLAIN {select}").splitlines()
    assert [line.rstrip() for line in as_statement] == [line.rstrip() for line in explained]


def test_an_empty_list_is_said_to_people_and_empty_for_programs(headgate: Headgate) -> None:
    done = headgate("get", "transfers")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "there are no transfers\n")
    done = headgate("get", "network-links", "-l", "agent=nobody", "-o", "json")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, [], "")


def test_a_select_ends_with_what_to_do_where_queries_only_pretend_to_run(headgate: Headgate, names: Names) -> None:
    headgate.ok("apply", "-", stdin=";".join(t.format(x=names.x) for t in (SOURCE, PHYSICAL)))
    done = headgate("sql", "-c", f"SELECT highway FROM {names.x}")
    assert done.returncode == 1 and done.stdout == ""
    assert "FRAGMENT_REFUSED" in done.stderr and "without --no-engine" in done.stderr
    for query in headgate.json("get", "queries"):
        if query["temporary"]:
            headgate.ok("wait", f"query/{query['name']}", "--for", "DROPPED", "--timeout", "60s")


def test_wait_ends_with_4_when_the_time_runs_out_and_5_when_it_cannot_come(headgate: Headgate, names: Names) -> None:
    headgate.ok("apply", "-", "--wait", stdin=names.bundle)
    assert headgate("wait", f"query/{names.query}", "--for", "STOPPED", "--timeout", "300ms").returncode == 4
    headgate.ok("stop", names.query, "--hard", "--wait")
    done = headgate("wait", f"query/{names.query}", "--for", "RUNNING", "--timeout", "30s")
    assert done.returncode == 5
    assert "is STOPPED, not RUNNING" in done.stderr
    assert headgate("wait", "query/nobody", "--for", "RUNNING").returncode == 1
    headgate.ok("wait", "agent/a", "agent/b", "--for", "ACTIVE", "--timeout", "30s")


def test_a_drop_is_refused_while_something_refers_and_says_what(headgate: Headgate, names: Names) -> None:
    headgate.ok("apply", "-", stdin=names.bundle)
    done = headgate("drop", "sink", f"{names.x}_out")
    assert done.returncode == 1
    assert "SINK_IN_USE" in done.stderr
    assert names.query in done.stderr
    headgate.ok("drop", f"query/{names.query}", "--wait")
    assert "dropped" in headgate.ok("drop", f"sink/{names.x}_out")
    assert headgate("drop", f"sink/{names.x}_out").returncode == 1
    assert "there is no sink" in headgate.ok("drop", f"sink/{names.x}_out", "--if-exists")


def test_statements_run_in_order_until_one_fails(headgate: Headgate, names: Names) -> None:
    text = SOURCE.format(x=names.x) + ";\nSHOW LOGICAL SOURCES;\n  DROP SINK nowhere;\nSHOW AGENTS;"
    done = headgate("sql", stdin=text)
    assert done.returncode == 1
    assert f"CREATE LOGICAL SOURCE {names.x}" in done.stdout
    assert "ADDRESS" not in done.stdout
    assert "SINK_NOT_FOUND" in done.stderr
    headgate.ok("get", f"logical-source/{names.x}")


def test_a_mistake_in_a_file_is_told_with_its_line(headgate: Headgate, tmp_path: Path) -> None:
    file = tmp_path / "x.sql"
    file.write_text("SHOW AGENTS;\n\n   SHOW THINGS;\n")
    done = headgate("sql", "-f", str(file))
    assert done.returncode == 1
    assert f"\n{file}:3:9: " in done.stderr


def test_the_results_of_a_text_are_one_json_value(headgate: Headgate) -> None:
    done = headgate("sql", "-o", "json", "-c", "SHOW AGENTS; SHOW SINKS; DROP SINK nowhere")
    assert [result["verb"] for result in json.loads(done.stdout)] == ["SHOW AGENTS", "SHOW SINKS"]
    assert done.returncode == 1


def test_begin_and_commit_make_a_bundle(headgate: Headgate, names: Names) -> None:
    source = SOURCE.format(x=names.x)
    done = headgate("sql", "-c", f"BEGIN; {source}; DROP SINK nowhere; COMMIT")
    assert done.returncode == 1
    assert headgate("get", f"logical-source/{names.x}").returncode == 1
    headgate.ok("sql", "-c", f"BEGIN; {source}; {SINK.format(x=names.x)}; COMMIT")
    headgate.ok("get", f"sink/{names.x}_out")
    assert headgate("sql", "-c", f"BEGIN; {QUERY.format(x=names.x)}").returncode == 1


def test_watch_shows_what_there_is_then_what_changes(headgate: Headgate, names: Names) -> None:
    watching = subprocess.Popen(
        [HEADGATE, "watch", "agents", "logical-sources", "-o", "jsonl", "--for", "60s"],
        env=headgate.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert watching.stdout is not None
        first = json.loads(watching.stdout.readline())
        assert {r["agent"]["name"] for r in first["snapshot"]["resources"] if "agent" in r} >= {"a", "b", "c"}
        headgate.ok("sql", "-c", SOURCE.format(x=names.x))
        for line in watching.stdout:
            events = json.loads(line).get("events", {}).get("events", [])
            if any(e.get("current", {}).get("logical_source", {}).get("name") == names.x for e in events):
                break
        else:
            raise AssertionError("the change was not seen")
    finally:
        watching.terminate()
        watching.wait(10)


def test_watch_takes_a_statement(headgate: Headgate) -> None:
    text = headgate.ok("watch", "SELECT name, state FROM agents WHERE state = 'ACTIVE'", "--for", "1500ms")
    assert [line.split()[3:5] for line in text.splitlines()] == [["agent", name] for name in ("a", "b", "c")]


def test_an_export_makes_the_same_catalog_again(headgate: Headgate, names: Names, tmp_path: Path) -> None:
    headgate.ok("apply", "-", "--wait", stdin=names.bundle)
    for form in ("sql", "json"):
        file = tmp_path / f"catalog.{form}"
        headgate.ok("export", "--no-agents", "--format", form, "--to", str(file))
        before = headgate.json("get", f"physical-source/{names.x}_p")["options"]
        headgate.ok("drop", f"query/{names.query}", "--wait")
        headgate.ok("sql", "-c", names.drops)
        done = headgate("apply", str(file), "--wait")
        assert done.returncode == 0, done.stderr
        assert headgate.json("get", f"physical-source/{names.x}_p")["options"] == before
