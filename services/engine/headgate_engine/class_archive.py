"""An archive of Spark's classes, from which a JVM starts with about half the work.

A JVM that starts Spark reads, checks and links some fifteen thousand classes. `python -m headgate_engine.class_archive`
does it once and keeps the result in the cache folder; every engine of this machine then maps it into memory, shared by
all. The JVM itself sees to it that an archive fits: it goes on without one that is of other jars or another Java.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyspark
from pyspark import SparkContext

from headgate_engine.jars import driver_class_path, jars_folder

# Dumping goes through all classes; on a busy machine it takes a while.
_DUMP_SECONDS = 300
# An archive of jars that are no longer used is removed when another one is made: each is some 150 MB.
_UNUSED_SECONDS = 30 * 86_400
# What the JVM has to say about classes that it leaves out, or an archive that does not fit, is for nobody here.
_QUIET = "-Xlog:cds=error -Xlog:cds+dynamic=error"


def _java() -> str:
    """Which Java it is: what its `release` file says, or at least where it is."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java") or ""
    root = Path(found).resolve().parent.parent
    release = root / "release"
    return release.read_text() if release.is_file() else str(root)


def archive(first: Sequence[str]) -> Path:
    """Where the archive is for a JVM whose class path begins with `first`, before Spark's own jars."""
    jars = [*map(Path, first), *sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))]
    digest = hashlib.sha256(_java().encode())
    for jar in jars:
        status = jar.stat()
        digest.update(f"\n{jar} {status.st_size} {status.st_mtime_ns}".encode())
    return jars_folder().parent / "spark-classes" / f"{digest.hexdigest()[:16]}.jsa"


def options(first: Sequence[str]) -> str:
    """Options of Java that use the archive; none where it was not made."""
    path = archive(first)
    if not path.is_file():
        return ""
    with contextlib.suppress(OSError):
        path.touch()
    return f"-XX:SharedArchiveFile={path} -Xshare:auto {_QUIET}"


def dump_options(path: Path) -> str:
    return f"-XX:ArchiveClassesAtExit={path} {_QUIET}"


def end_jvm() -> None:
    """Ends the JVM of this process, whose context has been stopped, and waits until it has written what it writes."""
    gateway: Any = SparkContext._gateway
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()
    process.wait(_DUMP_SECONDS)
    SparkContext._gateway = SparkContext._jvm = None


def make() -> Path:
    """The archive of this machine, made if it is not there: Spark starts, warms up, and ends."""
    # Not at the top: that module asks this one for options.
    from headgate_engine.config import SparkConfig
    from headgate_engine.spark import SparkHost

    config = SparkConfig(master="local[2]")
    path = archive(driver_class_path(config.master))
    path.parent.mkdir(parents=True, exist_ok=True)
    with (path.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.is_file():
            return path
        with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
            unfinished = Path(scratch) / path.name
            host = SparkHost(config)
            try:
                host.start(java_options=dump_options(unfinished))
            finally:
                host.stop()
            end_jvm()
            unfinished.replace(path)
        for other in path.parent.glob("*.jsa"):
            if time.time() - other.stat().st_mtime > _UNUSED_SECONDS:
                other.unlink(missing_ok=True)
    return path


if __name__ == "__main__":
    sys.stdout.write(f"{make()}\n")
