"""The jars of Spark's Kafka connector: which ones, and where they are kept.

They are not in the wheel. `tools/spark_jars.py` fetches them, once, into the cache folder; an engine takes what it
finds there when it starts.
"""

from __future__ import annotations

import os
from pathlib import Path

# Group, artifact and version. Each is fetched alone: the token provider of 4.2.0 cannot be had everywhere, 4.0.0 works.
KAFKA_ARTIFACTS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)


def jars_folder() -> Path:
    """HEADGATE_SPARK_JARS, or a folder of the cache that the tools share."""
    if chosen := os.environ.get("HEADGATE_SPARK_JARS"):
        return Path(chosen)
    cache = os.environ.get("HEADGATE_CACHE")
    if not cache:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        cache = str(Path(base) / "headgate")
    return Path(cache) / "spark-jars"


def jar_paths() -> list[Path]:
    return [jars_folder() / f"{artifact}-{version}.jar" for _, artifact, version in KAFKA_ARTIFACTS]


def kafka_jars() -> list[Path]:
    """All of them, or none where one is missing."""
    paths = jar_paths()
    return paths if all(path.is_file() for path in paths) else []
