"""Spark's Kafka jars for a cluster on this machine: fetched once, by Maven where it is there, before Spark starts.

The engine's own command finds and fetches them. An engine takes them when it starts; without them it does everything
but Kafka topics and realtime queries.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from headgate_cli.cluster import find_script, launcher

COMMAND = "headgate-engine --fetch-jars kafka"
_CHECK_SECONDS = 30.0
# After so long Spark starts without them: queries wait for it meanwhile, and not for ever.
_FETCH_SECONDS = 90.0
_MISSING = 1
_WITHOUT = f"Kafka topics and realtime queries need them, all else works; `{COMMAND}` fetches them"


class KafkaJars:
    """`log` takes what the command says; `say` tells a person."""

    def __init__(self, log: Path, say: Callable[[str], None], fetch_seconds: float = _FETCH_SECONDS) -> None:
        self._log = log
        self._say = say
        self._fetch_seconds = fetch_seconds

    async def to_fetch(self) -> bool:
        """Whether they are missing and can be fetched; says so where they are and cannot."""
        if await self._run(_CHECK_SECONDS, "--check") != _MISSING:
            return False
        if shutil.which("mvn") is None:
            self._say(f"Spark's Kafka jars are not there, nor is Maven, which would bring them. {_WITHOUT}")
            return False
        return True

    async def fetch(self) -> None:
        """Fetches them, for so long and no longer, and says how it went."""
        self._say("Maven fetches Spark's Kafka jars, once on this machine; Spark starts after it")
        code = await self._run(self._fetch_seconds)
        if code == 0:
            self._say("Spark's Kafka jars are there")
            return
        why = f"not within {self._fetch_seconds:g} s" if code is None else f"{self._log} says why"
        self._say(f"Spark's Kafka jars could not be fetched ({why}). {_WITHOUT}")

    async def _run(self, seconds: float, *arguments: str) -> int | None:
        """The exit code of the command; None where it took too long and was ended."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *launcher(),
                find_script("headgate-engine"),
                *("--fetch-jars", "kafka", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            return await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            return None
        finally:
            if process.returncode is None:
                # With Maven, which it has started.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
