"""One look at one query inside a transaction: what is so, what `decide` says, and its writes carried out.

`look` is for a read transaction and changes nothing; `advance` is for a write transaction: it applies the answers of
agents, then decides and writes until there is nothing left to write. Both say which calls are to be made now. What the
reconciler remembers, and the catalog does not, comes in as `Memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Row, bindparam, select

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_coordinator.catalog import fragments as fragment_rows
from headgate_coordinator.catalog import query_states
from headgate_coordinator.catalog.fragments import Changes, OpenFragment
from headgate_coordinator.catalog.links import take_links
from headgate_coordinator.catalog.query_states import Failure, OpenQuery
from headgate_coordinator.catalog.schema import agents, queries
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import FRAGMENT_REFUSED
from headgate_coordinator.query import answers as answered
from headgate_coordinator.query.answers import Answer
from headgate_coordinator.query.states import (
    Address,
    AgentView,
    Blame,
    Call,
    Decision,
    Delete,
    Drain,
    FragmentView,
    Gone,
    NewEpoch,
    QueryView,
    Register,
    SetState,
    Start,
    StopHard,
    Unregister,
    Write,
    decide,
    span,
)

# Picks another agent for a fragment: the query's plan with its fragments where they are now, the ordinal of the one to
# place, and the uid of the agent it must leave ("" for none). Answers the uid of an ACTIVE agent with room, or None.
ChooseAgent = Callable[[Tx, catalog.QueryPlan, int, str], str | None]

_PLAN = select(queries.c.plan).where(queries.c.uid == bindparam("uid_"))
_AGENTS = select(agents).where(agents.c.uid.in_(bindparam("uids_", expanding=True)))

# Rounds of deciding and writing in one transaction. The longest way, from PENDING to deleted, takes six.
MAX_ROUNDS = 16


@dataclass(frozen=True, slots=True)
class Memory:
    """What the reconciler remembers of a query, as of now."""

    # Seconds since it was first seen on its way up, or draining; None if it is not.
    deploying_for: float | None = None
    draining_for: float | None = None
    # Fragments whose next call must wait.
    backing_off: frozenset[str] = frozenset()
    # Broken runs, (fragment, epoch), that may be replaced now.
    may_run_again: frozenset[tuple[str, int]] = frozenset()
    # Runs whose agent has accepted the soft stop: (fragment, epoch, incarnation).
    draining: frozenset[tuple[str, int, str]] = frozenset()
    # Fragments for which no agent had room a moment ago.
    no_room: frozenset[str] = frozenset()
    # Agents that are UNREACHABLE for too long.
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Command:
    """A call to make: to which process of which agent, about which run."""

    call: Call
    fragment: str
    ordinal: int
    epoch: int
    agent_uid: str
    agent_name: str
    address: str
    incarnation: str
    # For Register: everything but the command.
    registration: cluster.RegisterFragmentRequest | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What was found."""

    # Every change up to this revision was seen, those of the look itself included.
    revision: int
    name: str = ""
    # Empty if the query is no more.
    state: str = ""
    # Whether there is something to write: ask `advance`.
    unfinished: bool = False
    commands: tuple[Command, ...] = ()
    # Runs that are broken and wait to be replaced: (fragment, epoch).
    broken: frozenset[tuple[str, int]] = frozenset()
    no_room: frozenset[str] = frozenset()
    draining: bool = False
    deployment_deadline: float | None = None
    drain_deadline: float | None = None
    # States that were passed through, for whoever counts or crashes at them.
    passed: tuple[str, ...] = ()


@dataclass(slots=True)
class _Work:
    """A query with all that belongs to it, open in a transaction."""

    tx: Tx
    query: OpenQuery
    fragments: list[OpenFragment]
    agents: dict[str, Row[Any]]
    plan: catalog.QueryPlan
    memory: Memory
    no_room: set[str] = field(default_factory=set)
    passed: list[str] = field(default_factory=list)


def look(tx: Tx, uid: str, memory: Memory) -> Look:
    """What is so, and what is to be done. Changes nothing."""
    work = _open(tx, uid, memory)
    if work is None:
        return Look(tx.revision)
    return _found(work, _decide(work))


def advance(tx: Tx, uid: str, memory: Memory, answers: Sequence[Answer], choose_agent: ChooseAgent) -> Look:
    """Applies `answers`, and writes all that is to be written now."""
    work = _open(tx, uid, memory)
    if work is None:
        return Look(tx.revision - 1)
    changes = Changes(tx)
    for answer in answers:
        _apply(work, changes, answer)
    changes.flush()
    for _ in range(MAX_ROUNDS):
        decision = _decide(work)
        if not decision.writes:
            break
        if not _write(work, decision.writes, choose_agent):
            return Look(_seen(tx), work.query.name, passed=tuple(work.passed))
    else:
        raise AssertionError(f"query {uid} does not settle: {decision.writes}")
    waiting = decision.waiting
    work.query.set_waiting(*("", "") if waiting is None else (waiting.reason, waiting.message))
    return replace(_found(work, decision), revision=_seen(tx))


def _seen(tx: Tx) -> int:
    """A write that records nothing leaves its revision to the next."""
    return tx.revision if tx.changes else tx.revision - 1


def _open(tx: Tx, uid: str, memory: Memory) -> _Work | None:
    query = query_states.open_query(tx, uid)
    if query is None:
        return None
    found = fragment_rows.fragments_of(tx, uid)
    plan = catalog.QueryPlan.FromString(tx.connection.execute(_PLAN, {"uid_": uid}).scalar_one())
    work = _Work(tx, query, found, {}, plan, memory, set(memory.no_room))
    _load_agents(work)
    return work


def _load_agents(work: _Work) -> None:
    uids = {fragment.agent_uid for fragment in work.fragments if fragment.agent_uid} - work.agents.keys()
    if uids:
        for row in work.tx.connection.execute(_AGENTS, {"uids_": sorted(uids)}):
            work.agents[row.uid] = row


def _decide(work: _Work) -> Decision:
    query, memory = work.query, work.memory
    view = QueryView(
        uid=query.uid,
        name=query.name,
        state=query.state,
        desired=query.desired,
        stop_mode=query.stop_mode,
        failed=query.failed,
        has_run=query.has_run,
        deployment_late=memory.deploying_for is not None and memory.deploying_for >= query.deployment_deadline,
        drain_late=memory.draining_for is not None and memory.draining_for >= query.drain_deadline > 0,
    )
    upstream = _upstream(work.plan)
    fragments = [_fragment_view(work, fragment, upstream.get(fragment.ordinal, ())) for fragment in work.fragments]
    return decide(view, fragments, {uid: _agent_view(work, row) for uid, row in work.agents.items()})


def _upstream(plan: catalog.QueryPlan) -> Mapping[int, tuple[int, ...]]:
    found: dict[int, tuple[int, ...]] = {}
    for edge in plan.edges:
        found[edge.to_fragment] = (*found.get(edge.to_fragment, ()), edge.from_fragment)
    return found


def _fragment_view(work: _Work, fragment: OpenFragment, upstream: tuple[int, ...]) -> FragmentView:
    memory = work.memory
    waits = fragment.uid in memory.backing_off
    if fragment.state == "FAILED" and fragment.slots_held:
        waits = waits or (fragment.uid, fragment.epoch) not in memory.may_run_again
    return FragmentView(
        uid=fragment.uid,
        ordinal=fragment.ordinal,
        node_local=fragment.node_local,
        agent=fragment.agent_uid or "",
        agent_name=fragment.agent_name,
        incarnation=fragment.incarnation,
        state=fragment.state,
        epoch=fragment.epoch,
        held=fragment.slots_held,
        upstream=upstream,
        backing_off=waits,
        draining=(fragment.uid, fragment.epoch, fragment.incarnation) in memory.draining,
        no_room=fragment.uid in work.no_room,
        last_error=fragment.last_error,
        attempts=fragment.attempts,
    )


def _agent_view(work: _Work, row: Row[Any]) -> AgentView:
    return AgentView(
        uid=row.uid,
        name=row.name,
        active=row.state == "ACTIVE",
        incarnation=row.incarnation,
        lost=row.uid in work.memory.lost,
        unreachable_for=span((work.tx.now - row.state_time) / 1_000_000),
    )


def _apply(work: _Work, changes: Changes, answer: Answer) -> None:
    """What an agent's answer to a call means, if the call was about the run that is current."""
    fragment = next((one for one in work.fragments if one.uid == answer.fragment), None)
    if fragment is None or fragment.epoch != answer.epoch or fragment.agent_uid != answer.agent_uid:
        return
    if answer.error is None:
        _succeeded(work, changes, fragment, answer)
        return
    outcome = answered.classify(answer.error)
    stopping = work.query.state == "STOPPING" and (work.query.failed or work.query.stop_mode == "HARD")
    if outcome == answered.LOST:
        above = int(answer.error.metadata.get("epoch", "0"))
        if isinstance(answer.call, Unregister):
            # Its agent knows a later run than the catalog: only a still later epoch reaches it.
            _outdo(changes, fragment, above)
        elif not stopping and not fragment.ended:
            changes.new_epoch(fragment, f"agent {fragment.agent_name}: {answer.error.message}", above=above)
    elif outcome == answered.REFUSED and isinstance(answer.call, Register | Start) and not fragment.ended:
        text = f"{answer.error.reason.name}: {answer.error.message}"
        attempts = fragment.attempts + 1
        changes.set(fragment, f"its agent refused it: {text}", state="FAILED", attempts=attempts, last_error=text)
        if not stopping:
            work.query.fail(
                Failure(
                    FRAGMENT_REFUSED.name,
                    f"agent {fragment.agent_name} refused fragment {fragment.ordinal}: {answer.error.message}",
                    agent=fragment.agent_name,
                    fragment=fragment.ordinal,
                    attempts=attempts,
                    last_error=text,
                )
            )
            work.passed.append("STOPPING")
    else:
        _failed_attempt(changes, fragment, answer)


def _succeeded(work: _Work, changes: Changes, fragment: OpenFragment, answer: Answer) -> None:
    clean: dict[str, Any] = {"attempts": 0, "last_error": ""} if fragment.attempts else {}
    match answer.call:
        case Register() if fragment.state == "PENDING":
            changes.set(fragment, "its agent has the plan", state="REGISTERED", **clean)
            work.passed.append("registered")
        case Start() if fragment.state == "REGISTERED":
            changes.set(fragment, "its agent accepted the start", state="STARTED", **clean)
            work.passed.append("started")
        case Unregister():
            changes.gone(fragment, "its agent confirmed that nothing of it is left")
            work.passed.append("gone")
        case Drain():
            changes.set(fragment, "its agent accepted the soft stop", **clean)
        case _:
            pass


def _outdo(changes: Changes, fragment: OpenFragment, above: int) -> None:
    if fragment.state == "PENDING":
        changes.set(fragment, "its agent knows a later run", epoch=max(fragment.epoch, above) + 1)
    elif fragment.state != "TERMINATED":
        changes.new_epoch(fragment, "its agent knows a later run", incarnation=fragment.incarnation, above=above)
    else:
        changes.set(fragment, "its agent knows a later run", epoch=max(fragment.epoch, above) + 1)


def _failed_attempt(changes: Changes, fragment: OpenFragment, answer: Answer) -> None:
    """One more vain call: told in the story only when the error is another one than before."""
    assert answer.error is not None
    text = f"{answer.error.reason.name}: {answer.error.message}"
    news = "" if text == fragment.last_error else f"{type(answer.call).__name__} failed: {text}"
    changes.set(fragment, news, attempts=fragment.attempts + 1, last_error=text)


def _write(work: _Work, writes: Sequence[Write], choose_agent: ChooseAgent) -> bool:
    """Carries out one round. False if the query is no more."""
    changes = Changes(work.tx)
    by_uid = {fragment.uid: fragment for fragment in work.fragments}
    for write in writes:
        match write:
            case SetState(to, cause, blame):
                work.query.set_state(to, cause, _failure(work, blame))
                work.passed.append(to)
            case StopHard(cause):
                work.query.stop_hard(cause)
            case Address(uid, incarnation):
                changes.set(by_uid[uid], incarnation=incarnation)
            case Gone(uid, cause):
                changes.gone(by_uid[uid], cause)
            case NewEpoch(uid, move, cause):
                _new_epoch(work, changes, by_uid[uid], move, cause, choose_agent)
            case Delete():
                fragment_rows.delete_query(work.tx, work.query.uid)
                work.passed.append("deleted")
                return False
    changes.flush()
    return True


def _failure(work: _Work, blame: Blame | None) -> Failure | None:
    if blame is None:
        return None
    failure = Failure(blame.reason, blame.message)
    for fragment in work.fragments:
        if fragment.ordinal == blame.fragment:
            failure = replace(
                failure,
                agent=fragment.agent_name,
                fragment=fragment.ordinal,
                attempts=fragment.attempts,
                last_error=fragment.last_error,
            )
    return failure


def _new_epoch(
    work: _Work, changes: Changes, fragment: OpenFragment, move: bool, cause: str, choose_agent: ChooseAgent
) -> None:
    """A new run on its own agent, or on the one that `choose_agent` picks; noted as without room if there is none."""
    if not move and fragment.slots_held:
        changes.new_epoch(fragment, cause)
        return
    # Slots that this transaction has taken or returned must count.
    changes.flush()
    if move:
        plan = catalog.QueryPlan()
        plan.CopyFrom(work.plan)
        for other in work.fragments:
            plan.fragments[other.ordinal - 1].agent = other.agent_name
        chosen = choose_agent(work.tx, plan, fragment.ordinal, fragment.agent_uid or "")
    else:
        chosen = fragment.agent_uid
    row = None
    if chosen:
        row = work.tx.connection.execute(select(agents).where(agents.c.uid == chosen)).one_or_none()
    if row is None or row.state != "ACTIVE" or row.slots - row.slots_used < fragment.slots:
        work.no_room.add(fragment.uid)
        return
    changes.new_epoch(fragment, cause, to=row)
    changes.flush()
    if move:
        plan.fragments[fragment.ordinal - 1].agent = row.name
        take_links(work.tx, work.query.uid, plan)
    work.agents[row.uid] = row


def _found(work: _Work, decision: Decision) -> Look:
    query, waiting = work.query, decision.waiting
    reason, message = ("", "") if waiting is None else (waiting.reason, waiting.message)
    deploying = query.state in ("PENDING", "DEPLOYING") and query.desired == "RUNNING" and not query.has_run
    draining = query.state == "STOPPING" and query.stop_mode == "SOFT" and not query.failed
    unfinished = bool(decision.writes) or not query.waits_for(reason, message)
    return Look(
        revision=work.tx.revision,
        name=query.name,
        state=query.state,
        unfinished=unfinished,
        commands=() if decision.writes else tuple(_command(work, call) for call in decision.calls),
        broken=frozenset((one.uid, one.epoch) for one in work.fragments if one.state == "FAILED" and one.slots_held),
        no_room=frozenset(work.no_room),
        draining=draining,
        deployment_deadline=query.deployment_deadline if deploying else None,
        drain_deadline=query.drain_deadline if draining and query.drain_deadline > 0 else None,
        passed=tuple(work.passed),
    )


def _command(work: _Work, call: Call) -> Command:
    fragment = next(one for one in work.fragments if one.uid == call.fragment)
    assert fragment.agent_uid is not None
    agent = work.agents[fragment.agent_uid]
    return Command(
        call=call,
        fragment=fragment.uid,
        ordinal=fragment.ordinal,
        epoch=fragment.epoch,
        agent_uid=agent.uid,
        agent_name=agent.name,
        address=agent.address,
        incarnation=agent.incarnation,
        registration=_registration(work, fragment) if isinstance(call, Register) else None,
    )


def _registration(work: _Work, fragment: OpenFragment) -> cluster.RegisterFragmentRequest:
    """What the agent is told, with the fragment's agent as it is now and not as it was planned."""
    plan = catalog.FragmentPlan()
    plan.CopyFrom(work.plan.fragments[fragment.ordinal - 1])
    plan.agent = fragment.agent_name
    concerned = {*plan.input_edges, *plan.output_edges}
    return cluster.RegisterFragmentRequest(
        fragment=cluster.FragmentRef(uid=fragment.uid, epoch=fragment.epoch),
        query=work.query.name,
        query_uid=work.query.uid,
        plan=plan,
        edges=[edge for edge in work.plan.edges if edge.ordinal in concerned],
    )
