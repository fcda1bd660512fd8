"""The demo: a cluster from nothing, a bundle, a plan, a crash in front of the reader, recovery, and what it proved.

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
from pathlib import Path
from typing import Any

from headgate_cli.cluster import launcher

HEADGATE = Path(sys.executable).parent / "headgate"
BUNDLE = Path(__file__).with_name("demo.sql")
QUERY = "slow"
TYPO = "SELECT speeed FROM cars INTO slow_highways"
START_SECONDS = 60
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
    proved: list[str] = field(default_factory=list)

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
def cluster(port: int) -> Iterator[dict[str, int]]:
    """`headgate dev`, and the process id of each of its processes by name."""
    with tempfile.TemporaryFile("w+") as log:
        dev = subprocess.Popen(
            [*launcher(), HEADGATE, "dev", "--agents", "3", "--ephemeral", "--port-base", str(port)],
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
            if len(pids) == 4:
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
        deadline = time.monotonic() + 60
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
    before = demo.read("status")
    told = demo.run("apply", str(BUNDLE.relative_to(Path.cwd())) if BUNDLE.is_relative_to(Path.cwd()) else str(BUNDLE))
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
    title("3. How such a query is planned: what is pushed where, which fragment goes to which agent, its Spark SQL")
    statement = BUNDLE.read_text().split(" AS\n", 1)[1].rstrip().rstrip(";")
    print(styled('$ headgate explain "SELECT start, end, highway, AVG(speed) ..."', "1"))
    text = demo.run("explain", statement, show=False)
    print("".join(f"  {line}\n" for line in text.splitlines()), end="", flush=True)


def show_crash(demo: Demo, states: States, pids: dict[str, int]) -> None:
    title("4. It runs")
    states.wait_for(lambda seen: "RUNNING" in seen, "was RUNNING")
    demo.run("get", "fragments")
    fragments = demo.read("get", "fragments", "-l", f"query={QUERY}")
    demo.claim(
        all(fragment["state"] == "FRAGMENT_STATE_RUNNING" for fragment in fragments),
        f"the query reached RUNNING: {len(fragments)} fragments confirmed by their agents",
    )
    title("5. An agent is killed, in front of you")
    print(styled(f"$ kill -9 {pids['agent a']}", "1") + "   # agent a", flush=True)
    mark = len(states.seen)
    os.kill(pids["agent a"], signal.SIGKILL)
    states.wait_for(lambda seen: "DEPLOYING" in seen[mark:], "went back to DEPLOYING")
    states.wait_for(lambda seen: seen[mark:][-1:] == ["RUNNING"], "was RUNNING again")
    demo.run("get", "agents")
    demo.claim(
        states.seen[mark:] == ["DEPLOYING", "RUNNING"],
        "after the kill it went RUNNING -> DEPLOYING -> RUNNING, by itself, and the watch saw every step",
    )


def show_story_and_drop(demo: Demo, states: States) -> None:
    title("6. Its story")
    demo.run("describe", f"query/{QUERY}")
    title("7. Drop")
    demo.run("drop", "query", QUERY, "--wait")
    demo.run("status")
    status = demo.read("status")
    demo.claim(status["slots"]["used"] == 0, "dropping it freed its name and gave back every slot, exactly once")
    states.close()


def main() -> int:
    began = time.monotonic()
    title("1. A cluster from nothing: a coordinator on SQLite, three agents, each its own process")
    port = free_port_base()
    print(styled(f"$ headgate dev --agents 3 --ephemeral --port-base {port}", "1"), flush=True)
    try:
        with cluster(port) as pids:
            demo = Demo(f"127.0.0.1:{port}")
            demo.claim(len(pids) == 4, "four processes came up with one command, nothing else installed")
            states = States(demo.coordinator)
            show_bundle(demo)
            show_plan(demo)
            show_crash(demo, states, pids)
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
