"""Marks for topics: files in a folder of the checkpoint, which Spark reads as one more source of the query.

Spark removes a file when the batch that read it is committed, and forgets its name when it is old: neither the folder,
which it lists at every look, nor what it remembers of it grows with the age of a query.
"""

from __future__ import annotations

import json

from pyspark.sql import DataFrame, SparkSession

from headgate_engine.executor.reading import MARK
from headgate_engine.fragments.storage import write_text
from headgate_engine.types import quote

# Compared to the youngest file that was read, never to the clock. A mark that is left this much later than the last one
# under the same name is read again, which changes nothing.
_REMEMBERED = "1h"


def write_mark(session: SparkSession, folder: str, mark_us: int) -> None:
    """Leaves a mark. The same one again is the same file, so that a repeated drain adds nothing."""
    write_text(session, f"{folder}/mark-{mark_us}.json", json.dumps({MARK: mark_us}))


def mark_stream(session: SparkSession, folder: str) -> DataFrame:
    """The marks that are left in a folder, as rows of MARK."""
    return (
        session.readStream.schema(f"{quote(MARK)} bigint")
        .option("cleanSource", "delete")
        .option("maxFileAge", _REMEMBERED)
        .json(folder)
    )
