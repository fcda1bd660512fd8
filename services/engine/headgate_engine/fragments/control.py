"""Marks for topics: files in a folder of the checkpoint, which Spark reads as one more source of the query."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from headgate_engine.executor.reading import MARK
from headgate_engine.fragments.storage import at


def write_mark(session: SparkSession, folder: str, mark_us: int) -> None:
    """Leaves a mark. The same one again is the same file, so that a repeated drain adds nothing."""
    name = f"{folder}/mark-{mark_us}.json"
    system, path = at(session, name)
    if system.exists(path):
        return
    _, unfinished = at(session, f"{folder}/.mark-{mark_us}")
    stream = system.create(unfinished, True)
    try:
        stream.write(bytearray(json.dumps({MARK: mark_us}).encode()))
    finally:
        stream.close()
    system.rename(unfinished, path)
