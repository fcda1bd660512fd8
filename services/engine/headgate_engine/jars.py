"""Jars that are not in Spark's wheel: its Kafka connector, and what it needs for checkpoints on S3.

`headgate-engine --fetch-jars` (fetching.py) brings them, once, into the cache folder; an engine takes what it finds
there when it starts.
"""

from __future__ import annotations

import hashlib
import os
from importlib import resources
from pathlib import Path

Artifact = tuple[str, str, str]

# Group, artifact and version. Each is fetched alone: the token provider of 4.2.0 cannot be had everywhere, 4.0.0 works.
KAFKA_ARTIFACTS: tuple[Artifact, ...] = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
)
# The parts of Amazon's SDK that Hadoop's S3A uses, in the version that Hadoop 3.5.0 names. Its `bundle` of all parts is
# 690 MB, which every executor of a cluster would have to fetch; these are 9.
_AWS = (
    "annotations apache-client arns auth aws-core aws-query-protocol aws-xml-protocol checksums checksums-spi crt-core "
    "endpoints-spi http-auth http-auth-aws http-auth-aws-eventstream http-auth-spi http-client-spi identity-spi "
    "json-utils metrics-spi netty-nio-client profiles protocol-core regions retries retries-spi s3 s3-transfer-manager "
    "sdk-core sts third-party-jackson-core utils utils-lite"
)
S3_ARTIFACTS: tuple[Artifact, ...] = (
    ("org.apache.hadoop", "hadoop-aws", "3.5.0"),
    ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1"),
    ("software.amazon.eventstream", "eventstream", "1.0.1"),
    ("org.reactivestreams", "reactive-streams", "1.0.4"),
    *(("software.amazon.awssdk", name, "2.35.4") for name in _AWS.split()),
)
# How Spark writes checkpoints on S3; compiled from `java/` into a jar of its own.
CHECKPOINT_FILES = "headgate.engine.ConditionalCheckpointFiles"


def jars_folder() -> Path:
    """HEADGATE_SPARK_JARS, or a folder of the cache that the tools share."""
    if chosen := os.environ.get("HEADGATE_SPARK_JARS"):
        return Path(chosen)
    cache = os.environ.get("HEADGATE_CACHE")
    if not cache:
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        cache = str(Path(base) / "headgate")
    return Path(cache) / "spark-jars"


def jar_name(artifact: Artifact) -> str:
    return f"{artifact[1]}-{artifact[2]}.jar"


def jar_paths(artifacts: tuple[Artifact, ...] = KAFKA_ARTIFACTS) -> list[Path]:
    return [jars_folder() / jar_name(artifact) for artifact in artifacts]


def checkpoint_source() -> str:
    """The Java source of CHECKPOINT_FILES."""
    name = CHECKPOINT_FILES.rpartition(".")[2]
    return (resources.files("headgate_engine") / "java" / f"{name}.java").read_text()


def checkpoint_jar() -> Path:
    """Where it is when it has been compiled; another source has another name."""
    digest = hashlib.sha256(checkpoint_source().encode()).hexdigest()[:12]
    return jars_folder() / f"headgate-checkpoints-{digest}.jar"


def s3_paths() -> list[Path]:
    return [*jar_paths(S3_ARTIFACTS), checkpoint_jar()]


def kafka_jars() -> list[Path]:
    """All of them, or none where one is missing."""
    return _all_or_none(jar_paths())


def s3_jars() -> list[Path]:
    """All of them, or none where one is missing."""
    return _all_or_none(s3_paths())


def driver_class_path(master: str) -> list[str]:
    """Jars that the driver's JVM has before Spark's own."""
    # Executors of a cluster fetch those of S3, and the driver with them.
    return [str(path) for path in s3_jars()] if master.startswith("local") else []


def _all_or_none(paths: list[Path]) -> list[Path]:
    return paths if all(path.is_file() for path in paths) else []
