from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.kafka.kit import Cluster, running_cluster
from tests.unit.kafka.wire import Wire


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with running_cluster(tmp_path) as running:
        yield running


@pytest.fixture
def wire(cluster: Cluster) -> Iterator[Wire]:
    with Wire(cluster.bootstrap) as client:
        yield client
