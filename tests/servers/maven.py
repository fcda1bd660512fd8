"""Servers made of jars, fetched once into the cache with Maven."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.servers.cache import ServerMissing, cache_folder, locked, run_build, say


def fetched(server: str, version: str, pom: str, *, takes: str, missing: str) -> Path:
    """The folder in the cache with a server's jars and all that they need, by what its pom depends on. `missing` is
    told where it is not there and Maven is not either."""
    name = server.lower()
    target = cache_folder() / f"{name}-{version}" / "libs"
    if target.is_dir():
        return target
    with locked(name):
        if not target.is_dir():
            maven = shutil.which("mvn")
            if maven is None:
                raise ServerMissing(f"{missing}, and without Maven it cannot be fetched")
            say(f"fetching {server} {version} with Maven (once; {takes})")
            _fetch(maven, pom, target)
    return target


def _fetch(maven: str, pom: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = target.with_name("libs.fetching")
    shutil.rmtree(unfinished, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "pom.xml").write_text(pom)
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={unfinished}", "-DincludeScope=runtime"]
        run_build([maven, "-q", "-B", *copy], Path(scratch))
    unfinished.rename(target)
