"""No path, pattern or link leads a FILE source or sink out of the roots."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_agent.errors import SINK_UNAVAILABLE, TARGET_FORBIDDEN
from headgate_agent.fragments.paths import Roots
from headgate_common.errors import HeadgateError, Reason


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.csv").write_text("secret\n")
    (tmp_path / "root-beside").mkdir()
    (tmp_path / "root-beside" / "x").write_text("x")
    (tmp_path / "root" / "a.csv").write_text("1\n")
    return tmp_path / "root"


def reason_of(call: object, *arguments: object) -> Reason:
    with pytest.raises(HeadgateError) as raised:
        call(*arguments)  # type: ignore[operator]
    return raised.value.reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        ".",
        "..",
        "../outside/secret.csv",
        "sub/../../outside/secret.csv",
        "sub/..",
        "/etc/passwd",
        "//etc/passwd",
        "a\0b",
        "a\nb",
        "*/../../etc/passwd",
        "x" * 5_000,
    ],
)
def test_hostile_texts_are_refused(root: Path, text: str) -> None:
    assert reason_of(Roots([root]).locate, text) is TARGET_FORBIDDEN


def test_a_folder_whose_name_only_begins_like_a_root_is_outside(root: Path) -> None:
    assert reason_of(Roots([root]).locate, f"{root}-beside/x") is TARGET_FORBIDDEN
    assert reason_of(Roots([root]).locate, str(root)) is TARGET_FORBIDDEN


def test_without_roots_nothing_is_touched() -> None:
    assert reason_of(Roots([]).locate, "a.csv") is TARGET_FORBIDDEN


def test_absolute_and_relative_paths_under_a_root_are_found(root: Path) -> None:
    roots = Roots([root])
    for text in ("a.csv", "./a.csv", str(root / "a.csv"), f"{root}//a.csv"):
        assert roots.find(roots.locate(text), 10) == [root / "a.csv"]


@given(st.text(st.sampled_from("./ab*?~\\%"), max_size=12))
def test_no_text_is_located_outside(text: str) -> None:
    base = Path("/srv/data")
    try:
        location = Roots([base]).locate(text)
    except HeadgateError:
        return
    assert base in Path(os.path.normpath(location.path)).parents


def test_a_link_out_is_refused_by_what_was_opened(root: Path) -> None:
    roots = Roots([root])
    (root / "link.csv").symlink_to(root.parent / "outside" / "secret.csv")
    (root / "folder").symlink_to(root.parent / "outside")
    assert reason_of(roots.open_to_read, root / "link.csv") is TARGET_FORBIDDEN
    assert reason_of(roots.open_to_read, root / "folder" / "secret.csv") is TARGET_FORBIDDEN
    assert reason_of(roots.find, roots.locate("folder/*.csv"), 10) is TARGET_FORBIDDEN


def test_a_link_that_stays_inside_is_followed(root: Path) -> None:
    (root / "sub" / "link.csv").symlink_to(root / "a.csv")
    descriptor = Roots([root]).open_to_read(root / "sub" / "link.csv")
    assert os.read(descriptor, 10) == b"1\n"
    os.close(descriptor)


def test_a_root_that_is_itself_a_link_is_the_folder_it_leads_to(root: Path) -> None:
    alias = root.parent / "alias"
    alias.symlink_to(root)
    roots = Roots([alias])
    os.close(roots.open_to_read(roots.locate(str(alias / "a.csv")).path))
    os.close(roots.open_to_read(roots.locate(str(root / "a.csv")).path))


def test_folders_devices_and_pipes_are_no_files_and_are_not_waited_for(root: Path) -> None:
    os.mkfifo(root / "pipe")
    roots = Roots([root])
    assert reason_of(roots.open_to_read, root / "pipe") is TARGET_FORBIDDEN
    assert reason_of(roots.open_to_read, root / "sub") is TARGET_FORBIDDEN
    assert reason_of(roots.open_to_write, root / "pipe") in (TARGET_FORBIDDEN, SINK_UNAVAILABLE)


def test_a_sink_makes_no_file_outside_and_writes_through_no_link(root: Path) -> None:
    roots = Roots([root])
    outside = root.parent / "outside"
    (root / "folder").symlink_to(outside)
    (root / "link.csv").symlink_to(outside / "made.csv")
    (root / "inner.csv").symlink_to(root / "a.csv")
    assert reason_of(roots.open_to_write, root / "folder" / "made.csv") is TARGET_FORBIDDEN
    assert reason_of(roots.open_to_write, root / "link.csv") is TARGET_FORBIDDEN
    assert reason_of(roots.open_to_write, root / "inner.csv") is TARGET_FORBIDDEN
    assert sorted(path.name for path in outside.iterdir()) == ["secret.csv"]
    assert reason_of(roots.open_to_write, root / "missing" / "x.csv") is SINK_UNAVAILABLE


def test_a_pattern_that_matches_too_much_is_refused(root: Path) -> None:
    for number in range(20):
        (root / f"{number}.csv").touch()
    with pytest.raises(HeadgateError, match="more than 10"):
        Roots([root]).find(Roots([root]).locate("*.csv"), 10)
