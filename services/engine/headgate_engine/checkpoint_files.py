"""How Spark writes the files of a checkpoint.

Spark keeps two runs of one checkpoint apart by files that only one of them can create.

On S3 neither of its own ways ensures that: both look and then write, so both runs would succeed;
`ConditionalCheckpointFiles` (in `java/`) has the store decide.

In a folder both of its ways look and then rename, but the one that it chooses by itself (Hadoop's FileContext) takes
about 40 ms for a file, most likely because it starts programs of the system to look at links, and the other one
(FileSystem) 5 to 8. Every micro-batch waits for four files and more.

Elsewhere, such as on HDFS, where a FileContext renames atomically, it is left to Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from headgate_engine.jars import CHECKPOINT_FILES
from headgate_engine.s3 import is_s3

SETTING = "spark.sql.streaming.checkpointFileManagerClass"
IN_FOLDERS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def files_class(uri: str, conf: Mapping[str, str]) -> str | None:
    """What writes a checkpoint; None for what Spark chooses. `conf` is what the engine is configured with for Spark."""
    if is_s3(uri):
        return CHECKPOINT_FILES
    if urlparse(uri).scheme in ("", "file"):
        return conf.get(SETTING, IN_FOLDERS)
    return None


def choose_files(session: SparkSession, uri: str, conf: Mapping[str, str]) -> None:
    """Has streams of the session write a checkpoint so."""
    chosen = files_class(uri, conf)
    if chosen is not None:
        session.conf.set(SETTING, chosen)
