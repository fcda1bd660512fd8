"""Where a fragment goes that must leave its agent, by the rules of the planner, against what the transaction sees."""

from __future__ import annotations

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.planner_view import load_topology
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import INSUFFICIENT_CAPACITY, PLACEMENT_ERROR
from headgate_coordinator.sql.place import replace_fragment


def choose_agent(tx: Tx, plan: catalog.QueryPlan, ordinal: int, leaving: str) -> str | None:
    """The uid of an ACTIVE agent with room for the fragment, other than `leaving`; None where there is none."""
    now = load_topology(tx)
    try:
        return replace_fragment(plan, ordinal, now.agents, now.links, exclude=lambda agent: agent.uid == leaving).uid
    except HeadgateError as error:
        if error.reason in (PLACEMENT_ERROR, INSUFFICIENT_CAPACITY):
            return None
        raise
