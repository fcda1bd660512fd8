"""What runs plans in Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.integration.planner_spark.streams import Streams


@pytest.fixture(scope="session")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    return Streams(spark, Path(tmp_path_factory.mktemp("streams")))
