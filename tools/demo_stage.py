"""What demos have in common: a cluster of `headgate dev`, commands that are shown as a reader would type them, a query
that is followed, claims that are checked, and a summary of those that held."""

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headgate_cli.cluster import launcher

HEADGATE = Path(sys.executable).parent / "headgate"
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
class Stage:
    """What the steps of a demo share: where the coordinator is, and which claims have been checked."""

    coordinator: str
    folder: Path
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
def cluster(
    port: int, folder: Path, *options: str, processes: int, environment: Mapping[str, str] | None = None
) -> Iterator[dict[str, int]]:
    """`headgate dev`, and the process id of each of its processes by name."""
    every = [*options, "--data", str(folder / "dev"), "--files", str(folder), "--port-base", str(port)]
    with tempfile.TemporaryFile("w+") as log:
        dev = subprocess.Popen(
            [*launcher(), HEADGATE, "dev", *every, "--kafka-port", "0"],
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            yield first_table(dev, log, processes)
        finally:
            dev.send_signal(signal.SIGINT)
            try:
                dev.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(dev.pid, signal.SIGKILL)
                dev.wait()


def first_table(dev: subprocess.Popen[str], log: Any, processes: int) -> dict[str, int]:
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
            if len(pids) == processes:
                return pids
    finally:
        giving_up.cancel()
    log.seek(0)
    raise DemoFailed(f"`headgate dev` did not come up:\n{log.read()}")


class States(threading.Thread):
    """Follows the query with `headgate watch`, shows its states as they come and keeps them."""

    def __init__(self, coordinator: str, query: str) -> None:
        super().__init__(daemon=True)
        self.query = query
        self.seen: list[str] = []
        self._explained = False
        self.process = subprocess.Popen(
            [HEADGATE, "watch", f"query/{query}", "-o", "jsonl"],
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

    def _note(self, seen: dict[str, Any]) -> None:
        state = seen["state"].removeprefix("QUERY_STATE_")
        reason = (seen.get("waiting") or {}).get("message", "")
        if self.seen[-1:] != [state]:
            self.seen.append(state)
            self._explained = False
            print(f"  watch: query {self.query} is {styled(state, '1;33')}", flush=True)
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


def kill(states: States, victim: str, pid: int) -> int:
    """Kills a process in front of the reader; answers how many states the query had seen before."""
    print(styled(f"$ kill -9 {pid}", "1") + f"   # {victim}", flush=True)
    mark = len(states.seen)
    os.kill(pid, signal.SIGKILL)
    return mark


def summary(began: float, proved: Sequence[str]) -> None:
    title(f"Proved in {time.monotonic() - began:.0f} seconds:")
    for claim in proved:
        print(f"  {styled('ok', '1;32')}  {claim}")


def performed(play: Callable[[], None], *failures: type[Exception]) -> int:
    """The exit code of a demo: 1 where something that it was to show did not happen."""
    try:
        play()
    except Exception as error:
        if not isinstance(error, (DemoFailed, subprocess.TimeoutExpired, *failures)):
            raise
        print(f"\n{styled('The demo failed: ', '1;31')}{error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0
