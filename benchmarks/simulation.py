"""How many seeds the simulator runs in a second on all cores, and how a run's cost grows with its size.

The seeds are those that `make simulate` begins with, each with its faults and with every invariant checked. The ratio
is seeds per second over the 8 that `make test` counts on. Growth is measured in one process, on its processor time, for
the smaller and the larger half of the seeds by agents and by queries.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Sequence

from headgate_simulation.generate import generate
from headgate_simulation.plan import Plan
from headgate_simulation.pool import run_seeds, warm_up
from headgate_simulation.world import Result, run

# So many that the start of the pool counts for little.
SEEDS = 600
ALONE = 60
MUST = 8.0


def _agents(plan: Plan) -> int:
    return len(plan.agents)


def _queries(plan: Plan) -> int:
    return sum(operation.kind == "create_query" for operation in plan.operations)


def _alone() -> list[tuple[Result, float]]:
    """Runs in this process, each with the seconds of processor time it took."""
    warm_up()
    measured = []
    for seed in range(1, ALONE + 1):
        before = time.process_time()
        result = run(generate(seed))
        measured.append((result, time.process_time() - before))
    return measured


def _growth(name: str, size: Callable[[Plan], int], measured: Sequence[tuple[Result, float]]) -> tuple[float, float]:
    """The mean size and cost of the larger half of the seeds over those of the smaller half."""
    ordered = sorted(measured, key=lambda one: size(one[0].plan))
    middle = len(ordered) // 2
    sizes, costs = [], []
    for half in (ordered[:middle], ordered[middle:]):
        sizes.append(statistics.mean(size(result.plan) for result, _ in half))
        costs.append(statistics.mean(seconds for _, seconds in half))
        commits = statistics.mean(result.commits for result, _ in half)
        print(f"{sizes[-1]:>9.1f} {name:<8} {costs[-1] * 1e3:>8.0f} ms {commits:>8.0f} commits")
    return sizes[1] / sizes[0], costs[1] / costs[0]


def main() -> None:
    jobs = os.cpu_count() or 1
    measured = _alone()
    more_agents, by_agents = _growth("agents", _agents, measured)
    more_queries, by_queries = _growth("queries", _queries, measured)
    began = time.perf_counter()
    outcomes = list(run_seeds(range(1, SEEDS + 1), jobs))
    seconds = time.perf_counter() - began
    rate = SEEDS / seconds
    simulated = sum(outcome.simulated for outcome in outcomes) / seconds
    failed = sum(outcome.failure is not None for outcome in outcomes)
    print(f"{SEEDS} seeds in {seconds:.1f} s on {jobs} cores: {rate:.1f} seeds/s, {failed} failed")
    print(f"{simulated:.0f} simulated seconds in each second")
    print(
        json.dumps(
            {
                "name": "simulation",
                "ratio": round(rate / MUST, 3),
                "goal": ">= 1",
                "seeds_per_second": round(rate, 2),
                "simulated_over_real": round(simulated, 1),
                "cpu_ms_per_seed": round(statistics.mean(cost for _, cost in measured) * 1e3, 1),
                "growth_agents": {"size": round(more_agents, 2), "cost": round(by_agents, 2)},
                "growth_queries": {"size": round(more_queries, 2), "cost": round(by_queries, 2)},
                "failed": failed,
                "jobs": jobs,
            }
        )
    )


if __name__ == "__main__":
    main()
