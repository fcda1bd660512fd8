"""What the end of an agent's session means, in the transaction that ends it.

The agent is no longer present, nobody leads its partitions, and nobody hands over to or from it any more. Watchers are
told all of it at once.

Who is dropped may be alive, and act on what it was granted for as long as it believes in its session. So a session with
grants outlives its agent: it cannot be renewed (`Presence`), and what it holds passes on when it has run out.
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
    led = partitions.held_by(tx, uid)
    if agent is None and not led:
        return sessions.close(tx, uid)
    name = agent.name if agent is not None else agent_rows.agent_of(sessions.get_session(tx, uid).holder)
    transfers.fail_of_session(tx, uid, name)
    with partitions.recorded(tx, led, cause=leads.leader_gone(name)):
        if agent is not None:
            agent_rows.update_agent(tx, agent.uid, session_uid=None)
        if led:
            leads.lost(tx, uid, name)
        return sessions.close(tx, uid)


def let_run_out(tx: Tx, uid: str) -> None:
    """The agent of the session is dropped: it is not present any more, and the session ends when nobody can believe in
    it, which is now if it holds nothing."""
    agent = tx.connection.execute(_AGENT, {"session_": uid}).one()
    if not sessions.list_grants(tx, uid):
        end_session(tx, uid)
        return
    transfers.fail_of_session(tx, uid, agent.name)
    with partitions.recorded(tx, partitions.held_by(tx, uid)):
        agent_rows.update_agent(tx, agent.uid, session_uid=None)
        leads.leader_dropped(tx, uid, agent.name)


def expire_session(tx: Tx, uid: str, renewals: int) -> list[Grant] | None:
    """As `end_session`, for an observer that saw `renewals` unchanged for the whole TTL; None if they have changed."""
    if not sessions.unrenewed(tx, uid, renewals):
        return None
    return end_session(tx, uid)
