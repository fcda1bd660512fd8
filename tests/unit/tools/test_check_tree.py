"""What must not be in the tree is found there."""

from __future__ import annotations

from pathlib import Path

import check_tree
import pytest

HOST = ".".join(("files", "pythonhosted", "org"))
HOME_FOLDER = "/".join(("", "home", "someone", "project"))


def found(tmp_path: Path, content: bytes) -> list[str]:
    path = tmp_path / "file"
    path.write_bytes(content)
    return list(check_tree.problems(path, "file"))


@pytest.mark.parametrize(
    "text", [f"url = https://{HOST}/x", f"see {HOST}", f"cd {HOME_FOLDER}", "cat /root" + "/.cache/x"]
)
def test_a_line_that_names_a_host_or_a_home_folder_is_told_with_its_number(tmp_path: Path, text: str) -> None:
    assert [line.split(": ")[0] for line in found(tmp_path, f"first\n{text}\n".encode())] == ["file:2"]


@pytest.mark.parametrize(
    "text", ["the root of the tree", "/rootless/x", "$HOME/.cache/x", "the pypi package", "a/home/b/c"]
)
def test_ordinary_text_is_left_alone(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, text.encode()) == []


def test_a_large_binary_is_refused_and_a_small_one_is_not(tmp_path: Path) -> None:
    assert found(tmp_path, b"\xff" * 1_000_001) == ["file: a binary of 1,000,001 bytes; 1,000,000 at most"]
    assert found(tmp_path, b"\xff" * 1_000_000) == []
