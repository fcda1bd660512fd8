"""Checkpoints that nobody was told to remove: found, asked about, removed when it is certain that nobody needs them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headgate.cluster import v1 as cluster
from headgate_agent.coordinators import Coordinators
from headgate_agent.fragments.checkpoints import Checkpoints
from headgate_agent.fragments.leftovers import Find, Leftovers, in_folder, in_objects
from headgate_agent.log.objects import StoredObject
from headgate_common.dispatch import Method
from headgate_common.errors import UNREACHABLE, HeadgateError


class Hands:
    """A clock that is moved by hand."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return datetime.now(UTC)


class Inline:
    async def run(self, job: Any) -> Any:
        return job()


class Catalog:
    """Answers FindFragments as a coordinator would that has these."""

    def __init__(self, *alive: str) -> None:
        self.alive = set(alive)
        self.asked: list[int] = []
        self.broken = False

    async def call(self, address: str, method: Method, request: Any, *, timeout: float) -> Any:
        if self.broken:
            raise HeadgateError(UNREACHABLE, "no")
        self.asked.append(len(request.uids))
        return cluster.FindFragmentsResponse(uids=[uid for uid in request.uids if uid in self.alive])


def leftovers(find: Find, folder: Path, catalog: Any, clock: Hands, grace: float = 60.0) -> Leftovers:
    engines: Any = None
    return Leftovers(
        find,
        Checkpoints(str(folder), engines, Inline()),
        Coordinators(catalog, ["c:1"], timeout=1.0),
        clock=clock,
        source=random.Random(1),
        interval=60.0,
        grace=grace,
    )


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name / "offsets").mkdir(parents=True)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_checkpoint_goes_when_its_fragment_has_been_over_for_the_grace_time_and_never_else(
    tmp_path: Path,
) -> None:
    make(tmp_path, "fragment-aa", "fragment-bb", "fragment-bb.control", "something else")
    catalog, clock = Catalog("fragment-aa", "fragment-bb"), Hands()
    looking = leftovers(in_folder(tmp_path, Inline()), tmp_path, catalog, clock)
    clock.now = 1000.0
    assert await looking.look() == 0
    catalog.alive.discard("fragment-bb")
    assert await looking.look() == 0, "it is over from now on"
    clock.now += 59.0
    assert await looking.look() == 0
    clock.now += 1.0
    assert await looking.look() == 1
    assert names(tmp_path) == ["fragment-aa", "something else"]
    clock.now += 1000.0
    assert await looking.look() == 0


async def test_one_that_is_said_to_run_again_gets_the_whole_time_again(tmp_path: Path) -> None:
    make(tmp_path, "fragment-aa")
    catalog, clock = Catalog(), Hands()
    looking = leftovers(in_folder(tmp_path, Inline()), tmp_path, catalog, clock)
    await looking.look()
    clock.now = 30.0
    catalog.alive.add("fragment-aa")
    await looking.look()
    catalog.alive.clear()
    clock.now = 70.0
    assert await looking.look() == 0
    assert (tmp_path / "fragment-aa").is_dir()


async def test_nothing_goes_while_nobody_answers_and_no_folder_is_no_trouble(tmp_path: Path) -> None:
    catalog, clock = Catalog(), Hands()
    looking = leftovers(in_folder(tmp_path / "none", Inline()), tmp_path, catalog, clock, grace=0.0)
    assert await looking.look() == 0
    make(tmp_path, "fragment-aa")
    looking = leftovers(in_folder(tmp_path, Inline()), tmp_path, catalog, clock, grace=0.0)
    catalog.broken = True
    with pytest.raises(HeadgateError):
        await looking.look()
    assert (tmp_path / "fragment-aa").is_dir()


async def test_many_are_asked_about_in_parts(tmp_path: Path) -> None:
    make(tmp_path, *(f"fragment-{number:04}" for number in range(1500)))
    catalog = Catalog()
    looking = leftovers(in_folder(tmp_path, Inline()), tmp_path, catalog, Hands(), grace=0.0)
    assert await looking.look() == 1500
    assert catalog.asked == [1000, 500]


async def test_in_an_object_store_they_are_found_by_the_first_part_of_their_keys() -> None:
    class Keys:
        async def find(self, prefix: str) -> AsyncIterator[StoredObject]:
            assert prefix == "checkpoints/"
            for key in ("fragment-a/offsets/0", "fragment-a/commits/0", "fragment-b.control/metadata"):
                yield StoredObject(prefix + key, 1, datetime.now(UTC))

    store: Any = Keys()
    assert [uid async for uid in in_objects(store, "checkpoints")()] == ["fragment-a", "fragment-b"]
