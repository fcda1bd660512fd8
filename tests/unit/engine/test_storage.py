"""Files beside checkpoints, on a file system that is only pretended."""

from __future__ import annotations

from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from headgate_common.errors import HeadgateError
from headgate_engine.fragments import storage
from headgate_engine.fragments.storage import write_text

SESSION = cast(SparkSession, None)


class Stream:
    def __init__(self, files: dict[str, str], name: str) -> None:
        self._files, self._name = files, name

    def write(self, data: bytearray) -> None:
        self._files[self._name] += data.decode()

    def close(self) -> None:
        pass


class Files:
    """Renames as HDFS does: never over a file, and only says so."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}
        self.made: list[str] = []
        self.renames = True
        # What another run does between the writing of the file and its renaming.
        self.meanwhile: dict[str, str] = {}

    def exists(self, path: str) -> bool:
        return path in self.files

    def create(self, path: str, overwrite: bool) -> Stream:
        assert path not in self.files and not overwrite
        self.made.append(path)
        self.files[path] = ""
        return Stream(self.files, path)

    def rename(self, source: str, target: str) -> bool:
        self.files.update(self.meanwhile)
        if not self.renames or target in self.files:
            return False
        self.files[target] = self.files.pop(source)
        return True

    def delete(self, path: str, recursive: bool) -> bool:
        return self.files.pop(path, None) is not None


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    made = Files()

    def at(session: Any, uri: str) -> tuple[Files, str]:
        return made, uri

    monkeypatch.setattr(storage, "at", at)
    return made


def test_a_file_is_written_under_a_name_of_its_own_and_appears_whole(files: Files) -> None:
    write_text(SESSION, "/c/first.json", "one")
    del files.files["/c/first.json"]
    write_text(SESSION, "/c/first.json", "two")
    assert files.files == {"/c/first.json": "two"}
    assert len(set(files.made)) == 2, "two runs would write into one file"
    assert all(name.rpartition("/")[2].startswith(".") for name in files.made), "Spark would read what is not whole"


def test_the_file_of_another_run_that_was_first_stays(files: Files) -> None:
    files.meanwhile = {"/c/first.json": "theirs"}
    write_text(SESSION, "/c/first.json", "mine")
    assert files.files == {"/c/first.json": "theirs"}


def test_a_file_that_cannot_be_renamed_is_an_error_and_leaves_nothing(files: Files) -> None:
    files.renames = False
    with pytest.raises(HeadgateError, match="CHECKPOINT_INVALID"):
        write_text(SESSION, "/c/first.json", "mine")
    assert files.files == {}
