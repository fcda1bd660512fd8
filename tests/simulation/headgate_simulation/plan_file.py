"""Plans as JSON: a seed means another plan when the generator changes, a file means the same for ever."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from headgate_simulation.plan import AgentSpec, Fault, LogPlan, Operation, Plan, Weather


def dump(plan: Plan, about: str) -> str:
    """`about` says what was wrong when it failed."""
    made = {"about": about, **asdict(plan)}
    made["operations"] = [_item(operation) for operation in plan.operations]
    made["faults"] = [_item(fault) for fault in plan.faults]
    return json.dumps(made, indent=1) + "\n"


def load(text: str) -> tuple[str, Plan]:
    """What was wrong, and the plan."""
    found: dict[str, Any] = json.loads(text)
    about = found.pop("about")
    found["agents"] = tuple(AgentSpec(**{**agent, "peers": tuple(agent.get("peers", ()))}) for agent in found["agents"])
    found["weather"] = Weather(**found["weather"])
    found["operations"] = tuple(Operation(**_arguments(item)) for item in found["operations"])
    found["faults"] = tuple(Fault(**_arguments(item)) for item in found["faults"])
    found["log"] = LogPlan(**found["log"]) if found["log"] is not None else None
    return about, Plan(**found)


def _item(item: Operation | Fault) -> dict[str, Any]:
    return {**asdict(item), "arguments": dict(item.arguments)}


def _arguments(item: dict[str, Any]) -> dict[str, Any]:
    return {**item, "arguments": tuple((name, _tuples(value)) for name, value in item["arguments"].items())}


def _tuples(value: Any) -> Any:
    """JSON has lists where plans have tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
