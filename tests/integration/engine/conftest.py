"""One engine process and one server of edges for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.engine.edges import Edges, serving_edges
from tests.integration.engine.kit import Client, Engine, running_engine


@pytest.fixture(scope="session")
def engine_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("engine")
    # Nothing here should wait longer than it must.
    quick = ("--set=timings.brokers=2s", "--set=timings.quiet=1s", "--set=timings.realtime_checkpoint=5s")
    with running_engine(folder, "--set=timings.keep_alive=60s", "--set=reserved_slots=1", *quick) as made:
        yield made


@pytest.fixture
def client(engine_process: Engine) -> Client:
    return engine_process.client


@pytest.fixture
def edges() -> Iterator[Edges]:
    with serving_edges() as made:
        yield made


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoints")
