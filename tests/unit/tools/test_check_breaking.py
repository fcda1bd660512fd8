"""The breaking-change check compares with the right commit, in full and in shallow clones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import check_breaking
import pytest

BUF_CONFIG = "version: v2\nmodules:\n  - path: protos\nbreaking:\n  use:\n    - FILE\n"
PROTO = 'syntax = "proto3";\npackage headgate.x.v1;\nmessage M {\n  string a = 1;\n%s}\n'


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(check_breaking, "ROOT", tmp_path)
    monkeypatch.setattr(check_breaking, "INPUTS", ("buf.yaml", "protos/headgate"))
    git(tmp_path, "init", "-q")
    return tmp_path


def git(folder: Path, *arguments: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


def write(root: Path, fields: str) -> None:
    folder = root / "protos" / "headgate" / "x" / "v1"
    folder.mkdir(parents=True, exist_ok=True)
    (root / "buf.yaml").write_text(BUF_CONFIG)
    (folder / "m.proto").write_text(PROTO % fields)


def commit(root: Path) -> None:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "x", "--allow-empty")


def test_without_a_previous_commit_there_is_nothing_to_compare(
    repository: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(repository, "")
    commit(repository)
    assert check_breaking.main() == 0
    assert "no previous commit" in capfd.readouterr().out


def test_a_previous_commit_without_protos_is_skipped(repository: Path, capfd: pytest.CaptureFixture[str]) -> None:
    commit(repository)
    write(repository, "")
    commit(repository)
    assert check_breaking.main() == 0
    assert "has no protos" in capfd.readouterr().out


@pytest.mark.parametrize("committed", [True, False])
def test_a_removed_field_is_refused_before_and_after_its_commit(
    repository: Path, committed: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    write(repository, "  string b = 2;\n")
    commit(repository)
    write(repository, "")
    if committed:
        commit(repository)
    assert check_breaking.main() == 1
    assert 'field "2" with name "b"' in capfd.readouterr().out


def test_an_added_field_is_accepted(repository: Path) -> None:
    write(repository, "")
    commit(repository)
    write(repository, "  string b = 2;\n")
    commit(repository)
    assert check_breaking.main() == 0
