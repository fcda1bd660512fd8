"""Which of Spark's ways writes a checkpoint, by where it is."""

from __future__ import annotations

import pytest

from headgate_engine.checkpoint_files import IN_FOLDERS, SETTING, files_class
from headgate_engine.jars import CHECKPOINT_FILES


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("/data/checkpoints", IN_FOLDERS),
        ("file:///data/checkpoints", IN_FOLDERS),
        ("s3a://bucket/prefix", CHECKPOINT_FILES),
        ("hdfs://name/prefix", None),
        ("abfss://box@account/prefix", None),
    ],
)
def test_folders_and_s3_have_their_own_and_the_rest_is_left_to_spark(uri: str, wanted: str | None) -> None:
    assert files_class(uri, {}) == wanted


def test_what_the_engine_is_configured_with_wins_but_not_where_two_writers_would_not_see_each_other() -> None:
    assert files_class("/data", {SETTING: "mine"}) == "mine"
    assert files_class("s3a://bucket", {SETTING: "mine"}) == CHECKPOINT_FILES
