"""Sums of what a query did not count, over its runs."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from pyspark.sql import SparkSession

from headgate_engine.fragments import losses
from headgate_engine.fragments.losses import Losses, Lost


class Folder:
    """A folder of this machine in the place of Hadoop's."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.full = False
        self.writes = 0

    def write(self, session: SparkSession, uri: str, text: str) -> None:
        self.writes += 1
        if self.full:
            raise OSError("no space left")
        Path(uri).parent.mkdir(exist_ok=True)
        if not Path(uri).exists():
            Path(uri).write_text(text)

    def losses(self) -> Losses:
        return Losses(cast(SparkSession, None), str(self.path), interval=1.0)

    @property
    def names(self) -> list[str]:
        return sorted(one.name for one in self.path.iterdir())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    made = Folder(tmp_path / "control")
    monkeypatch.setattr(losses, "write_text", made.write)
    monkeypatch.setattr(losses, "read_text", lambda session, uri: Path(uri).read_text())
    monkeypatch.setattr(losses, "remove_file", lambda session, uri: Path(uri).unlink(missing_ok=True))
    monkeypatch.setattr(
        losses, "file_names", lambda session, uri: [one.name for one in Path(uri).glob("*")] if uri else []
    )
    return made


def test_the_next_run_finds_the_sums_of_the_last_batch_and_one_file_is_left(folder: Folder) -> None:
    first = folder.losses()
    assert first.load() == Lost()
    first.keep(Lost(9, 1, 0), now=10.0)
    first.keep(Lost(10, 4, 2), now=12.0)
    (folder.path / "first-0.json").write_text("another's")
    assert folder.losses().load() == Lost(10, 4, 2)
    assert folder.names == ["first-0.json", "losses-10.json"]


def test_a_file_that_a_crash_left_behind_is_older_than_the_one_that_counts_and_goes(folder: Folder) -> None:
    first = folder.losses()
    first.keep(Lost(9, 1, 0), now=10.0)
    (folder.path / "losses-10.json").write_text('{"batch_id": 10, "rows_late": 2, "bad_records": 0}')
    second = folder.losses()
    assert second.load() == Lost(10, 2, 0)
    second.keep(Lost(11, 3, 0), now=20.0)
    assert folder.names == ["losses-11.json"]


def test_sums_are_written_when_they_grow_not_too_often_and_at_the_end(folder: Folder) -> None:
    one = folder.losses()
    one.keep(Lost(3, 0, 0), now=10.0)
    one.keep(Lost(4, 1, 0), now=10.0)
    one.keep(Lost(5, 2, 0), now=10.5)
    assert folder.names == ["losses-4.json"]
    one.keep(Lost(6, 2, 0), now=10.6, last=True)
    one.keep(Lost(7, 2, 0), now=20.0, last=True)
    assert folder.names == ["losses-6.json"] and folder.writes == 2


def test_a_store_that_takes_nothing_ends_no_run_and_is_tried_again(folder: Folder) -> None:
    one = folder.losses()
    folder.full = True
    one.keep(Lost(4, 1, 0), now=10.0)
    folder.full = False
    one.keep(Lost(4, 1, 0), now=12.0)
    assert folder.losses().load() == Lost(4, 1, 0)
