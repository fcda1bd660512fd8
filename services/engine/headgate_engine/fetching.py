"""Brings jars that Spark's wheel lacks into the cache folder, once: `kafka`, its Kafka connector, and `s3`, what it
needs for checkpoints on S3; both unless one is named. With Maven, or else with Spark's resolver.

Kafka topics and realtime queries need the former, an object store that is S3 the latter; all else works without. An
engine takes what it finds when it starts. With `--check` nothing is fetched: the exit code says whether they are there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headgate_engine.jars import (
    CHECKPOINT_FILES,
    KAFKA_ARTIFACTS,
    S3_ARTIFACTS,
    Artifact,
    checkpoint_jar,
    checkpoint_source,
    jar_name,
    jar_paths,
    jars_folder,
    kafka_jars,
    s3_jars,
    s3_paths,
)

DEADLINE_SECONDS = 600
CHECK = "--check"
_WITHOUT = {
    "kafka": "Kafka topics and realtime queries will not work; everything else will",
    "s3": "checkpoints cannot be on S3; everything else works",
}


class Unavailable(Exception):
    """The jars cannot be had; the message says why."""


def with_maven(maven: str, artifacts: Sequence[Artifact], folder: Path) -> None:
    """Each alone, without what it depends on: Spark has most of that, and the rest is listed."""
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
        f"{alone}</dependency>"
        for group, artifact, version in artifacts
    )
    pom = folder / "pom.xml"
    pom.write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>headgate</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><dependencies>{wanted}</dependencies></project>"
    )
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    _run(command, "Maven could not fetch the jars")


def with_spark(artifacts: Sequence[Artifact], folder: Path) -> None:
    """Spark's own resolver, by a session that does nothing else."""
    packages = ",".join(":".join(coordinates) for coordinates in artifacts)
    with tempfile.TemporaryDirectory() as scratch:
        program = (
            "from pyspark.sql import SparkSession as S;"
            f"S.builder.master('local[1]').config('spark.ui.enabled','false').config('spark.jars.packages','{packages}')"
            f".config('spark.jars.ivy','{scratch}').getOrCreate().stop()"
        )
        _run([sys.executable, "-c", program], "Spark's resolver could not fetch the jars")
        for one in artifacts:
            found = Path(scratch) / "jars" / f"{one[0]}_{jar_name(one)}"
            if not found.is_file():
                raise Unavailable(f"Spark's resolver did not bring {':'.join(one)}")
            shutil.copyfile(found, folder / jar_name(one))


def compile_checkpoint_files(folder: Path) -> None:
    """The one class that is ours, against Spark's jars and those of S3 in the folder."""
    compiler = _of_jdk("javac")
    source = folder / f"{CHECKPOINT_FILES.rpartition('.')[2]}.java"
    source.write_text(checkpoint_source())
    classes = folder / "classes"
    # Not at the top: whoever only wants to know what is there need not wait for it.
    import pyspark

    path = os.pathsep.join([f"{Path(pyspark.__file__).parent / 'jars'}/*", f"{folder}/*"])
    # 17 is the oldest Java that Spark runs on.
    command = [compiler, "--release", "17", "-nowarn", "-proc:none", "-cp", path, "-d", str(classes), str(source)]
    _run(command, f"javac could not compile {source.name}")
    jar = folder / checkpoint_jar().name
    _run([_of_jdk("jar"), "--create", "--file", str(jar), "-C", str(classes), "."], "jar could not pack it")


def _of_jdk(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=f"{home}/bin") if home else shutil.which(name)
    if found is None:
        raise Unavailable(f"there is no {name}: install a JDK, 17 or 21, rather than a runtime alone")
    return found


def _run(command: list[str], problem: str) -> None:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=DEADLINE_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{problem} within {DEADLINE_SECONDS} s") from None
    if done.returncode != 0:
        raise Unavailable(f"{problem}:\n{(done.stdout + done.stderr)[-2000:]}")


@contextmanager
def _unfinished() -> Iterator[Path]:
    """A folder beside that of the jars, held by one process of the machine at a time."""
    target = jars_folder()
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Unavailable(f"{target} cannot be made: {error.strerror}") from error
    with (target.parent / "spark-jars.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        folder = Path(tempfile.mkdtemp(prefix="spark-jars-", dir=target.parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _fetch_into(folder: Path, artifacts: Sequence[Artifact]) -> None:
    if maven := shutil.which("mvn"):
        with_maven(maven, artifacts, folder)
    else:
        with_spark(artifacts, folder)


def _keep(folder: Path, paths: list[Path]) -> list[Path]:
    for path in paths:
        (folder / path.name).replace(path)
    return paths


def fetch() -> list[Path]:
    """The jars of the Kafka connector, fetched if they are not there."""
    if found := kafka_jars():
        return found
    with _unfinished() as folder:
        if found := kafka_jars():
            # Another process has brought them meanwhile.
            return found
        _fetch_into(folder, KAFKA_ARTIFACTS)
        return _keep(folder, jar_paths())


def fetch_s3() -> list[Path]:
    """The jars for checkpoints on S3, fetched and compiled if they are not there."""
    if found := s3_jars():
        return found
    with _unfinished() as folder:
        if found := s3_jars():
            return found
        if all(path.is_file() for path in jar_paths(S3_ARTIFACTS)):
            for path in jar_paths(S3_ARTIFACTS):
                shutil.copyfile(path, folder / path.name)
        else:
            _fetch_into(folder, S3_ARTIFACTS)
        compile_checkpoint_files(folder)
        return _keep(folder, s3_paths())


def main(arguments: Sequence[str]) -> int:
    """`[--check] [kafka] [s3]`: 0 where all that was asked for is there now, 1 where something cannot be had."""
    wanted = [one for one in arguments if one != CHECK] or list(_WITHOUT)
    if unknown := [one for one in wanted if one not in _WITHOUT]:
        sys.stderr.write(f"headgate-engine --fetch-jars: {unknown[0]} is none of {', '.join(_WITHOUT)}\n")
        return 2
    if CHECK in arguments:
        return 0 if all(kafka_jars() if kind == "kafka" else s3_jars() for kind in wanted) else 1
    missing = 0
    for kind in wanted:
        try:
            for path in fetch() if kind == "kafka" else fetch_s3():
                sys.stdout.write(f"{path}\n")
        except Unavailable as error:
            sys.stderr.write(f"headgate-engine --fetch-jars: {error}\n{_WITHOUT[kind]}\n")
            missing += 1
    return 1 if missing else 0
