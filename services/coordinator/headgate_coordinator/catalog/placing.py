"""Which agent a source or sink belongs to."""

from __future__ import annotations

import json

from sqlalchemy import select

from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.agent_rows import agent_uid
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import AGENT_AMBIGUOUS
from headgate_coordinator.sql.names import fold

# How many agents an error names.
NAMED = 20


def choose_agent(tx: Tx, asked: str, node_local: bool, what: str) -> str | None:
    """The uid of the agent asked for, or of the only one that can run fragments where something node-local names none.

    None where none is asked for and none is needed.
    """
    if asked:
        return agent_uid(tx, fold(asked))
    if not node_local:
        return None
    rows = tx.connection.execute(select(agents.c.uid, agents.c.name, agents.c.roles).order_by(agents.c.name))
    eligible = [row for row in rows if "FRAGMENTS" in json.loads(row.roles)]
    if len(eligible) == 1:
        found: str = eligible[0].uid
        return found
    names = [row.name for row in eligible]
    listed = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    problem = f"there are several: {listed}" if names else "there is none that runs fragments"
    raise HeadgateError(
        AGENT_AMBIGUOUS,
        f"{what} needs an agent, none is named, and {problem}",
        metadata={"agents": ",".join(names[:NAMED]), "count": str(len(names))},
    )
