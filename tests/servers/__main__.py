"""`python -m tests.servers prepare`: finds or builds every server, and says what will be skipped without it."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.servers.cache import ServerMissing, servers_required
from tests.servers.grpcurl import find_grpcurl
from tests.servers.kafka import find_java, find_libs
from tests.servers.minio import find_minio
from tests.servers.postgres import find_bin_folder, unprivileged_user
from tests.servers.sdks import fetch_sdk
from tests.servers.yarn import find_yarn

ROOT = Path(__file__).resolve().parents[2]
# Each tool that set-up may want, with what cannot be had without it.
TOOLS = {
    "java": "JDK: Kafka and everything on Spark",
    "mvn": "Maven: fetching Kafka, YARN and Spark's Kafka jars",
    "go": "Go: building MinIO and grpcurl, and the generated Go client",
    "node": "Node: the generated TypeScript client",
}


def find_postgres() -> Path:
    unprivileged_user()
    return find_bin_folder()


def find_kafka() -> Path:
    find_java()
    return find_libs()


def find_spark_jars() -> Path:
    """The jars of Spark's Kafka connector; the tool that people use fetches them."""
    done = subprocess.run(
        [sys.executable, "tools/spark_jars.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ServerMissing(done.stderr.strip())
    return Path(done.stdout.strip().splitlines()[-1]).parent


def find_spark_classes() -> Path:
    """The archive from which Spark starts more quickly; made after the jars have come, which are part of it."""
    command = [sys.executable, "-m", "headgate_engine.class_archive"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ServerMissing(f"the archive of Spark's classes could not be made: {done.stderr.strip()[-2000:]}")
    return Path(done.stdout.strip().splitlines()[-1])


SERVERS: dict[str, Callable[[], Path]] = {
    "postgres": find_postgres,
    "kafka": find_kafka,
    "minio": find_minio,
    "grpcurl": find_grpcurl,
    "spark-jars": find_spark_jars,
    "spark-classes": find_spark_classes,
    "yarn": find_yarn,
    "sdk-go": partial(fetch_sdk, "go"),
    "sdk-ts": partial(fetch_sdk, "typescript"),
}


def prepare() -> int:
    absent = [meaning for command, meaning in TOOLS.items() if shutil.which(command) is None]
    for meaning in absent:
        print(f"servers: not installed: {meaning}")
    missing = []
    for name, find in SERVERS.items():
        try:
            where = find()
        except ServerMissing as error:
            missing.append(name)
            print(f"servers: {name:<13} MISSING; its tests will be skipped. {error}")
        else:
            print(f"servers: {name:<13} {where}")
    if missing and servers_required():
        print(f"servers: HEADGATE_REQUIRE_SERVERS is set, and {', '.join(missing)} cannot be had", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=["prepare"])
    parser.parse_args()
    return prepare()


if __name__ == "__main__":
    raise SystemExit(main())
