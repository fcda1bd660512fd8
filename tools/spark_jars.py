"""Fetches the jars of Spark's Kafka connector into the cache folder, once: with Maven, or else with Spark's resolver.

Kafka topics and realtime queries need them; everything else works without.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from headgate_engine.jars import KAFKA_ARTIFACTS, jar_paths, jars_folder, kafka_jars

DEADLINE_SECONDS = 600


class Unavailable(Exception):
    """The jars cannot be had; the message says why."""


def with_maven(maven: str, folder: Path) -> None:
    for coordinates in KAFKA_ARTIFACTS:
        artifact = ":".join(coordinates)
        command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        _run([*command, "-Dmdep.useBaseVersion=true"], f"Maven could not fetch {artifact}")


def with_spark(folder: Path) -> None:
    """Spark's own resolver, by a session that does nothing else."""
    packages = ",".join(":".join(coordinates) for coordinates in KAFKA_ARTIFACTS)
    with tempfile.TemporaryDirectory() as scratch:
        program = (
            "from pyspark.sql import SparkSession as S;"
            f"S.builder.master('local[1]').config('spark.ui.enabled','false').config('spark.jars.packages','{packages}')"
            f".config('spark.jars.ivy','{scratch}').getOrCreate().stop()"
        )
        _run([sys.executable, "-c", program], "Spark's resolver could not fetch the jars")
        for group, artifact, version in KAFKA_ARTIFACTS:
            found = Path(scratch) / "jars" / f"{group}_{artifact}-{version}.jar"
            if not found.is_file():
                raise Unavailable(f"Spark's resolver did not bring {group}:{artifact}:{version}")
            shutil.copyfile(found, folder / f"{artifact}-{version}.jar")


def _run(command: list[str], problem: str) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
    )
    if done.returncode != 0:
        raise Unavailable(f"{problem}:\n{(done.stdout + done.stderr)[-2000:]}")


def fetch() -> list[Path]:
    """The jars, fetched if they are not there."""
    if found := kafka_jars():
        return found
    target = jars_folder()
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="spark-jars-", dir=target.parent))
    try:
        maven = shutil.which("mvn")
        if maven:
            with_maven(maven, folder)
        else:
            with_spark(folder)
        target.mkdir(exist_ok=True)
        for path in jar_paths():
            (folder / path.name).replace(path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return jar_paths()


def main() -> int:
    try:
        for path in fetch():
            print(path)
    except Unavailable as error:
        print(f"spark_jars: {error}", file=sys.stderr)
        print("spark_jars: Kafka topics and realtime queries will not work; everything else will", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
