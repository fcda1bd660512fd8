"""Spark's Kafka jars are fetched once where they can be; where not it is said, and nobody waits for ever."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from headgate_cli import kafka_jars
from headgate_cli.kafka_jars import KafkaJars

# Stands in for `headgate-engine`, which would ask the network: the jars are there once it has fetched them.
ENGINE = """#!{python}
import pathlib, sys, time
there, calls = pathlib.Path("{folder}/there"), pathlib.Path("{folder}/calls")
with calls.open("a") as told:
    told.write(" ".join(sys.argv[1:]) + "\\n")
if "--check" in sys.argv:
    sys.exit(0 if there.exists() else 1)
if "{how}" == "slow":
    time.sleep(600)
if "{how}" == "refused":
    sys.exit(1)
there.touch()
"""
CHECK, FETCH = "--fetch-jars kafka --check", "--fetch-jars kafka"


class Fake:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.jars = KafkaJars(folder / "logs" / "jars.log", self.said.append)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Fake]:
    def make(how: str = "", *, maven: bool = True, there: bool = False) -> Fake:
        script = tmp_path / "headgate-engine"
        script.write_text(ENGINE.format(python=sys.executable, folder=tmp_path, how=how))
        script.chmod(0o755)
        monkeypatch.setattr(kafka_jars, "find_script", lambda name: str(script))
        monkeypatch.setattr(kafka_jars.shutil, "which", lambda name: f"/bin/{name}" if maven else None)
        if there:
            (tmp_path / "there").touch()
        return Fake(tmp_path)

    return make


async def test_jars_that_are_there_are_not_spoken_of(engine: Callable[..., Fake]) -> None:
    fake = engine(there=True)
    assert not await fake.jars.to_fetch()
    assert (fake.calls, fake.said) == ([CHECK], [])


async def test_without_maven_a_line_says_how_to_have_them(engine: Callable[..., Fake]) -> None:
    fake = engine(maven=False)
    assert not await fake.jars.to_fetch()
    assert len(fake.said) == 1 and kafka_jars.COMMAND in fake.said[0]
    assert fake.calls == [CHECK]


async def test_with_maven_they_are_fetched_once(engine: Callable[..., Fake]) -> None:
    fake = engine()
    assert await fake.jars.to_fetch()
    await fake.jars.fetch()
    assert fake.said[-1] == "Spark's Kafka jars are there"
    assert not await fake.jars.to_fetch()
    assert fake.calls == [CHECK, FETCH, CHECK]


async def test_what_cannot_be_had_is_one_line_with_what_to_do(engine: Callable[..., Fake]) -> None:
    fake = engine("refused")
    await fake.jars.fetch()
    assert "could not be fetched" in fake.said[-1] and kafka_jars.COMMAND in fake.said[-1]


async def test_a_fetch_that_hangs_is_ended(engine: Callable[..., Fake]) -> None:
    fake = engine("slow")
    jars = KafkaJars(fake.folder / "jars.log", fake.said.append, fetch_seconds=2)
    async with asyncio.timeout(60):
        await jars.fetch()
    assert "not within 2 s" in fake.said[-1]
