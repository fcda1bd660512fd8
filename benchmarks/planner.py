"""How the time to plan a query over two sources grows with the catalog around them.

The statement is parsed and planned as CreateQuery does it, against a view that answers piece by piece. The ratio is the
median time at 1,000 sources and 100 agents over that at 10 and 3, measured in turns, so that a noisy machine slows
both.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Sequence

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.parse import parse_statements
from headgate_coordinator.sql.planner import plan_query
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.statements import QueryStatement

ROUNDS = 150
GOAL = 1.5
SIZES = ((10, 3), (1_000, 100))
STATEMENT = """
SELECT start, l.highway, COUNT(*) AS n, AVG(l.speed) AS mean, MAX(r.level) AS worst
FROM source_1 AS l LEFT JOIN source_2 AS r ON l.vehicle = r.vehicle
WHERE l.speed > 10 AND l.highway IN (1, 2, 3)
GROUP BY l.highway
WINDOW TUMBLING(ts, SIZE 1 MIN, LATENESS 5 SEC)
HAVING n > 10
INTO results
"""
COLUMNS = (
    *(("ts", "TIMESTAMP"), ("vehicle", "INT32"), ("speed", "FLOAT32"), ("highway", "INT16"), ("level", "INT32")),
    *((f"extra_{i}", "VARCHAR") for i in range(10)),
)
RESULT = (("start", "TIMESTAMP"), ("highway", "INT16"), ("n", "INT64"), ("mean", "FLOAT64"), ("worst", "INT32"))


class GeneratedCatalog:
    """A view of a catalog of any size, kept as the messages that the real one answers with."""

    def __init__(self, sources: int, agents: int) -> None:
        schema = _schema(COLUMNS)
        self._agents = [
            catalog.Agent(
                name=f"agent_{i}",
                uid=f"agent-{i}",
                slots=64,
                slots_used=i % 7,
                zone=f"zone_{i % 3}",
                group="default",
                roles=[catalog.AGENT_ROLE_LOG, catalog.AGENT_ROLE_FRAGMENTS],
                state=catalog.AGENT_STATE_ACTIVE,
                has_engine=True,
            )
            for i in range(agents)
        ]
        self._logical = {
            f"source_{i}": catalog.LogicalSource(name=f"source_{i}", uid=f"logical-{i}", schema=schema)
            for i in range(sources)
        }
        self._physical = {
            f"logical-{i}": [
                catalog.PhysicalSource(
                    name=f"source_{i}_{kind}",
                    uid=f"physical-{i}-{kind}",
                    logical_source=f"source_{i}",
                    agent=f"agent_{(i + kind) % agents}",
                    type=catalog.SOURCE_TYPE_FILE,
                    options={"file_path": "input.csv"},
                    parser_options={"type": "CSV"},
                )
                for kind in range(2)
            ]
            for i in range(sources)
        }
        self._sink = catalog.Sink(
            name="results", uid="sink", schema=_schema(RESULT), agent="agent_0", type=catalog.SINK_TYPE_PRINT
        )

    def logical_source(self, name: str) -> catalog.LogicalSource | None:
        return self._logical.get(name)

    def physical_sources(self, logical_uid: str) -> Sequence[catalog.PhysicalSource]:
        return self._physical[logical_uid]

    def sink(self, name: str) -> catalog.Sink | None:
        return self._sink if name == self._sink.name else None

    def agents(self) -> Sequence[catalog.Agent]:
        return self._agents

    def links(self) -> Sequence[catalog.NetworkLink]:
        return ()

    def logical_source_names(self) -> Sequence[str]:
        return list(self._logical)

    def sink_names(self) -> Sequence[str]:
        return [self._sink.name]


def _schema(columns: Sequence[tuple[str, str]]) -> catalog.Schema:
    return catalog.Schema(fields=[catalog.Field(name=name, type=type_) for name, type_ in columns])


def _plan(view: GeneratedCatalog) -> catalog.QueryPlan:
    (statement,) = parse_statements(STATEMENT, StatementLimits())
    assert isinstance(statement, QueryStatement)
    return plan_query(statement, view, PlannerSettings())


def main() -> None:
    views = [GeneratedCatalog(sources, agents) for sources, agents in SIZES]
    times: list[list[float]] = [[] for _ in views]
    for view in views:
        for _ in range(10):
            _plan(view)
    gc.collect()
    gc.freeze()
    for _ in range(ROUNDS):
        for view, measured in zip(views, times, strict=True):
            before = time.perf_counter()
            _plan(view)
            measured.append(time.perf_counter() - before)
    print(f"{'sources':>8} {'agents':>7} {'median ms':>10} {'p95 ms':>8} {'fastest ms':>11}")
    medians = []
    for (sources, agents), measured in zip(SIZES, times, strict=True):
        ordered = sorted(measured)
        medians.append(statistics.median(ordered) * 1e3)
        p95, best = ordered[int(len(ordered) * 0.95)] * 1e3, ordered[0] * 1e3
        print(f"{sources:>8,} {agents:>7,} {medians[-1]:>10.2f} {p95:>8.2f} {best:>11.2f}")
    ratio = medians[1] / medians[0]
    print(
        json.dumps(
            {
                "name": "planner",
                "ratio": round(ratio, 3),
                "goal": f"<= {GOAL}",
                "small_ms": round(medians[0], 3),
                "large_ms": round(medians[1], 3),
                "rounds": ROUNDS,
            }
        )
    )


if __name__ == "__main__":
    main()
