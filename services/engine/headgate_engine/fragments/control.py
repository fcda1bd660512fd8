"""Marks for topics: files in a folder of the checkpoint, which Spark reads as one more source of the query."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from headgate_engine.executor.reading import MARK
from headgate_engine.fragments.storage import write_text


def write_mark(session: SparkSession, folder: str, mark_us: int) -> None:
    """Leaves a mark. The same one again is the same file, so that a repeated drain adds nothing."""
    write_text(session, f"{folder}/mark-{mark_us}.json", json.dumps({MARK: mark_us}))
