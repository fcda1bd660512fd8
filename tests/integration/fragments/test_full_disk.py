"""A FILE sink on a volume that takes no more. The kernel's limit on the size of a file stands in for a full disk."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from headgate.catalog import v1 as catalog
from headgate_agent.errors import SINK_UNAVAILABLE
from headgate_agent.fragments.config import FragmentConfig
from headgate_agent.fragments.edges import Stored
from headgate_agent.fragments.sinks.build import build_sink
from headgate_agent.fragments.sinks.sink import run_sink
from headgate_agent.work import Inline
from headgate_common.errors import HeadgateError
from tests.unit.fragments.kit import LoopClock, MemoryEdge, simulated, sink_fragment


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_nothing_is_lost_or_doubled_where_space_runs_out_and_comes_back(tmp_path: Path) -> None:
    batches = [pa.RecordBatch.from_pydict({"a": list(range(n * 500, n * 500 + 500))}) for n in range(20)]
    edge = MemoryEdge(batches=batches, last=Stored(b"", True))
    config = FragmentConfig(file_roots=(tmp_path,), flush_interval=0.0, edge_read_bytes=1)
    fragment = sink_fragment(catalog.SINK_TYPE_FILE, {"file_path": "out.csv"}, "a INT64")

    def run() -> None:
        sink = build_sink("fragment-1", fragment, state=tmp_path / "state", config=config, blocking=Inline())
        simulated(run_sink(sink, edge, config, LoopClock()))

    wanted = "".join(f"{n}\n" for n in range(10_000))
    out = tmp_path / "out.csv"
    for size in (9_000, 9_000, 20_000, 33_333):
        with largest_file(size), pytest.raises(HeadgateError) as raised:
            run()
        assert raised.value.reason is SINK_UNAVAILABLE
        assert "no space" in raised.value.message
        # Only whole batches that were acknowledged are there.
        acknowledged = "".join(f"{n}\n" for n in range(edge.trimmed * 500))
        assert out.read_text() == acknowledged
    run()
    assert out.read_text() == wanted
