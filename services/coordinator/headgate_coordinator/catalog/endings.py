"""What the end of an agent's session means, in the transaction that ends it.

The agent is no longer present, nobody leads its partitions, and nobody hands over to or from it any more. Watchers are
told all of it at once.
"""

from __future__ import annotations

from sqlalchemy import bindparam, select

from headgate_coordinator.catalog import agent_rows, sessions
from headgate_coordinator.catalog.log import leads, partitions, transfers
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.sessions import Grant
from headgate_coordinator.catalog.tx import Tx

_AGENT = select(agents.c.uid, agents.c.name).where(agents.c.session_uid == bindparam("session_"))


def end_session(tx: Tx, uid: str) -> list[Grant]:
    """Ends the session, if there is one; what was granted to it is the answer."""
    agent = tx.connection.execute(_AGENT, {"session_": uid}).one_or_none()
    if agent is None:
        return sessions.close(tx, uid)
    transfers.fail_of_session(tx, uid, agent.name)
    led = partitions.held_by(tx, uid)
    with partitions.recorded(tx, led, cause=leads.leader_gone(agent.name)):
        agent_rows.update_agent(tx, agent.uid, session_uid=None)
        if led:
            leads.lost(tx, uid, agent.name)
        return sessions.close(tx, uid)


def expire_session(tx: Tx, uid: str, renewals: int) -> list[Grant] | None:
    """As `end_session`, for an observer that saw `renewals` unchanged for the whole TTL; None if they have changed."""
    if not sessions.unrenewed(tx, uid, renewals):
        return None
    return end_session(tx, uid)
