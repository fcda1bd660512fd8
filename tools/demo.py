"""The demo: a cluster from nothing, a windowed query over two generators, rows as they arrive, an agent and the engine
killed in front of the reader, complete results all the same, and what that proved.

Everything it shows is done with the `headgate` command against real processes, and every claim of its summary is
checked against what the coordinator answered; it exits with 1 if one does not hold.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from headgate_cli.cluster import launcher

HEADGATE = Path(sys.executable).parent / "headgate"
BUNDLE = Path(__file__).with_name("demo.sql")
QUERY = "traffic"
TYPO = "SELECT gate, speeed FROM cars INTO traffic"
# Of each gate, as demo.sql says.
CARS_IN_A_WINDOW = 500
WINDOW = timedelta(seconds=10)
PROCESSES = 4
SHOWN_AT_ONCE = 8
START_SECONDS = 60
PATIENCE_SECONDS = 240
COLOUR = sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def styled(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m" if COLOUR else text


def title(text: str) -> None:
    print(f"\n{styled(text, '1;36')}", flush=True)


class DemoFailed(Exception):
    """Something that the demo was to show did not happen."""


@dataclass(slots=True)
class Demo:
    """What the steps share: where the coordinator is, and which claims have been checked."""

    coordinator: str
    folder: Path
    proved: list[str] = field(default_factory=list)

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

    def claim(self, holds: bool, text: str) -> None:
        if not holds:
            raise DemoFailed(f"this does not hold: {text}")
        self.proved.append(text)

    def run(self, *arguments: str, expect: int = 0, show: bool = True) -> str:
        """Runs `headgate` as a reader would, and shows command and output."""
        if show:
            print(styled(f"$ headgate {' '.join(quoted(a) for a in arguments)}", "1"), flush=True)
        done = subprocess.run(
            [HEADGATE, *arguments],
            env={**os.environ, "HEADGATE_COORDINATOR": self.coordinator},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if show else subprocess.PIPE,
            text=True,
            timeout=120,
            check=False,
        )
        if show:
            print("".join(f"  {line}\n" for line in done.stdout.splitlines()), end="", flush=True)
        if done.returncode != expect:
            raise DemoFailed(f"`headgate {' '.join(arguments)}` ended with {done.returncode}\n{done.stdout}")
        return done.stdout

    def read(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json", show=False))


def quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word


@contextmanager
def cluster(port: int, folder: Path) -> Iterator[dict[str, int]]:
    """`headgate dev`, and the process id of each of its processes by name."""
    options = ["--agents", "2", "--data", str(folder / "dev"), "--files", str(folder), "--port-base", str(port)]
    with tempfile.TemporaryFile("w+") as log:
        dev = subprocess.Popen(
            [*launcher(), HEADGATE, "dev", *options, "--kafka-port", "0"],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            yield first_table(dev, log)
        finally:
            dev.send_signal(signal.SIGINT)
            try:
                dev.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(dev.pid, signal.SIGKILL)
                dev.wait()


def first_table(dev: subprocess.Popen[str], log: Any) -> dict[str, int]:
    """Waits for the table that `dev` prints once all is up, shows it and reads the process ids from it."""
    assert dev.stdout is not None
    giving_up = threading.Timer(START_SECONDS, dev.kill)
    giving_up.start()
    pids: dict[str, int] = {}
    try:
        for line in dev.stdout:
            print(f"  {line}", end="", flush=True)
            columns = line.split("   ")
            words = [column.strip() for column in columns if column.strip()]
            if len(words) > 3 and words[3].isdecimal():
                pids[words[0]] = int(words[3])
            if len(pids) == PROCESSES:
                return pids
    finally:
        giving_up.cancel()
    log.seek(0)
    raise DemoFailed(f"`headgate dev` did not come up:\n{log.read()}")


class States(threading.Thread):
    """Follows the query with `headgate watch`, shows its states as they come and keeps them."""

    def __init__(self, coordinator: str) -> None:
        super().__init__(daemon=True)
        self.seen: list[str] = []
        self._explained = False
        self.process = subprocess.Popen(
            [HEADGATE, "watch", f"query/{QUERY}", "-o", "jsonl"],
            env={**os.environ, "HEADGATE_COORDINATOR": coordinator},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.start()

    def run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            found = message.get("snapshot", {}).get("resources", [])
            found += [event["current"] for event in message.get("events", {}).get("events", []) if event.get("current")]
            for resource in found:
                self._note(resource["query"])

    def _note(self, query: dict[str, Any]) -> None:
        state = query["state"].removeprefix("QUERY_STATE_")
        reason = (query.get("waiting") or {}).get("message", "")
        if self.seen[-1:] != [state]:
            self.seen.append(state)
            self._explained = False
            print(f"  watch: query {QUERY} is {styled(state, '1;33')}", flush=True)
        if reason and not self._explained:
            # It is told again with every change; once is enough for the reader.
            self._explained = True
            print(f"  watch: it waits because {reason}", flush=True)

    def wait_for(self, condition: Callable[[list[str]], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition(self.seen):
            if time.monotonic() > deadline:
                raise DemoFailed(f"the query never {what}; it was {' -> '.join(self.seen)}")
            time.sleep(0.05)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def free_port_base() -> int:
    """A base from which the ports of a small cluster are free, as far as one can tell."""
    for _ in range(200):
        base = random.randrange(10_000, 32_000)
        try:
            for offset in (0, 1, *range(10, 16)):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", base + offset))
        except OSError:
            continue
        return base
    raise DemoFailed("no free ports")


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
    print(styled(f"$ kill -9 {pid}", "1") + f"   # {victim}", flush=True)
    mark = len(states.seen)
    os.kill(pid, signal.SIGKILL)
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


def main() -> int:
    began = time.monotonic()
    title("1. A cluster from nothing: a coordinator on SQLite, two agents, an engine on Spark, each its own process")
    port = free_port_base()
    print(styled(f"$ headgate dev --agents 2 --port-base {port}", "1"), flush=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="headgate-demo-", ignore_cleanup_errors=True) as made,
            cluster(port, folder := Path(made).resolve()) as pids,
        ):
            demo = Demo(f"127.0.0.1:{port}", folder)
            demo.claim(len(pids) == PROCESSES, "four processes came up with one command, nothing else installed")
            states = States(demo.coordinator)
            show_bundle(demo)
            show_plan(demo)
            shown = show_rows(demo, states)
            title("5. An agent and then the engine are killed, in front of you")
            shown = show_crash(demo, states, "agent a", pids["agent a"], shown)
            shown = show_crash(demo, states, "the engine", pids["engine 1"], shown)
            show_results(demo, states, shown)
            show_story_and_drop(demo, states)
    except (DemoFailed, subprocess.TimeoutExpired) as error:
        print(f"\n{styled('The demo failed: ', '1;31')}{error}", file=sys.stderr)
        return 1
    title(f"Proved in {time.monotonic() - began:.0f} seconds:")
    for claim in demo.proved:
        print(f"  {styled('ok', '1;32')}  {claim}")
    return 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None
