"""How an engine's Spark starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate_engine.class_archive import archive
from headgate_engine.jars import driver_class_path
from tests.integration.engine.kit import Engine
from tests.servers.cache import servers_required

pytestmark = pytest.mark.spark


def _children(pid: int) -> list[int]:
    return [int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in _words(task / "children")]


def _words(path: Path) -> list[str]:
    return path.read_text().split()


def test_it_maps_the_archive_of_classes_that_was_made_before(engine_process: Engine) -> None:
    made = archive(driver_class_path("local[2]"))
    if not made.is_file() and not servers_required():
        pytest.skip("there is no archive of Spark's classes: python -m headgate_engine.class_archive makes it")
    assert engine_process.server is not None
    names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in _children(engine_process.server.process.pid)}
    (java,) = (pid for pid, name in names.items() if name == "java")
    assert str(made) in Path(f"/proc/{java}/maps").read_text()
