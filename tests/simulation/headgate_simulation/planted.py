"""Bugs planted into production code at run time, to know that the simulation would find them.

Each is one or more small edits of the source of a function: a text that must occur in it exactly once is replaced, and
the function is compiled anew in its module. An edit that no longer fits the code fails loudly: then write it anew. A
planted bug that is not found is a hole in the generator or the invariants, to be closed there.
"""

from __future__ import annotations
import __future__

import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_FLAGS = __future__.annotations.compiler_flag


@dataclass(frozen=True, slots=True)
class Edit:
    """In the function `target` (`module:qualified name`), `old` becomes `new`."""

    target: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Planted:
    name: str
    description: str
    edits: tuple[Edit, ...]


_STORE = "headgate_coordinator.catalog.store"
_STATUS = "headgate_coordinator.catalog.agent_status"
_FRAGMENTS = "headgate_coordinator.catalog.fragments"
_QUERIES = "headgate_coordinator.catalog.queries"
_USES = "headgate_coordinator.catalog.plan_uses"
_EDGES = "headgate_coordinator.catalog.log.edge_topics"
_ADVANCE = "headgate_coordinator.query.advance"
_STATES = "headgate_coordinator.query.states"
_RECONCILER = "headgate_coordinator.query.reconciler"
_LEADERSHIP = "headgate_coordinator.cluster.leadership"
_MEMBERSHIP = "headgate_coordinator.cluster.membership"
_REGISTRY = "headgate_agent.fragments.registry"

PLANTED: tuple[Planted, ...] = (
    Planted(
        "term not checked by the catalog",
        "a coordinator that no longer leads can still write",
        (Edit(f"{_STORE}:check_term", "row.epoch == term and", "True and"),),
    ),
    Planted(
        "term not checked by agents",
        "an agent obeys a coordinator that no longer leads",
        (Edit(f"{_REGISTRY}:FragmentRegistry._check", "if command.term < self.term:", "if False:"),),
    ),
    Planted(
        "epoch not checked by agents",
        "an agent takes a run that a later one has replaced",
        (
            Edit(f"{_REGISTRY}:FragmentRegistry._require_no_later", "held.epoch > ref.epoch", "False"),
            Edit(f"{_REGISTRY}:FragmentRegistry._register", "held.epoch == ref.epoch", "held.epoch >= ref.epoch"),
        ),
    ),
    Planted(
        "tombstone ignored",
        "a registration that comes late brings back what was forgotten",
        (Edit(f"{_REGISTRY}:FragmentRegistry._register", "ref.epoch <= forgotten[0]", "False"),),
    ),
    Planted(
        "start not idempotent",
        "a start that arrives twice starts twice",
        (Edit(f"{_REGISTRY}:FragmentRegistry._start", "if held.state != REGISTERED:", "if held.ended:"),),
    ),
    Planted(
        "unregister does not wait for the run to end",
        "an agent says that a fragment is gone while it still stops",
        (Edit(f"{_REGISTRY}:FragmentRegistry._forget", "await held.run.stop()", "self._spawn(held.run.stop())"),),
    ),
    Planted(
        "registration not durable",
        "an agent answers a registration before it has written it down",
        (
            Edit(
                f"{_REGISTRY}:FragmentRegistry._register",
                'await self._commit(b"R", kept, apply)',
                'apply(); self._spawn(self._commit(b"R", kept, lambda: None))',
            ),
        ),
    ),
    Planted(
        "end not durable",
        "an agent tells that a run is complete, and forgets it when it restarts",
        (Edit(f"{_REGISTRY}:FragmentRegistry._end", 'await self._commit(b"E", ended, apply)', "apply()"),),
    ),
    Planted(
        "time-out of an unregistration taken as done",
        "a fragment counts as gone because its agent did not answer",
        (
            Edit(
                f"{_ADVANCE}:_apply",
                "if answer.error is None:",
                'if answer.error is None or answer.error.reason.name == "DEADLINE_EXCEEDED":',
            ),
        ),
    ),
    Planted(
        "time-out of a registration taken as not happened",
        "a fragment whose agent has not confirmed the plan counts as never sent, and is let go without a word",
        (
            Edit(
                f"{_STATES}:_take_down",
                'if fragment.epoch == 1 and fragment.state == "PENDING" and not fragment.incarnation:',
                'if fragment.state == "PENDING":',
            ),
        ),
    ),
    Planted(
        "retry after drop",
        "a command that failed is sent again a little later, whatever has become of its query",
        (
            Edit(
                f"{_RECONCILER}:Reconciler._failed",
                "work.answers.append(_answer(command, error))",
                "work.answers.append(_answer(command, error)); asyncio.get_running_loop().call_later("
                "1.0, lambda: self._client and self._call(work, command))",
            ),
        ),
    ),
    Planted(
        "name released before the last fragment is gone",
        "what is on an agent that does not answer counts as gone, and so the query as deleted",
        (
            Edit(
                f"{_STATES}:_take_down",
                "if not agent.active:",
                'if not agent.active:\n        return _Step(write=Gone(fragment.uid, "no answer"))\n    if False:',
            ),
        ),
    ),
    Planted(
        "slots returned twice",
        "slots go back when a fragment is seen to have stopped, and again when it is gone",
        (Edit(f"{_FRAGMENTS}:Changes.gone", "if not fragment.slots_held:", "if False:"),),
    ),
    Planted(
        "slots not returned on a move",
        "a fragment that moves keeps its slots on the agent that it left",
        (Edit(f"{_FRAGMENTS}:Changes.new_epoch", "self._slots[fragment.agent_uid] -= fragment.slots", "pass"),),
    ),
    Planted(
        "unreachable agents get fragments",
        "a query is placed on an agent that does not answer",
        (Edit(f"{_USES}:_require_room", 'if row.state != "ACTIVE":', "if False:"),),
    ),
    Planted(
        "queries stay RUNNING on unreachable agents",
        "an agent becomes UNREACHABLE, and its queries are not taken back",
        (Edit(f"{_STATUS}:mark_unreachable", "query_states.take_back(tx,", "(lambda *_: None)(tx,"),),
    ),
    Planted(
        "agent restart unnoticed",
        "a process that took another's place is taken for the same",
        (
            Edit(
                f"{_STATUS}:_welcome",
                "restarted = bool(agent.incarnation) and agent.incarnation != incarnation",
                "restarted = False",
            ),
            Edit(f"{_STATUS}:_Application._apply_one", "fragment.incarnation != self.incarnation", "False"),
        ),
    ),
    Planted(
        "status of a former run applied",
        "what an agent says of a run counts for the run that has replaced it elsewhere",
        (
            Edit(f"{_STATUS}:_Application.apply", "or fragment.epoch != one.fragment.epoch", ""),
            Edit(f"{_STATUS}:_Application.apply", "or fragment.agent_uid != self.agent.uid", ""),
        ),
    ),
    Planted(
        "missing judged by an old answer",
        "a status that was asked for before a fragment was confirmed counts as news that it is missing",
        (Edit(f"{_STATUS}:_Application._miss_one", "if fragment.revision > revision:", "if False:"),),
    ),
    Planted(
        "stale status applied after a newer one",
        "an answer that comes late sets fragments back to what they were",
        (
            Edit(
                f"{_STATUS}:_Application._apply_one",
                "if _PROGRESS[state] > _PROGRESS[fragment.state]:",
                "if _PROGRESS[state] != _PROGRESS[fragment.state]:",
            ),
            Edit(
                f"{_MEMBERSHIP}:Membership._poll",
                "await self._apply(agent, asked, status)",
                "await self._apply(agent, asked, status); asyncio.get_running_loop().call_later("
                "1.0, lambda: self._term and self._spawn(self._apply(agent, asked, status)))",
            ),
        ),
    ),
    Planted(
        "zombies left alone",
        "a run that the catalog does not know is never stopped",
        (Edit(f"{_MEMBERSHIP}:Membership._clean", "if agent.zombies and", "if False and"),),
    ),
    Planted(
        "reconciler wake-up lost",
        "that a settled query is to be stopped wakes nobody",
        (
            Edit(
                f"{_RECONCILER}:Reconciler._query_changed",
                "if work is None and _at_rest(after):",
                "if work is None:",
            ),
            Edit(f"{_RECONCILER}:Reconciler._tick", "self._mark(uid)", "pass"),
        ),
    ),
    Planted(
        "leader lease counted from its answer",
        "a leader believes that it leads for longer than others wait for it",
        (
            Edit(
                f"{_LEADERSHIP}:Leadership._renew_until_lost",
                "self._valid_until = started + self._timings.leader_ttl - self._timings.leader_margin",
                "self._valid_until = self._clock.monotonic() + 2 * self._timings.leader_ttl",
            ),
        ),
    ),
    Planted(
        "standby takes over early",
        "a standby takes the leadership though the leader has renewed",
        (
            Edit(f"{_LEADERSHIP}:Leadership._may_take", "silent_for >= found.holder.ttl", "silent_for >= 0.5"),
            Edit(
                "headgate_coordinator.catalog.sessions:unrenewed",
                "row is not None and row.renewals == renewals",
                "row is not None",
            ),
        ),
    ),
    Planted(
        "request_id forgotten",
        "a retry of a request that has happened makes it happen again",
        (
            Edit("headgate_coordinator.catalog.requests:lookup", "if row is None:", "if True:"),
            Edit("headgate_coordinator.catalog.requests:remember", "tx.connection.execute(", "if False: str("),
        ),
    ),
    Planted(
        "watch event before the commit",
        "listeners hear of a transaction before it is durable, and also if it is rolled back",
        (
            Edit(
                "headgate_coordinator.catalog.sqlite:SqliteStore._commit_group",
                "transaction.commit()",
                "self._publish(done.outcomes); transaction.commit()",
            ),
        ),
    ),
    Planted(
        "watch resumes one too late",
        "a watcher that resumes misses the first revision after the one it knows",
        (
            Edit(
                "headgate_coordinator.catalog.watch:WatchHub.watch",
                "last = from_revision\n",
                "last = from_revision + (1 if from_revision else 0)\n",
            ),
        ),
    ),
    Planted(
        "change feed skips a gap",
        "revisions that another coordinator committed are never published",
        (
            Edit(
                "headgate_coordinator.catalog.changes:ChangeFeed.publish",
                "if revision.number != self.position + 1:",
                "if False:",
            ),
        ),
    ),
    Planted(
        "dropped agent comes back",
        "a process that was declared gone is taken back with all it runs",
        (
            Edit(
                "headgate_coordinator.catalog.agent_rows:fenced",
                ".first() is not None",
                ".first() is not None and False",
            ),
            Edit(
                "headgate_coordinator.catalog.agent_rows:fence",
                "if incarnation and not fenced(tx, incarnation):",
                "if False:",
            ),
        ),
    ),
    Planted(
        "former runs let in by a poll",
        "whoever answers in the place of an agent that was declared gone is let in with all that it still runs",
        (Edit(f"{_STATUS}:apply_status", "or (reported and not agent.incarnation)", ""),),
    ),
    Planted(
        "stop softened by a later soft stop",
        "a soft stop that comes after a hard one overrides it",
        (
            Edit(
                f"{_QUERIES}:_ask",
                'if row.stop_mode == "" or harder:',
                "if True:",
            ),
        ),
    ),
    Planted(
        "drop forgotten while it deploys",
        "a drop that comes during a deployment is not seen before the deployment is done",
        (Edit(f"{_STATES}:_deploying", "if interrupted is not None:", "if False:"),),
    ),
    Planted(
        "running without confirmation",
        "a fragment whose start was accepted counts as running",
        (
            Edit(
                f"{_ADVANCE}:_succeeded",
                'changes.set(fragment, "its agent accepted the start", state="STARTED", **clean)',
                'changes.set(fragment, "its agent accepted the start", state="RUNNING", **clean)',
            ),
        ),
    ),
    Planted(
        "edges outlive their query",
        "the topics of a query that has ended stay, with all that is in them",
        (Edit(f"{_EDGES}:let_go", "topics.delete_topics(tx,", "(lambda *_: None)(tx,"),),
    ),
    Planted(
        "an edge stays behind when its leader moves",
        "a sink fragment moves, and what it leads stays with the agent that it left",
        (Edit(f"{_EDGES}:move_leader", "and row.pinned_agent != agent", "and False"),),
    ),
    Planted(
        "a moved leader is not told",
        "a run goes on writing to the agent that no longer leads its edge",
        (Edit(f"{_ADVANCE}:_follow_leader", "if other.ordinal in ends and", "if False and"),),
    ),
    Planted(
        "what a dropped agent led passes on at once",
        "its process is alive, and goes on leading for as long as it believes in its session",
        (
            Edit(
                "headgate_coordinator.catalog.agents:drop_agent",
                "endings.let_run_out(tx, row.session_uid)",
                "endings.end_session(tx, row.session_uid)",
            ),
        ),
    ),
)


def by_name(name: str) -> Planted:
    return next(planted for planted in PLANTED if planted.name == name)


@contextmanager
def plant(planted: Planted) -> Iterator[None]:
    """Production code has the bug inside the block, and is whole again after it."""
    by_target: dict[str, list[Edit]] = {}
    for edit in planted.edits:
        by_target.setdefault(edit.target, []).append(edit)
    undo: list[tuple[Any, Any, Any]] = []
    try:
        for target, edits in by_target.items():
            undo += _apply(target, edits)
        yield
    finally:
        for holder, key, original in reversed(undo):
            _put(holder, key, original)


def _put(holder: Any, key: Any, value: Any) -> None:
    """Into a table of functions, or as an attribute of a module or class."""
    if isinstance(holder, dict):
        holder[key] = value
    else:
        setattr(holder, key, value)


def _apply(target: str, edits: list[Edit]) -> list[tuple[Any, Any, Any]]:
    """Replaces the function wherever it is known; what to put back is the answer."""
    module_name, _, qualified = target.partition(":")
    module = importlib.import_module(module_name)
    *path, name = qualified.split(".")
    holder: Any = module
    try:
        for part in path:
            holder = getattr(holder, part)
        original = inspect.getattr_static(holder, name)
    except AttributeError as error:
        raise LookupError(f"there is no {target}") from error
    source = textwrap.dedent(inspect.getsource(original))
    for edit in edits:
        if source.count(edit.old) != 1:
            raise LookupError(f"{target} has {source.count(edit.old)} times: {edit.old!r}")
        source = source.replace(edit.old, edit.new)
    scope: dict[str, Any] = {}
    exec(compile(source, f"<planted in {target}>", "exec", _FLAGS, dont_inherit=True), module.__dict__, scope)
    places: list[tuple[Any, Any]] = [(holder, name)]
    if holder is module:
        # Others may have imported it by name, and tables may hold it.
        known = [
            other for other in list(sys.modules.values()) if getattr(other, "__name__", "").startswith("headgate_")
        ]
        for other in known:
            for key, value in list(vars(other).items()):
                if value is original and other is not module:
                    places.append((other, key))
                elif type(value) is dict:
                    places += [(value, inner) for inner, function in value.items() if function is original]
    for place, key in places:
        _put(place, key, scope[name])
    return [(place, key, original) for place, key in places]
