"""Unmodified Kafka clients against three agents."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.kafka.kit import Cluster, running_cluster

_NUMBERS = itertools.count()


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(Path(tmp_path_factory.mktemp("cluster")), agents=3) as running:
        yield running


@pytest.fixture
def bootstrap(cluster: Cluster) -> str:
    return cluster.bootstrap


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of the test's own, for topics and groups."""
    return f"{request.node.originalname[:60]}-{next(_NUMBERS)}"
