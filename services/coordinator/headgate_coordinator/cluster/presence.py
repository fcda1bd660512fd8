"""Keeps the sessions of agents: their renewals are counted in the leader's memory, their end is written.

A session that is not renewed for its whole TTL, on the leader's own clock and since it leads, is ended in the catalog
with every grant on it. A renewal is answered only if the session will not be ended because of an earlier silence.

Each answer says when to renew next, so that sessions renew in groups, spread evenly over a third of the TTL: calls that
come together cost an idle coordinator half of what they cost one by one.
"""

from __future__ import annotations

import asyncio
import logging
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
# How often a session is renewed in its TTL.
RENEWALS = 3
# Groups that renew together: at least so many in the time between two renewals of a session, and more where a group
# would have more members than this.
GROUPS = 4
GROUP_SIZE = 50
# How early a renewal may come, as a share of the time between groups, and still be taken for its own group's.
EARLY = 0.1


@dataclass(frozen=True, slots=True)
class Renewed:
    """In seconds: how long the session lives from now on, and when it is to be renewed next."""

    ttl: float
    renew_after: float


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
                        # Unless it was renewed while those before it were ended.
                        if self._observer.is_overdue(session.uid):
                            await self._end(session, term)
                except HeadgateError as error:
                    if error.reason is NOT_LEADER:
                        raise
                    log.warning("sessions cannot be looked at", extra={"error": str(error)})
                await asyncio.sleep(self._interval)
        finally:
            self._forget_everything()

    async def renew(self, uid: str, version: int = 0, reports: Sequence[cluster.FragmentReport] = ()) -> Renewed:
        """SESSION_EXPIRED if the session has ended; NOT_LEADER on a standby."""
        if not self._leads:
            raise HeadgateError(NOT_LEADER, "this coordinator does not lead, so it cannot renew sessions")
        if uid not in self._sessions and uid not in self._ending:
            await self._look()
        agent = self._agents.get(uid)
        # The session of an agent that was dropped runs out.
        if agent is None or uid in self._ending or not self._observer.renewed(uid):
            raise HeadgateError(
                SESSION_EXPIRED, f"session {uid} has ended, and with it every grant on it", metadata={"session": uid}
            )
        self._renewed(agent, version)
        self._reported(reports)
        ttl = self._sessions[uid].ttl
        return Renewed(ttl, self._renew_after(uid, ttl))

    def _renew_after(self, uid: str, ttl: float) -> float:
        """Until the moment of the session's group: a third of the TTL, once it renews with its group."""
        between = ttl / RENEWALS
        groups = max(GROUPS, math.ceil(len(self._sessions) / GROUP_SIZE))
        step = between / groups
        moment = zlib.crc32(uid.encode()) % groups * step
        # The last of its group's moments that is no later than this.
        latest = between + step * EARLY
        return latest - (self._clock.monotonic() + latest - moment) % between

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
