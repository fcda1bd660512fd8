"""One look at one query inside a transaction: what is so, what `decide` says, and its writes carried out.

`look` is for a read transaction and changes nothing; `advance` is for a write transaction: it applies the answers of
agents, then decides and writes until there is nothing left to write. Both say which calls are to be made now.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import select

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_coordinator.catalog import fragments as fragment_rows
from headgate_coordinator.catalog.fragments import Changes, OpenFragment
from headgate_coordinator.catalog.links import take_links
from headgate_coordinator.catalog.log import edge_topics
from headgate_coordinator.catalog.query_states import Failure
from headgate_coordinator.catalog.schema import agents
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import FRAGMENT_REFUSED
from headgate_coordinator.query import answers as answered
from headgate_coordinator.query.answers import Answer
from headgate_coordinator.query.case import Case, Memory, decide_case, open_case
from headgate_coordinator.query.views import (
    Address,
    Blame,
    Call,
    Decision,
    Delete,
    Drain,
    Gone,
    NewEpoch,
    Register,
    SetState,
    Start,
    StopHard,
    Unregister,
    Write,
)

# Picks another agent for a fragment: the query's plan with its fragments where they are now, the ordinal of the one to
# place, and the uid of the agent it must leave ("" for none). Answers the uid of an ACTIVE agent with room, or None.
ChooseAgent = Callable[[Tx, catalog.QueryPlan, int, str], str | None]

# Rounds of deciding and writing in one transaction. The longest way, from PENDING to deleted, takes six.
MAX_ROUNDS = 16


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


def look(tx: Tx, uid: str, memory: Memory) -> Look:
    """What is so, and what is to be done. Changes nothing."""
    case = open_case(tx, uid, memory)
    if case is None:
        return Look(tx.revision)
    return _found(case, decide_case(case))


def advance(tx: Tx, uid: str, memory: Memory, answers: Sequence[Answer], choose_agent: ChooseAgent) -> Look:
    """Applies `answers`, and writes all that is to be written now."""
    case = open_case(tx, uid, memory)
    if case is None:
        return Look(tx.revision - 1)
    changes = Changes(tx)
    for answer in answers:
        _apply(case, changes, answer)
    changes.flush()
    for _ in range(MAX_ROUNDS):
        decision = decide_case(case)
        if not decision.writes:
            break
        if not _write(case, decision.writes, choose_agent):
            return Look(_seen(tx), case.query.name, passed=tuple(case.passed))
    else:
        raise AssertionError(f"query {uid} does not settle: {decision.writes}")
    waiting = decision.waiting
    case.query.set_waiting(*("", "") if waiting is None else (waiting.reason, waiting.message))
    return replace(_found(case, decision), revision=_seen(tx))


def _seen(tx: Tx) -> int:
    """A write that records nothing leaves its revision to the next."""
    return tx.revision if tx.changes else tx.revision - 1


def _apply(case: Case, changes: Changes, answer: Answer) -> None:
    """What an agent's answer to a call means, if the call was about the run that is current."""
    fragment = next((one for one in case.fragments if one.uid == answer.fragment), None)
    if fragment is None or fragment.epoch != answer.epoch or fragment.agent_uid != answer.agent_uid:
        return
    if answer.error is None:
        _succeeded(case, changes, fragment, answer)
        return
    outcome = answered.classify(answer.error)
    stopping = case.query.state == "STOPPING" and (case.query.failed or case.query.stop_mode == "HARD")
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
            case.query.fail(
                Failure(
                    FRAGMENT_REFUSED.name,
                    f"agent {fragment.agent_name} refused fragment {fragment.ordinal}: {answer.error.message}",
                    agent=fragment.agent_name,
                    fragment=fragment.ordinal,
                    attempts=attempts,
                    last_error=text,
                )
            )
            case.passed.append("STOPPING")
    else:
        _failed_attempt(changes, fragment, answer)


def _succeeded(case: Case, changes: Changes, fragment: OpenFragment, answer: Answer) -> None:
    clean: dict[str, Any] = {"attempts": 0, "last_error": ""} if fragment.attempts else {}
    match answer.call:
        case Register() if fragment.state == "PENDING":
            changes.set(fragment, "its agent has the plan", state="REGISTERED", **clean)
            case.passed.append("registered")
        case Start() if fragment.state == "REGISTERED":
            changes.set(fragment, "its agent accepted the start", state="STARTED", **clean)
            case.passed.append("started")
        case Unregister():
            changes.gone(fragment, "its agent confirmed that nothing of it is left")
            case.passed.append("gone")
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


def _write(case: Case, writes: Sequence[Write], choose_agent: ChooseAgent) -> bool:
    """Carries out one round. False if the query is no more."""
    changes = Changes(case.tx)
    by_uid = {fragment.uid: fragment for fragment in case.fragments}
    for write in writes:
        match write:
            case SetState(to, cause, blame):
                case.query.set_state(to, cause, _failure(case, blame))
                case.passed.append(to)
            case StopHard(cause):
                case.query.stop_hard(cause)
            case Address(uid, incarnation):
                changes.set(by_uid[uid], incarnation=incarnation)
            case Gone(uid, cause):
                changes.gone(by_uid[uid], cause)
            case NewEpoch(uid, move, cause):
                _new_epoch(case, changes, by_uid[uid], move, cause, choose_agent)
            case Delete():
                fragment_rows.delete_query(case.tx, case.query.uid)
                case.passed.append("deleted")
                return False
    changes.flush()
    return True


def _failure(case: Case, blame: Blame | None) -> Failure | None:
    if blame is None:
        return None
    failure = Failure(blame.reason, blame.message)
    for fragment in case.fragments:
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
    case: Case, changes: Changes, fragment: OpenFragment, move: bool, cause: str, choose_agent: ChooseAgent
) -> None:
    """A new run on its own agent, or on the one that `choose_agent` picks; noted as without room if there is none."""
    if not move and fragment.slots_held:
        changes.new_epoch(fragment, cause)
        return
    # Slots that this transaction has taken or returned must count.
    changes.flush()
    if move:
        plan = catalog.QueryPlan()
        plan.CopyFrom(case.plan)
        for other in case.fragments:
            plan.fragments[other.ordinal - 1].agent = other.agent_name
        chosen = choose_agent(case.tx, plan, fragment.ordinal, fragment.agent_uid or "")
    else:
        chosen = fragment.agent_uid
    row = None
    if chosen:
        row = case.tx.connection.execute(select(agents).where(agents.c.uid == chosen)).one_or_none()
    if row is None or row.state != "ACTIVE" or row.slots - row.slots_used < fragment.slots:
        case.no_room.add(fragment.uid)
        return
    changes.new_epoch(fragment, cause, to=row)
    if move:
        plan.fragments[fragment.ordinal - 1].agent = row.name
        take_links(case.tx, case.query.uid, plan)
        _follow_leader(case, changes, fragment)
    changes.flush()
    case.agents[row.uid] = row


def _follow_leader(case: Case, changes: Changes, moved: OpenFragment) -> None:
    """What a moved fragment leads is led by its new agent, and whoever was told of the former one is told anew.

    A run knows the leaders that it was registered with, so only a new epoch tells it of another. One that was sent to
    nobody yet, or needs a new epoch anyway, learns it with its next registration.
    """
    ends = edge_topics.move_leader(case.tx, case.query.uid, case.plan, moved.ordinal, moved.agent_name)
    for other in case.fragments:
        sent = bool(other.incarnation) if other.state == "PENDING" else not other.ended
        if other.ordinal in ends and other.slots_held and sent:
            changes.new_epoch(other, f"what it shares with fragment {moved.ordinal} moved to agent {moved.agent_name}")


def _found(case: Case, decision: Decision) -> Look:
    query, waiting = case.query, decision.waiting
    reason, message = ("", "") if waiting is None else (waiting.reason, waiting.message)
    deploying = query.state in ("PENDING", "DEPLOYING") and query.desired == "RUNNING" and not query.has_run
    draining = query.state == "STOPPING" and query.stop_mode == "SOFT" and not query.failed
    unfinished = bool(decision.writes) or not query.waits_for(reason, message)
    return Look(
        revision=case.tx.revision,
        name=query.name,
        state=query.state,
        unfinished=unfinished,
        commands=() if decision.writes else tuple(_command(case, call) for call in decision.calls),
        broken=frozenset((one.uid, one.epoch) for one in case.fragments if one.state == "FAILED" and one.slots_held),
        no_room=frozenset(case.no_room),
        draining=draining,
        deployment_deadline=query.deployment_deadline if deploying else None,
        drain_deadline=query.drain_deadline if draining and query.drain_deadline > 0 else None,
        passed=tuple(case.passed),
    )


def _command(case: Case, call: Call) -> Command:
    fragment = next(one for one in case.fragments if one.uid == call.fragment)
    assert fragment.agent_uid is not None
    agent = case.agents[fragment.agent_uid]
    return Command(
        call=call,
        fragment=fragment.uid,
        ordinal=fragment.ordinal,
        epoch=fragment.epoch,
        agent_uid=agent.uid,
        agent_name=agent.name,
        address=agent.address,
        incarnation=agent.incarnation,
        registration=_registration(case, fragment) if isinstance(call, Register) else None,
    )


def _registration(case: Case, fragment: OpenFragment) -> cluster.RegisterFragmentRequest:
    """What the agent is told, with the fragment's agent as it is now and not as it was planned."""
    plan = catalog.FragmentPlan()
    plan.CopyFrom(case.plan.fragments[fragment.ordinal - 1])
    plan.agent = fragment.agent_name
    if fragment.starts is not None:
        plan.compute.starts.extend(fragment.message().starts)
    concerned = {*plan.input_edges, *plan.output_edges}
    edges = [edge for edge in case.plan.edges if edge.ordinal in concerned]
    told = case.told_topics() if edges or plan.compute.HasField("target") else {}
    request = cluster.RegisterFragmentRequest(
        fragment=cluster.FragmentRef(uid=fragment.uid, epoch=fragment.epoch),
        query=case.query.name,
        query_uid=case.query.uid,
        plan=plan,
        mode=case.plan.mode,
        edges=edges,
    )
    for edge in edges:
        name = edge_topics.edge_topic(case.query.uid, edge.ordinal)
        topic = request.topics.add(edge=edge.ordinal)
        if edge.kafka:
            topic.MergeFrom(cluster.EdgeTopic(topic=name, partitions=edge_topics.PARTITIONS, kafka=edge.kafka))
        else:
            topic.MergeFrom(told[name])
    errors = told.get(edge_topics.error_topic(case.query.uid, fragment.ordinal))
    if errors is not None:
        request.errors.CopyFrom(errors)
    return request
