"""The demo: a cluster from nothing, a windowed query over two generators, rows as they arrive, an agent and the engine
killed in front of the reader, complete results all the same, and what that proved.

Everything it shows is done with the `headgate` command against real processes, and every claim of its summary is
checked against what the coordinator answered; it exits with 1 if one does not hold.
"""

from __future__ import annotations

import json
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from demo_stage import (
    PATIENCE_SECONDS,
    DemoFailed,
    Stage,
    States,
    cluster,
    free_port_base,
    kill,
    performed,
    styled,
    summary,
    title,
)

BUNDLE = Path(__file__).with_name("demo.sql")
QUERY = "traffic"
TYPO = "SELECT gate, speeed FROM cars INTO traffic"
# Of each gate, as demo.sql says.
CARS_IN_A_WINDOW = 500
WINDOW = timedelta(seconds=10)
PROCESSES = 4
SHOWN_AT_ONCE = 8


class Demo(Stage):
    """The query delivers to a file."""

    @property
    def rows(self) -> list[dict[str, Any]]:
        """What the query has delivered so far; a last line that is not whole yet does not count."""
        path = self.folder / "traffic.json"
        text = path.read_text() if path.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def wait_for_rows(self, more_than: int) -> None:
        """Shows rows as they arrive."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.rows) <= more_than:
            if time.monotonic() > deadline:
                raise DemoFailed(f"no row came in {PATIENCE_SECONDS} s")
            time.sleep(0.2)

    def show_rows(self, since: int, seconds: float) -> int:
        """Shows what arrives in some seconds; answers how many rows there are then."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            rows = self.rows
            for row in rows[since:][:SHOWN_AT_ONCE]:
                facts = f"{row['gate']:6} {row['cars']:4} cars  {row['mean']:5.1f} mph"
                print(f"  {row['start'][11:19]}  {facts}", flush=True)
            if len(rows) - since > SHOWN_AT_ONCE:
                print(f"  ... and {len(rows) - since - SHOWN_AT_ONCE} more", flush=True)
            since = len(rows)
            time.sleep(0.2)
        return since


def show_bundle(demo: Demo) -> None:
    title("2. A bundle: two sources, a sink and a windowed query, all of it or none")
    bundle = demo.folder / "demo.sql"
    bundle.write_text(BUNDLE.read_text().replace("{folder}", str(demo.folder)))
    before = demo.read("status")
    told = demo.run("apply", str(bundle))
    after = demo.read("status")
    kinds = ("logical_sources", "physical_sources", "sinks")
    made = sum(after[kind] - before[kind] for kind in kinds) + sum(after["queries"].values())
    revisions = {made["revision"] for kind in kinds for made in demo.read("get", kind)}
    demo.claim(
        made == 5 and [f"revision {number}" in told for number in revisions] == [True],
        "one command applied five resources in one transaction",
    )
    shown = demo.run("sql", "-c", TYPO, expect=1)
    names = [query["name"] for query in demo.read("get", "queries")]
    demo.claim("^" in shown and names == [QUERY], "a misspelt query was refused with a caret, not stored")


def show_plan(demo: Demo) -> None:
    title("3. How it is planned: what is pushed where, which fragment goes to which agent, its Spark SQL")
    statement = BUNDLE.read_text().split(" AS\n", 1)[1].rstrip().rstrip(";")
    print(styled('$ headgate explain "SELECT start, gate, COUNT(*) AS cars, ..."', "1"))
    text = demo.run("explain", statement, show=False)
    print("".join(f"  {line}\n" for line in text.splitlines()), end="", flush=True)


def show_rows(demo: Demo, states: States) -> int:
    title("4. It runs on Spark, and rows arrive (the first when Spark has warmed up)")
    states.wait_for(lambda seen: "RUNNING" in seen, "was RUNNING")
    demo.wait_for_rows(0)
    shown = demo.show_rows(0, 6)
    demo.run("get", "fragments")
    demo.claim(shown > 0, "the query reached RUNNING, and windows came out while their sources were still read")
    return shown


def show_crash(demo: Demo, states: States, victim: str, pid: int, shown: int) -> int:
    mark = kill(states, victim, pid)
    states.wait_for(lambda seen: "DEPLOYING" in seen[mark:], "went back to DEPLOYING")
    states.wait_for(lambda seen: seen[mark:][-1:] != ["DEPLOYING"], "went on")
    demo.wait_for_rows(shown)
    shown = demo.show_rows(shown, 4)
    demo.claim(
        states.seen[mark:][:1] == ["DEPLOYING"],
        f"after a kill it went back to DEPLOYING, on again by itself, and rows arrived again: {victim}",
    )
    return shown


def show_results(demo: Demo, states: States, shown: int) -> None:
    title("6. A soft stop: the sources end, everything in flight and every open window comes out")
    demo.run("sql", "-c", f"STOP QUERY {QUERY} WITHIN 5 MIN")
    states.wait_for(lambda seen: seen[-1:] == ["STOPPED"], "was STOPPED")
    demo.show_rows(shown, 1)
    rows = demo.rows
    keys = {(row["start"], row["gate"]) for row in rows}
    demo.claim(len(keys) == len(rows), f"no result was delivered twice: {len(rows)} of them")
    cars = sum(complete(rows, gate) for gate in ("north", "south"))
    demo.claim(cars > 0, f"every window is complete, each car counted once, through both kills: {cars:,}")


def complete(rows: list[dict[str, Any]], gate: str) -> int:
    """How many cars of a gate were counted, if every window but the last has all that passed in it; 0 if not."""
    windows = sorted((datetime.fromisoformat(row["start"]), row["cars"]) for row in rows if row["gate"] == gate)
    first = datetime(2026, 1, 1, tzinfo=UTC)
    whole = [(first + number * WINDOW, CARS_IN_A_WINDOW) for number in range(len(windows) - 1)]
    return sum(cars for _, cars in windows) if windows and windows[:-1] == whole else 0


def show_story_and_drop(demo: Demo, states: States) -> None:
    title("7. Its story")
    demo.run("describe", f"query/{QUERY}")
    title("8. Drop")
    demo.run("drop", "query", QUERY, "--wait")
    demo.run("status")
    status = demo.read("status")
    demo.claim(status["slots"]["used"] == 0, "dropping it freed its name and gave back every slot, exactly once")
    states.close()


def play() -> None:
    began = time.monotonic()
    title("1. A cluster from nothing: a coordinator on SQLite, two agents, an engine on Spark, each its own process")
    port = free_port_base()
    print(styled(f"$ headgate dev --agents 2 --port-base {port}", "1"), flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="headgate-demo-", ignore_cleanup_errors=True) as made,
        cluster(port, folder := Path(made).resolve(), "--agents", "2", processes=PROCESSES) as pids,
    ):
        demo = Demo(f"127.0.0.1:{port}", folder)
        demo.claim(len(pids) == PROCESSES, "four processes came up with one command, nothing else installed")
        states = States(demo.coordinator, QUERY)
        show_bundle(demo)
        show_plan(demo)
        shown = show_rows(demo, states)
        title("5. An agent and then the engine are killed, in front of you")
        shown = show_crash(demo, states, "agent a", pids["agent a"], shown)
        shown = show_crash(demo, states, "the engine", pids["engine 1"], shown)
        show_results(demo, states, shown)
        show_story_and_drop(demo, states)
    summary(began, demo.proved)


if __name__ == "__main__":
    raise SystemExit(performed(play))
