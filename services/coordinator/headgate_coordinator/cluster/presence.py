"""Keeps the sessions of agents: their renewals are counted in the leader's memory, their end is written.

A session that is not renewed for its whole TTL, on the leader's own clock and since it leads, is ended in the catalog
with every grant on it. A renewal is answered only if the session will not be ended because of an earlier silence.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from sqlalchemy import select

from headgate.cluster import v1 as cluster
from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import endings, sessions
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.sessions import Observer, Session
from headgate_coordinator.catalog.store import LEADER_KEY, LEADER_KIND, Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import NOT_LEADER, SESSION_EXPIRED

log = logging.getLogger(__name__)

# How many grants of a session that ended are named in the log.
LOGGED_GRANTS = 10


class Presence:
    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        interval: float,
        renewed: Callable[[str, int], None] = lambda agent_uid, version: None,
        reported: Callable[[Sequence[cluster.FragmentReport]], None] = lambda reports: None,
    ) -> None:
        """Looks every `interval` seconds; `renewed` is told which agent has just renewed, and its status version.

        `reported` is given what the agent says of its runs, if its session lives.
        """
        self._store = store
        self._clock = clock
        self._interval = interval
        self._renewed = renewed
        self._reported = reported
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._leads = False
        self._observer = Observer(self._clock)
        # Sessions that are being ended: too late for a renewal.
        self._ending: set[str] = set()
        self._sessions: dict[str, Session] = {}
        self._agents: dict[str, str] = {}

    async def run(self, term: int) -> None:
        """Goes on until it is cancelled, or raises NOT_LEADER when `term` is over."""
        self._forget_everything()
        self._leads = True
        try:
            while True:
                try:
                    await self._look()
                    for session in self._observer.overdue():
                        await self._end(session, term)
                except HeadgateError as error:
                    if error.reason is NOT_LEADER:
                        raise
                    log.warning("sessions cannot be looked at", extra={"error": str(error)})
                await asyncio.sleep(self._interval)
        finally:
            self._forget_everything()

    async def renew(self, uid: str, version: int = 0, reports: Sequence[cluster.FragmentReport] = ()) -> float:
        """The TTL from now, in seconds. SESSION_EXPIRED if the session has ended; NOT_LEADER on a standby."""
        if not self._leads:
            raise HeadgateError(NOT_LEADER, "this coordinator does not lead, so it cannot renew sessions")
        if uid not in self._sessions and uid not in self._ending:
            await self._look()
        if uid in self._ending or not self._observer.renewed(uid):
            raise HeadgateError(
                SESSION_EXPIRED, f"session {uid} has ended, and with it every grant on it", metadata={"session": uid}
            )
        agent = self._agents.get(uid)
        if agent is not None:
            self._renewed(agent, version)
            self._reported(reports)
        return self._sessions[uid].ttl

    async def _look(self) -> None:
        listed, agents_by_session = await self._store.read(_listing)
        self._observer.see(listed)
        self._sessions = {session.uid: session for session in listed}
        self._agents = agents_by_session

    async def _end(self, session: Session, term: int) -> None:
        self._ending.add(session.uid)
        try:
            ended = await self._store.write(lambda tx: endings.expire_session(tx, session.uid, session.renewals), term)
        finally:
            # Whether it has ended is in the catalog; the next look, or the next renewal, sees it.
            self._ending.discard(session.uid)
            self._sessions.pop(session.uid, None)
        if ended is not None:
            grants = ", ".join(f"{grant.kind}/{grant.key}" for grant in ended[:LOGGED_GRANTS])
            if len(ended) > LOGGED_GRANTS:
                grants += f" and {len(ended) - LOGGED_GRANTS} more"
            log.info("a session ended", extra={"session": session.uid, "holder": session.holder, "grants": grants})


_SESSIONS_OF_AGENTS = select(agents.c.session_uid, agents.c.uid).where(agents.c.session_uid.is_not(None))


def _listing(tx: Tx) -> tuple[list[Session], dict[str, str]]:
    found = tx.connection.execute(_SESSIONS_OF_AGENTS)
    leads = sessions.get_grant(tx, LEADER_KIND, LEADER_KEY)
    # Who leads is not this room's business.
    listed = [session for session in sessions.list_sessions(tx) if leads is None or session.uid != leads.session]
    return listed, {row.session_uid: row.uid for row in found}
