"""Plans mean what they say."""

from __future__ import annotations

import ast
from dataclasses import fields
from pathlib import Path

import pytest

import headgate_simulation
from headgate_simulation.plan import AgentSpec, LogPlan, Plan, Weather

# Those that make plans, keep them in files and make smaller ones carry nothing out.
_MAKE_PLANS = {"plan", "plan_file", "shrink", "generate", "log_generate", "group_generate", "fault_plans", "use_plans"}


def _read_by_a_run() -> set[str]:
    """Names of attributes that the rest of the simulator reads."""
    names = set()
    for path in Path(headgate_simulation.__file__).parent.glob("*.py"):
        if path.stem not in _MAKE_PLANS:
            nodes = ast.walk(ast.parse(path.read_text()))
            names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return names


@pytest.mark.parametrize("kind", [Plan, LogPlan, Weather, AgentSpec])
def test_a_run_goes_by_everything_that_its_plan_says(kind: type) -> None:
    assert {field.name for field in fields(kind)} - _read_by_a_run() == set()
