"""What clients asked, what they were answered, and whether the two fit one order of events.

Names and slots must be linearizable: every answer must be what a catalog that does one thing at a time could have
answered at some moment between the question and the answer. The commits of a run are such an order already, so the
check is exact and cheap: `History` writes down, commit by commit, from when to when each name was taken and by which
uid, and holds every answer against that.

A client that was told "perhaps" (a time-out, a lost connection, an uncertain commit) may find either. What it was told
for certain must be so: nothing accepted is lost, nothing accepted twice, nothing refused happens, and nothing that is
gone comes back.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_simulation.plan import Operation
from headgate_simulation.reads import Reads
from headgate_simulation.refusals import Refusals
from headgate_simulation.store import Commit
from headgate_simulation.violation import fail

# Reasons after which the request may have happened, or may happen yet.
PERHAPS = frozenset({"UNREACHABLE", "DEADLINE_EXCEEDED", "CATALOG_UNCERTAIN", "CANCELLED"})
# Reasons after which it did not happen, and the client may try again.
LATER = frozenset({"NOT_LEADER", "OVERLOADED", "SHUTTING_DOWN", "CATALOG_UNAVAILABLE", "PLAN_OUTDATED"})
NOT_FOUND = frozenset(
    {
        "QUERY_NOT_FOUND",
        "SINK_NOT_FOUND",
        "LOGICAL_SOURCE_NOT_FOUND",
        "PHYSICAL_SOURCE_NOT_FOUND",
        "AGENT_NOT_FOUND",
        "NETWORK_LINK_NOT_FOUND",
        "TOPIC_NOT_FOUND",
    }
)
CREATES = {
    "create_query": "QUERY",
    "create_sink": "SINK",
    "create_logical_source": "LOGICAL_SOURCE",
    "create_physical_source": "PHYSICAL_SOURCE",
    "create_agent": "AGENT",
    "declare_topic": "TOPIC",
}
DROPS = {
    "drop_query": "QUERY",
    "stop_query": "QUERY",
    "get_query": "QUERY",
    "drop_sink": "SINK",
    "drop_logical_source": "LOGICAL_SOURCE",
    "drop_physical_source": "PHYSICAL_SOURCE",
    "drop_agent": "AGENT",
    "drop_topic": "TOPIC",
}
FIELDS = {
    "QUERY": "query",
    "SINK": "sink",
    "LOGICAL_SOURCE": "logical_source",
    "PHYSICAL_SOURCE": "physical_source",
    "AGENT": "agent",
    "TOPIC": "topic",
}
# What a bundle creates under the name that it says.
_BUNDLED = frozenset({"create_query", "create_sink", "create_logical_source"})
_ENDED = (catalog.QUERY_STATE_STOPPED, catalog.QUERY_STATE_TERMINATED, catalog.QUERY_STATE_FAILED)
# More slots than any generated query takes on one agent.
PLENTY = 5


# Kinds of which two of one name are never there together.
NAMED = frozenset({"AGENT", "LOGICAL_SOURCE", "PHYSICAL_SOURCE", "SINK", "QUERY", "TOPIC"})


@dataclass(slots=True)
class Tenure:
    """A name was taken by `uid` after tick `since`, until tick `until`."""

    uid: str
    since: int
    until: int | None = None
    # When it was asked to go, for a query.
    doomed: int | None = None


@dataclass(slots=True)
class Asked:
    """One operation of a client, from its first try to its last answer."""

    operation: Operation
    began: int
    # The last revision when it began.
    revision: int
    ended: int | None = None
    response: Any = None
    error: HeadgateError | None = None
    # Whether some try of it may have happened, or may yet.
    perhaps: bool = False
    # Uids that commits on its behalf created, and when.
    created: list[str] = field(default_factory=list)
    happened: int | None = None
    commits: int = 0


class History:
    def __init__(self, refusals: Refusals) -> None:
        self.tick = 0
        self._refusals = refusals
        self.asked: dict[str, Asked] = {}
        self._reads = Reads()
        self._uids: set[str] = set()
        self._tenures: dict[tuple[str, str], list[Tenure]] = {}
        self._versions: dict[str, list[tuple[int, Any]]] = {}
        self._answered_uids: dict[str, str] = {}
        self._short: list[int] = [0]
        self._agents: dict[str, Any] = {}

    # What happened

    def began(self, operation: Operation) -> Asked:
        self.tick += 1
        asked = self.asked[operation.id] = Asked(operation, self.tick, self._reads.revision)
        return asked

    def ended(self, asked: Asked, response: Any, error: HeadgateError | None) -> None:
        """The client has its answer; `None` and `None` is a client that gave up."""
        self.tick += 1
        asked.ended, asked.response, asked.error = self.tick, response, error
        if response is None and error is None:
            asked.perhaps = True
        else:
            self._check_answer(asked)

    def arrived(self, cause: str) -> tuple[str, int]:
        """A try of an operation has reached a server; to be given back with what the server answers."""
        self.tick += 1
        return cause, self.tick

    def refused(self, arrival: tuple[str, int], error: HeadgateError) -> None:
        """A server refuses a try. What has happened is answered again, not refused, to whoever names its request."""
        cause, tick = arrival
        asked = self.asked.get(cause)
        reason = error.reason.name
        if asked is not None:
            self._refusals.refused(asked.operation, tick, error)
        if asked is None or not asked.operation.with_request_id or reason in PERHAPS or reason in LATER:
            return
        if asked.happened is not None and asked.happened < tick:
            text = f"{asked.operation} has happened, and its retry is refused: {error}"
            fail("a retry gets the first answer", text, (cause, str(asked.operation.get("name", ""))))

    def committed(self, commit: Commit) -> None:
        self.tick += 1
        if commit.revision is None:
            return
        self._reads.committed(commit)
        self._refusals.committed(self.tick, commit.revision.changes)
        asked = self.asked.get(commit.cause)
        if asked is not None:
            asked.commits += 1
            asked.happened = asked.happened or self.tick
            self._check_commit(asked, commit)
        for change in commit.revision.changes:
            if change.before is None:
                if change.uid in self._uids:
                    fail("what is gone stays gone", f"{change.kind} {change.uid} came to be twice", (change.uid,))
                self._uids.add(change.uid)
            if change.kind == "AGENT":
                self._agent(change.uid, change.after)
            if change.kind == "FRAGMENT":
                continue
            tenures = self._tenures.setdefault((change.kind, change.name), [])
            if change.before is None:
                if tenures and tenures[-1].until is None and change.kind in NAMED:
                    fail(
                        "a name is taken once", f"{change.kind} {change.name} came to be beside another", (change.name,)
                    )
                tenures.append(Tenure(change.uid, self.tick))
            elif change.after is None:
                tenures[-1].until = self.tick
            if change.kind == "QUERY":
                self._query(change, tenures[-1], asked)

    def _query(self, change: Any, tenure: Tenure, asked: Asked | None) -> None:
        self._versions.setdefault(change.uid, []).append((self.tick, change.after))
        if change.after is not None and change.after.desired_state != catalog.DESIRED_STATE_DROPPED:
            return
        if tenure.doomed is None:
            tenure.doomed = self.tick
            kinds = ("drop_query", "bundle")
            if asked is None or asked.operation.kind not in kinds:
                fail(
                    "nothing accepted is lost",
                    f"query {change.name} is dropped, and nobody asked for it",
                    (change.name,),
                )

    def _agent(self, uid: str, after: Any) -> None:
        if after is None:
            self._agents.pop(uid, None)
        else:
            self._agents[uid] = after
        active = catalog.AGENT_STATE_ACTIVE
        if any(a.state != active or a.slots - a.slots_used < PLENTY for a in self._agents.values()) or not self._agents:
            self._short.append(self.tick)
            self._is_short = True
        elif self._is_short:
            self._short.append(-self.tick)
            self._is_short = False

    _is_short = True

    # What must then hold

    def _check_commit(self, asked: Asked, commit: Commit) -> None:
        operation = asked.operation
        assert commit.revision is not None
        about = (operation.id, *(change.name for change in commit.revision.changes))
        if asked.ended is not None and asked.error is not None and not asked.perhaps:
            fail("what was refused does not happen", f"{operation} was refused ({asked.error}) and happened", about)
        new = [c.uid for c in commit.revision.changes if c.before is None and c.kind != "FRAGMENT"]
        kind = CREATES.get(operation.kind)
        if kind is not None or operation.kind == "bundle":
            if asked.created and new:
                fail("nothing is accepted twice", f"{operation} created {asked.created}, and again {new}", about)
            asked.created += new

    def _check_answer(self, asked: Asked) -> None:
        operation = asked.operation
        reason = "" if asked.error is None else asked.error.reason.name
        about = (operation.id, str(operation.get("name", "")))
        if reason == "INTERNAL":
            fail("no defects", f"{operation}: {asked.error}", about)
        if operation.kind in CREATES:
            self._check_create(asked, CREATES[operation.kind], reason, about)
        elif operation.kind in DROPS:
            self._check_found(asked, DROPS[operation.kind], reason, about)
        elif operation.kind in ("bundle", "setup") and not reason:
            self._check_bundle(asked, about)
        elif operation.kind in ("list_queries", "snapshot") and not reason:
            self._reads.check(operation, asked.revision, asked.response)

    def _check_bundle(self, asked: Asked, about: tuple[str, ...]) -> None:
        """Everything that an accepted bundle creates came to be at the same moment."""
        items: Any = asked.operation["items"]
        made = [(CREATES[kind], str(dict(arguments)["name"])) for kind, arguments in items if kind in _BUNDLED]
        moments: set[int] | None = None
        for key in made:
            ticks = {t.since for t in self._tenures.get(key, []) if self._during(asked, t.since)}
            moments = ticks if moments is None else moments & ticks
        if moments is not None and not moments:
            fail("a bundle is accepted as a whole", f"{asked.operation} was accepted, and not all of it done", about)

    def _check_create(self, asked: Asked, kind: str, reason: str, about: tuple[str, ...]) -> None:
        name = str(asked.operation["name"])
        tenures = self._tenures.get((kind, name), [])
        if not reason:
            uid = getattr(asked.response, FIELDS[kind]).uid
            mine = [t for t in tenures if t.uid == uid]
            if len(mine) != 1 or not self._during(asked, mine[0].since):
                fail("nothing accepted is lost", f"{asked.operation} was answered {uid}, which did not happen", about)
            other = self._answered_uids.setdefault(uid, asked.operation.id)
            if other != asked.operation.id:
                fail("nothing is accepted twice", f"{asked.operation} and {other} were both answered {uid}", about)
        elif reason == "ALREADY_EXISTS" and kind != "PHYSICAL_SOURCE":
            if not any(self._overlaps(asked, t.since, t.until) for t in tenures):
                fail("names are linearizable", f"{asked.operation}: {reason}, but the name was free", about)
        elif reason == "QUERY_NAME_LOCKED":
            doomed = [t for t in tenures if t.doomed is not None]
            if not any(self._overlaps(asked, t.doomed or 0, t.until) for t in doomed):
                fail("names are linearizable", f"{asked.operation}: {reason}, but no such query was going", about)
        elif reason == "INSUFFICIENT_CAPACITY" and not self._was_short(asked):
            fail("slots are linearizable", f"{asked.operation}: {reason}, but every agent had room", about)

    def _check_found(self, asked: Asked, kind: str, reason: str, about: tuple[str, ...]) -> None:
        name = str(asked.operation["name"])
        tenures = self._tenures.get((kind, name), [])
        missing = not reason and not asked.response.HasField(FIELDS[kind])
        if reason in NOT_FOUND or missing:
            if not self._was_free(asked, tenures):
                fail("names are linearizable", f"{asked.operation}: not found, but it was there all the time", about)
            return
        if reason:
            return
        found = getattr(asked.response, FIELDS[kind])
        mine = [t for t in tenures if t.uid == found.uid]
        if not mine or not self._overlaps(asked, mine[0].since, mine[0].until):
            fail("names are linearizable", f"{asked.operation} was answered {found.uid}, which was not there", about)
        kind_of = asked.operation.kind
        if kind_of == "get_query":
            self._check_version(asked, found, about)
        done = True
        if kind_of == "drop_query":
            done = mine[0].doomed is not None
        elif kind_of == "stop_query":
            done = any(self._is_stopping(message) for _, message in self._versions.get(found.uid, []))
        elif kind_of.startswith("drop_") and not asked.operation.get("force"):
            done = mine[0].until is not None and self._during(asked, mine[0].until)
        if not done:
            fail("nothing accepted is lost", f"{asked.operation} was accepted, and not done", about)

    @staticmethod
    def _is_stopping(query: Any) -> bool:
        """Whether a query in this state is no longer to run, or has ended."""
        return (
            query is None
            or query.desired_state in (catalog.DESIRED_STATE_STOPPED, catalog.DESIRED_STATE_DROPPED)
            or query.state in _ENDED
        )

    def _check_version(self, asked: Asked, found: Any, about: tuple[str, ...]) -> None:
        versions = self._versions.get(found.uid, [])
        for index, (tick, message) in enumerate(versions):
            if message is not None and message == found:
                until = versions[index + 1][0] if index + 1 < len(versions) else None
                if self._overlaps(asked, tick, until):
                    return
        fail("reads are linearizable", f"{asked.operation} read a state that never was, or no longer:\n{found}", about)

    # Ticks

    def _during(self, asked: Asked, tick: int) -> bool:
        return asked.began < tick <= (asked.ended or tick)

    def _overlaps(self, asked: Asked, since: int, until: int | None) -> bool:
        """Whether something that was so from `since` on and before `until` was so at some moment of the operation."""
        assert asked.ended is not None
        return since <= asked.ended and (until is None or until > asked.began)

    def _was_free(self, asked: Asked, tenures: list[Tenure]) -> bool:
        """Whether no tenure covers the whole operation without a gap."""
        assert asked.ended is not None
        return not any(t.since <= asked.began and (t.until is None or t.until > asked.ended) for t in tenures)

    def _was_short(self, asked: Asked) -> bool:
        """Whether, at some moment of the operation, some agent was unreachable or had little room."""
        assert asked.ended is not None
        short_since: int | None = None
        for mark in self._short:
            if mark >= 0 and short_since is None:
                short_since = mark
            elif mark < 0 and short_since is not None:
                if self._overlaps(asked, short_since, -mark):
                    return True
                short_since = None
        return short_since is not None and self._overlaps(asked, short_since, None)
