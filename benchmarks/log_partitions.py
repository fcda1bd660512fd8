"""What partitions cost: memory and processor time of an agent that leads 1,000 idle ones, over one that leads 10.

`ratio` is the memory that a partition takes, measured over the last 990 of them, over 100 KiB. Object-store requests of
idle partitions are counted too: there should be none.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

from brokers import Broker, Load, produce

from tests.chaos.servers import running_log_agent
from tests.e2e.api.kit import running_coordinator

GOAL = "<= 1.0"
ALLOWED_KIB = 100.0
FEW, MANY = 10, 1000
SETTLE, SPAN = 15.0, 30.0


def idle(folder: Path, partitions: int) -> dict[str, float]:
    with ExitStack() as stack:
        folder.mkdir()
        coordinator = stack.enter_context(running_coordinator(folder))
        agent = stack.enter_context(running_log_agent(folder, "agent", coordinator.address))
        broker = Broker("Headgate", agent.kafka, (agent.process.pid,), (agent.http,))
        # Uploaded before the measuring begins.
        broker.create("many", partitions, {"headgate.durability": "WAL", "segment.ms": "1000"})
        # One record in each: a partition that was never written to costs less.
        produce(broker, "many", Load(100, 1, 100 * partitions * 4))
        time.sleep(SETTLE)
        used, asked, began = broker.processor_seconds(), broker.object_requests(), time.monotonic()
        time.sleep(SPAN)
        span = time.monotonic() - began
        return {
            "memory_mib": broker.memory_mib(),
            "share_of_a_core": (broker.processor_seconds() - used) / span,
            "requests_per_partition_hour": (broker.object_requests() - asked) / partitions / span * 3600,
        }


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="headgate-bench-") as folder:
        found = {count: idle(Path(folder) / str(count), count) for count in (FEW, MANY)}
    print(f"{'partitions':>10}{'memory MiB':>14}{'share of a core':>18}{'requests per partition-hour':>30}")
    for count, one in found.items():
        print(
            f"{count:>10}{one['memory_mib']:>14.1f}{one['share_of_a_core']:>18.4f}"
            f"{one['requests_per_partition_hour']:>30.2f}"
        )
    each = (found[MANY]["memory_mib"] - found[FEW]["memory_mib"]) * 1024 / (MANY - FEW)
    figures = {str(count): {key: round(value, 4) for key, value in one.items()} for count, one in found.items()}
    ratio = round(each / ALLOWED_KIB, 3)
    print(json.dumps({"name": "log_partitions", "ratio": ratio, "goal": GOAL, "kib_each": round(each, 1), **figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
