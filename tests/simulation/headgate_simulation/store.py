"""The catalog in a run: production's store on SQLite, with its queue and its groups, on a database in memory whose
commits fail, hang or are the last thing a coordinator does.

What is simulated around it: its threads are moments of the event loop, so that a transaction takes time and others get
in between; a commit may fail before or after it took effect, for all operations that share it, and none of their
callers can tell which; the database may be out of reach; the process may die in the middle of a group, right before its
commit, or right after it. Whoever watches the run is told of every operation that becomes durable with the catalog as
that operation left it, before anybody else can know; and then that the group is complete.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from sqlalchemy.exc import OperationalError

from headgate_coordinator.catalog.changes import Revision
from headgate_coordinator.catalog.sqlite import SqliteStore
from headgate_coordinator.catalog.store import Operation, Outcome, StoreSettings, unavailable, uncertain
from headgate_coordinator.catalog.threaded import Work
from headgate_coordinator.catalog.tx import Tx
from headgate_simulation.calls import CAUSE
from headgate_simulation.database import FastDatabase, Session
from headgate_simulation.loop import Killed, SimulationError
from headgate_simulation.plan import Weather
from headgate_simulation.processes import Environment

T = TypeVar("T")


@dataclass(slots=True)
class StoreFaults:
    """What is wrong with one coordinator's access to the catalog just now. Changed by `faults.py`."""

    # Whether the database cannot be reached.
    unreachable: int = 0
    # Shares of commits that fail before, or after, they took effect.
    fails_before: float = 0.0
    fails_after: float = 0.0
    # How much longer each commit takes.
    delay: float = 0.0
    # Whether the process dies at its next commit: "before" it, "after" it, or not at all.
    dies: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """One operation that has become durable."""

    coordinator: str
    term: int | None
    # The operation of a client on whose behalf it was made; empty for the controllers' own.
    cause: str
    revision: Revision | None


class SimulatedStore(SqliteStore):
    """See the module."""

    def __init__(
        self,
        database: FastDatabase,
        environment: Environment,
        faults: StoreFaults,
        *,
        weather: Weather,
        settings: StoreSettings,
        committed: Callable[[Commit], None],
        settled: Callable[[], None],
        die: Callable[[], None],
    ) -> None:
        # (past that of SqliteStore, which makes an engine: that takes a millisecond, and there is a database already)
        # Instead of polling, it is told when there is something to find: see `look_soon`.
        super(SqliteStore, self).__init__(
            clock=environment.clock, ids=environment.ids, settings=replace(settings, poll_interval=0.0)
        )
        self._writing = None
        self._engine = cast(Any, database)
        self._database = database
        self._environment = environment
        self._faults = faults
        self._delay = weather.store_delay
        self._commit_delay = weather.commit_delay
        self._source: random.Random = environment.random
        self._committed = committed
        self._settled = settled
        self._die = die
        self._poll_interval = settings.poll_interval
        self._looking: asyncio.TimerHandle | None = None
        # When each thread for reads is free.
        self._free = [0.0] * settings.readers
        # The member of a group that ran last and is not rolled back; whether the group will not be committed.
        self._ran: tuple[_Member[Any], Tx] | None = None
        self._doomed = False
        # How many members of a group are begun before the process dies.
        self._lives_for: int | None = None
        database.followers.append(self)

    @property
    def alive(self) -> bool:
        return self._environment.domain.alive

    def write(self, operation: Operation[T], term: int | None = None) -> Coroutine[Any, Any, T]:
        return super().write(_Member(self, operation, term, CAUSE.get()), term)

    def _pump(self) -> None:
        """As the real one: a group is nobody's in particular, whoever's operation comes first."""
        if self._group is None and self._queue:
            self._environment.domain.context.copy().run(super()._pump)

    # Threads

    def run_on_thread(self, work: Callable[[], Any], name: str) -> asyncio.Future[Any]:
        """See `loop.py`."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()
        if name == "_commit_group":
            longer = self._commit_delay * self._source.random() if self._commit_delay else 0.0
            loop.call_later(self._pause() + longer, self._write_now, work, answer)
        elif name == "_read_once":
            free = self._free
            thread = free.index(min(free))
            free[thread] = max(free[thread], loop.time()) + self._pause()
            loop.call_at(free[thread], _run_now, work, answer)
        elif name in ("_open_database", "_end_threads"):
            loop.call_later(self._pause(), _run_now, work, answer)
        else:
            # Under another name a commit would be one that nothing can happen to.
            raise SimulationError(f"it is not said on which thread {name} runs")
        return answer

    def _pause(self) -> float:
        return self._delay * self._source.random() + self._faults.delay * self._source.random()

    def _write_now(self, work: Callable[[], list[Outcome]], answer: asyncio.Future[list[Outcome]]) -> None:
        try:
            outcomes = work()
        except Exception as error:
            self.look_soon()
            if not answer.done():
                answer.set_exception(error)
            return
        after = self._delay * self._source.random()
        asyncio.get_running_loop().call_later(after, self._return, outcomes, answer)

    def _return(self, outcomes: list[Outcome], answer: asyncio.Future[list[Outcome]]) -> None:
        """What the database answers to a commit arrives, or does not."""
        faults = self._faults
        committed = any(outcome.error is None for outcome in outcomes)
        if committed and (faults.unreachable or (faults.fails_after and self._source.random() < faults.fails_after)):
            self.look_soon()
            answer.set_exception(uncertain("the connection broke after the commit"))
        else:
            answer.set_result(outcomes)

    def _end_threads(self) -> None:
        if self in self._database.followers:
            self._database.followers.remove(self)
        if self._looking is not None:
            self._looking.cancel()

    # Transactions

    def _open_database(self) -> int:
        self._require_reachable()
        head: int = self._database.head
        return head

    def _commit_group(self, group: Sequence[Work]) -> list[Outcome]:
        faults, source = self._faults, self._source
        self._environment.domain.check()
        self._require_reachable()
        fails = bool(faults.fails_before) and source.random() < faults.fails_before
        self._lives_for = source.randrange(len(group) + 1) if faults.dies == "before" else None
        self._doomed = fails or self._lives_for is not None
        self._ran = None
        try:
            outcomes = super()._commit_group(group)
        except BaseException:
            self._drop_writer()
            raise
        self._tell_of_it()
        head = max((outcome.revision.number for outcome in outcomes if outcome.revision is not None), default=0)
        if head:
            self._database.head = head
            for other in self._database.followers:
                if other is not self:
                    other.look_soon()
        if any(outcome.error is None for outcome in outcomes):
            self._settled()
            if faults.dies == "after":
                self._dies()
        return outcomes

    def begins(self) -> None:
        """A member of the group is about to run."""
        if self._lives_for is not None:
            self._lives_for -= 1
            if self._lives_for < 0:
                self._dies()
        self._tell_of_it()

    def stands(self, member: _Member[Any], tx: Tx) -> None:
        """It has run and was not refused."""
        self._ran = (member, tx)

    def _tell_of_it(self) -> None:
        """Of the member that ran last: nothing can undo it any more but what is known already."""
        if self._ran is None or self._doomed:
            return
        (member, tx), self._ran = self._ran, None
        changes = tx.changes
        revision = Revision(tx.revision, tx.now, tuple(changes), 0) if changes else None
        self._committed(Commit(self._environment.name, member.term, member.cause, revision))

    def committing(self) -> None:
        """The commit of a group is sent."""
        if self._lives_for is not None:
            self._dies()
        if self._doomed:
            raise OperationalError("COMMIT", None, ConnectionError("the connection broke before the commit"))

    def _write_connection(self) -> Any:
        if self._writing is None:
            self._writing = cast(Any, Session(self._database, self.committing))
        return self._writing

    def _read_once(self, operation: Operation[T]) -> T:
        self._environment.domain.check()
        self._require_reachable()
        return self._database.read(lambda connection, head: operation(Tx(connection, self._now(), head, self._ids)))

    def _require_reachable(self) -> None:
        if self._faults.unreachable:
            raise unavailable("the database is out of reach")

    def _dies(self) -> None:
        self._faults.dies = ""
        self._die()
        raise Killed(self._environment.name)

    # What others commit

    def look_soon(self) -> None:
        """There is something that this process may not know. It polls: it finds it a little later, in its own life."""
        if self._looking is None and not self._closed:
            loop = asyncio.get_running_loop()
            context = self._environment.domain.context.copy()
            self._looking = loop.call_later(self._poll_interval, self._polled, context=context)

    def _polled(self) -> None:
        self._looking = None
        if not self._closed and self._feed.position < self._database.head:
            if not self._faults.unreachable:
                self._look()
            self.look_soon()


class _Member(Generic[T]):
    """An operation in its group: whose it is, and what became of it."""

    __slots__ = ("_operation", "_store", "cause", "term")

    def __init__(self, store: SimulatedStore, operation: Operation[T], term: int | None, cause: str) -> None:
        self._store = store
        self._operation = operation
        self.term = term
        self.cause = cause

    def __call__(self, tx: Tx) -> T:
        self._store.begins()
        result = self._operation(tx)
        self._store.stands(self, tx)
        return result


def _run_now(work: Callable[[], T], answer: asyncio.Future[T]) -> None:
    try:
        result = work()
    except Exception as error:
        if not answer.done():
            answer.set_exception(error)
        return
    if not answer.done():
        answer.set_result(result)
