"""Which coordinator leads: the grant `coordinator/leader` on a session, whose epoch is the term.

No wall clock decides. A standby watches the leader's renewals on its own monotonic clock and takes over after it has
seen none for the whole TTL; the leader counts from before it sent a renewal, stops its controllers a margin before
anyone can take over, and only then gives up. What it might still have under way is harmless: every write is checked
against the term in its own transaction, and agents refuse the commands of a lower term.

Taking over after the death of a leader takes at most the TTL, plus two looks (each a third of the TTL), plus one
transaction (`take_over_within`). Where the store is open to this process only (`sole`: an SQLite file under its lock),
whoever held the grant before is dead, so it passes at once.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import sessions
from headgate_coordinator.catalog.sessions import Grant, Session
from headgate_coordinator.catalog.store import LEADER_KEY, LEADER_KIND, Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.config import Timings
from headgate_coordinator.errors import GRANT_CONFLICT, NOT_LEADER, SESSION_EXPIRED

log = logging.getLogger(__name__)

# An agent that says it obeys a term so far above is not believed: a catalog put back loses fewer.
MAX_TERMS_LOST = 1_000_000
# A standby looks so many times in a TTL.
LOOKS = 3
# Runs the controllers of a term: ends when cancelled, or with NOT_LEADER.
Lead = Callable[[int], Awaitable[None]]


def take_over_within(timings: Timings) -> float:
    """Seconds from the death of a leader until a standby has begun the transaction that makes it the next.

    The last renewal is seen a look later, the silence after it has lasted for the TTL another look later.
    """
    return timings.leader_ttl * (1 + 2 / LOOKS)


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads, as last seen; `address` is empty if nobody does."""

    address: str = ""
    term: int = 0


@dataclass(frozen=True, slots=True)
class _Seen:
    """The grant and the renewals of its holder."""

    grant: Grant | None
    holder: Session | None


class Leadership:
    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        source: random.Random,
        timings: Timings,
        holder: str,
        address: str,
        lead: Lead,
        sole: bool = False,
    ) -> None:
        """`holder` names this process, `address` is where it is called, `lead` runs its controllers."""
        self._store = store
        self._clock = clock
        self._source = source
        self._timings = timings
        self._holder = holder
        self._address = address
        self._lead = lead
        self._sole = sole
        self._leader = Leader()
        self._term = 0
        # Until when this process may act as the leader, on its own clock.
        self._valid_until = 0.0
        self._session: str = ""
        # The highest term that an agent is known to obey.
        self._obeyed = 0
        self._surpassed = asyncio.Event()
        self._changed = asyncio.Event()

    @property
    def leader(self) -> Leader:
        """Who leads, as last seen. A former session of this process in the catalog says nothing: nobody leads then."""
        if self._leader.address == self._address and self.term is None:
            return Leader("", self._leader.term)
        return self._leader

    @property
    def term(self) -> int | None:
        """The term if this process leads and may act on it now, else None."""
        if self._term and self._clock.monotonic() < self._valid_until:
            return self._term
        return None

    def require_term(self) -> int:
        """The term, or NOT_LEADER with the address of who leads."""
        term = self.term
        if term is None:
            known = self.leader.address
            raise HeadgateError(
                NOT_LEADER,
                f"this coordinator does not lead; {known or 'nobody'} does" if known else "no coordinator leads now",
                metadata={"leader": known, "term": str(self.leader.term)},
            )
        return term

    def surpassed(self, term: int) -> None:
        """An agent obeys a higher term than this process's. Its own ends.

        There is another leader, and the catalog knows it; or the catalog was put back to an earlier state, and does
        not: then the next term is above the one that agents obey, or none of them would ever obey again.
        """
        if self._term and self._term < term <= self._term + MAX_TERMS_LOST:
            self._obeyed = max(self._obeyed, term)
            self._surpassed.set()

    async def changed(self) -> None:
        """Returns after the next change of `leader` or `term`."""
        await self._changed.wait()

    async def run(self) -> None:
        """Stands by, leads, stands by again, until it is cancelled. On cancellation the grant is released."""
        try:
            while True:
                term = await self._stand_by()
                await self._lead_until_lost(term)
        finally:
            await self._step_down()

    # Standing by

    async def _stand_by(self) -> int:
        """Watches until the leadership is this process's; the term is the answer."""
        seen: _Seen | None = None
        unchanged_since = 0.0
        while True:
            try:
                found = await self._store.read(_look)
                now = self._clock.monotonic()
                self._tell(found)
                if seen is None or found != seen:
                    seen, unchanged_since = found, now
                if self._may_take(found, now - unchanged_since):
                    term = await self._take(found)
                    if term is not None:
                        return term
                    seen = None
            except HeadgateError as error:
                log.warning("the leadership cannot be looked at", extra={"error": str(error)})
                # What was not seen cannot count as silence.
                seen = None
            await asyncio.sleep(self._timings.leader_ttl / LOOKS * self._source.uniform(0.8, 1.0))

    def _may_take(self, found: _Seen, silent_for: float) -> bool:
        if found.holder is None or self._sole:
            return True
        return silent_for >= found.holder.ttl

    async def _take(self, found: _Seen) -> int | None:
        """The new term, or None if somebody was faster."""
        # The session is alive from before it was written.
        started = self._clock.monotonic()
        try:
            session, term = await self._store.write(lambda tx: self._take_over(tx, found))
        except HeadgateError as error:
            if error.reason not in (GRANT_CONFLICT, SESSION_EXPIRED):
                raise
            return None
        self._session = session
        self._begin(term, started)
        log.info("this coordinator leads", extra={"term": term, "holder": self._holder})
        return term

    def _take_over(self, tx: Tx, found: _Seen) -> tuple[str, int]:
        """Ends the session that was seen silent, if it is as it was seen, and takes the grant."""
        if found.holder is not None:
            if self._sole:
                sessions.close(tx, found.holder.uid)
            else:
                sessions.expire(tx, found.holder.uid, found.holder.renewals)
        session = sessions.open_session(tx, self._holder, self._address, self._timings.leader_ttl)
        return session.uid, sessions.acquire(tx, LEADER_KIND, LEADER_KEY, session.uid, above=self._obeyed)

    def _tell(self, found: _Seen) -> None:
        grant = found.grant
        leader = Leader() if grant is None else Leader(grant.address, grant.epoch)
        if leader != self._leader:
            self._leader = leader
            self._announce()

    # Leading

    async def _lead_until_lost(self, term: int) -> None:
        controllers = asyncio.ensure_future(self._lead(term))
        renewing = asyncio.ensure_future(self._renew_until_lost())
        surpassed = asyncio.ensure_future(self._surpassed.wait())
        try:
            await asyncio.wait((controllers, renewing, surpassed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # From here on nothing of this process acts as the leader.
            self._end_term()
            if self._surpassed.is_set():
                log.warning("agents obey a higher term", extra={"term": term, "obeyed": self._obeyed})
                self._surpassed.clear()
            for task in (controllers, renewing, surpassed):
                task.cancel()
            results = await asyncio.gather(controllers, renewing, surpassed, return_exceptions=True)
        for result in results:
            if isinstance(result, HeadgateError):
                log.warning("this coordinator no longer leads", extra={"term": term, "error": str(result)})
            elif isinstance(result, Exception):
                log.error("a defect ended the term", extra={"term": term}, exc_info=result)
        await self._step_down()

    async def _renew_until_lost(self) -> None:
        """Renews until that fails for good, or time is up on this process's own clock."""
        while True:
            left = self._valid_until - self._clock.monotonic()
            if left <= 0:
                raise HeadgateError(NOT_LEADER, "the session could not be renewed in time")
            await asyncio.sleep(min(left, self._timings.leader_renew))
            started = self._clock.monotonic()
            left = self._valid_until - started
            if left <= 0:
                continue
            try:
                async with asyncio.timeout(left):
                    await self._store.write(lambda tx: sessions.renew(tx, self._session), self._term)
            except TimeoutError:
                continue
            except HeadgateError as error:
                if error.reason in (NOT_LEADER, SESSION_EXPIRED):
                    raise
                log.warning("the leader's session could not be renewed", extra={"error": str(error)})
                continue
            self._valid_until = started + self._timings.leader_ttl - self._timings.leader_margin

    def _begin(self, term: int, started: float) -> None:
        self._term = term
        self._valid_until = started + self._timings.leader_ttl - self._timings.leader_margin
        self._leader = Leader(self._address, term)
        self._announce()

    def _end_term(self) -> None:
        self._term = 0
        self._valid_until = 0.0
        self._announce()

    async def _step_down(self) -> None:
        """Releases the grant, so that nobody has to wait. Best effort: silence does it too."""
        session, self._session = self._session, ""
        self._term = 0
        if not session:
            return
        try:
            async with asyncio.timeout(self._timings.leader_renew):
                await self._store.write(lambda tx: sessions.close(tx, session))
        except (HeadgateError, TimeoutError) as error:
            log.info("the leadership was left to expire", extra={"error": str(error)})

    def _announce(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _look(tx: Tx) -> _Seen:
    grant = sessions.get_grant(tx, LEADER_KIND, LEADER_KEY)
    if grant is None or not grant.session:
        return _Seen(grant, None)
    return _Seen(grant, sessions.get_session(tx, grant.session))
