"""Bugs that make queries fail though nothing is wrong, planted as in `planted.py`, for plans with queries."""

from __future__ import annotations

from headgate_simulation.planted import Edit, Planted

PLANTED: tuple[Planted, ...] = (
    Planted(
        "a run that broke is not tried again",
        "a query fails for what would have passed by itself",
        (
            Edit(
                "headgate_coordinator.catalog.agent_status:_Application._advance",
                'if state == "FAILED" and not error.transient:',
                'if state == "FAILED":',
            ),
        ),
    ),
    Planted(
        "a deadline passes early",
        "a query is told that it took too long before it did",
        (
            Edit(
                "headgate_coordinator.query.case:decide_case",
                "memory.deploying_for >= query.deployment_deadline",
                "memory.deploying_for >= query.deployment_deadline / 2",
            ),
        ),
    ),
    Planted(
        "every error of an agent is a refusal",
        "a query fails because a call about it was not answered",
        (
            Edit(
                "headgate_coordinator.query.answers:classify",
                "return REFUSED if error.reason.code in _FINAL else TRANSIENT",
                "return REFUSED",
            ),
        ),
    ),
)
