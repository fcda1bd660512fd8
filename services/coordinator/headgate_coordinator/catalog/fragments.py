"""Fragments: the part of a query that one agent answers for, the slots it reserves there, and the epoch of its run.

Slots are reserved when the fragment is placed and returned once: in the transaction that records the fragment as gone
from its agent, or as moved away from it. A run of a lower epoch is shut out by the higher one and counts as gone. Every
change is recorded and told in the query's story, and touches only the rows it is about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, bindparam, delete, insert, select, update

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import agent_rows, query_states, story
from headgate_coordinator.catalog.log import edge_topics
from headgate_coordinator.catalog.schema import agents, fragments, queries
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import number, short
from headgate_coordinator.errors import INSUFFICIENT_CAPACITY
from headgate_coordinator.query.transitions import FRAGMENT_ENDED, QUERY_ENDED

_NAMES = tuple(fragments.c.keys())
_COLUMNS = select(fragments, queries.c.name.label("query_name")).join(queries, queries.c.uid == fragments.c.query_uid)
_BY_QUERY = _COLUMNS.where(fragments.c.query_uid == bindparam("query_uid_")).order_by(fragments.c.ordinal)
_BY_UID = _COLUMNS.where(fragments.c.uid.in_(bindparam("uids_", expanding=True)))
_QUERIES_ON = (
    select(fragments.c.query_uid)
    .where(fragments.c.agent_uid == bindparam("agent_uid_"), fragments.c.slots_held)
    .distinct()
    .order_by(fragments.c.query_uid)
)
_AGENTS = select(agents).where(agents.c.uid.in_(bindparam("uids_", expanding=True))).order_by(agents.c.name)
_USE_SLOTS = (
    update(agents)
    .where(agents.c.uid == bindparam("uid_"))
    .values(slots_used=agents.c.slots_used + bindparam("delta_"), revision=bindparam("revision_"))
)
_INSERT = insert(fragments)
_DELETE_OF = delete(fragments).where(fragments.c.query_uid == bindparam("query_uid_"))
_NAMED = select(agents.c.name, agents.c.uid).where(agents.c.name.in_(bindparam("names_", expanding=True)))
_UPDATE = (
    update(fragments)
    .where(fragments.c.uid == bindparam("uid_"))
    .values(
        agent_uid=bindparam("agent_uid_"),
        agent_name=bindparam("agent_name_"),
        incarnation=bindparam("incarnation_"),
        state=bindparam("state_"),
        epoch=bindparam("epoch_"),
        slots_held=bindparam("slots_held_"),
        attempts=bindparam("attempts_"),
        last_error=bindparam("last_error_"),
        revision=bindparam("revision_"),
        waiting=bindparam("waiting_"),
        starts=bindparam("starts_"),
    )
)


@dataclass(slots=True)
class OpenFragment:
    """A fragment as it stands in the open transaction, changes that are not flushed yet included."""

    uid: str
    query_uid: str
    query_name: str
    ordinal: int
    kind: str
    node_local: bool
    agent_uid: str | None
    agent_name: str
    incarnation: str
    state: str
    epoch: int
    slots: int
    slots_held: bool
    attempts: int
    last_error: str
    revision: int
    # What its run waits for before it can be RUNNING; empty if nothing is in its way.
    waiting: str = ""
    # Where it begins to read topics, as the column has it; None while that is not known.
    starts: bytes | None = None

    @property
    def ended(self) -> bool:
        return self.state in FRAGMENT_ENDED

    @property
    def resource_name(self) -> str:
        """Its name in the watch history."""
        return resource_name(self.query_name, self.ordinal)

    def message(self) -> catalog.Fragment:
        message = catalog.Fragment(
            uid=self.uid,
            query=self.query_name,
            query_uid=self.query_uid,
            ordinal=self.ordinal,
            kind=number(catalog.FragmentKind, self.kind),
            agent=self.agent_name,
            state=number(catalog.FragmentState, self.state),
            epoch=self.epoch,
            slots=self.slots,
            slots_held=self.slots_held,
            attempts=self.attempts,
            last_error=self.last_error,
            revision=self.revision,
            node_local=self.node_local,
            waiting=self.waiting,
        )
        if self.starts is not None:
            message.MergeFromString(self.starts)
        return message


def resource_name(query_name: str, ordinal: int) -> str:
    return f"{query_name}/{ordinal}"


class Changes:
    """Collects changes of fragments and slots and writes them with few statements; `flush` ends it."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx
        self._updates: list[dict[str, Any]] = []
        self._story: list[story.Entry] = []
        self._slots: Counter[str] = Counter()

    def set(self, fragment: OpenFragment, cause: str = "", **values: Any) -> None:
        """Changes columns. A change of state, epoch or agent, or any with a cause, is told in the story."""
        before, old_state = fragment.message(), fragment.state
        told = bool(cause) or "state" in values or "epoch" in values
        if "state" in values or "epoch" in values:
            # What it waited for ends there; its agent says what it waits for now.
            values.setdefault("waiting", "")
        for name, value in values.items():
            setattr(fragment, name, value)
        fragment.revision = self.tx.revision
        self._updates.append(
            {
                "uid_": fragment.uid,
                "agent_uid_": fragment.agent_uid,
                "agent_name_": fragment.agent_name,
                "incarnation_": fragment.incarnation,
                "state_": fragment.state,
                "epoch_": fragment.epoch,
                "slots_held_": fragment.slots_held,
                "attempts_": fragment.attempts,
                "last_error_": fragment.last_error,
                "revision_": fragment.revision,
                "waiting_": fragment.waiting,
                "starts_": fragment.starts,
            }
        )
        self.tx.record("FRAGMENT", fragment.resource_name, fragment.uid, before, fragment.message())
        if told:
            self._story.append(
                story.Entry(
                    fragment.query_uid,
                    fragment.query_name,
                    old_state,
                    fragment.state,
                    cause,
                    fragment.ordinal,
                    fragment.agent_name,
                    fragment.epoch,
                )
            )

    def gone(self, fragment: OpenFragment, cause: str) -> None:
        """Its agent has nothing of it left: the slots go back, once."""
        if not fragment.slots_held:
            return
        assert fragment.agent_uid is not None
        self._slots[fragment.agent_uid] -= fragment.slots
        self.set(fragment, cause, slots_held=False, state=fragment.state if fragment.ended else "STOPPED")

    def new_epoch(
        self, fragment: OpenFragment, cause: str, *, to: Row[Any] | None = None, incarnation: str = "", above: int = 0
    ) -> None:
        """A new run, on the agent of the row `to` if given. The caller has seen that there is room for it."""
        epoch = max(fragment.epoch, above) + 1
        values: dict[str, Any] = {"state": "PENDING", "epoch": epoch, "incarnation": incarnation}
        if to is not None:
            if fragment.slots_held:
                assert fragment.agent_uid is not None
                self._slots[fragment.agent_uid] -= fragment.slots
            self._slots[to.uid] += fragment.slots
            values |= {"agent_uid": to.uid, "agent_name": to.name, "slots_held": True}
        self.set(fragment, cause, **values)

    def flush(self) -> None:
        tx = self.tx
        if self._updates:
            tx.connection.execute(_UPDATE, self._updates)
        _move_slots(tx, self._slots)
        story.append_all(tx, self._story)
        self._updates, self._story = [], []
        self._slots = Counter()


def insert_fragments(tx: Tx, query_uid: str, query_name: str, plan: catalog.QueryPlan) -> None:
    """Places the fragments of a new query as planned and reserves their slots, or INSUFFICIENT_CAPACITY."""
    names = {fragment.agent for fragment in plan.fragments}
    placed = {row.name: row.uid for row in tx.connection.execute(_NAMED, {"names_": sorted(names)})}
    for name in sorted(names):
        if name not in placed:
            raise agent_rows.not_found(name)
    needed: Counter[str] = Counter()
    rows, told = [], []
    for planned in plan.fragments:
        fragment = OpenFragment(
            uid=tx.ids.uid("fragment"),
            query_uid=query_uid,
            query_name=query_name,
            ordinal=planned.ordinal,
            kind=short(catalog.FragmentKind, planned.kind),
            node_local=planned.node_local,
            agent_uid=placed[planned.agent],
            agent_name=planned.agent,
            incarnation="",
            state="PENDING",
            epoch=1,
            slots=planned.slots,
            slots_held=True,
            attempts=0,
            last_error="",
            revision=tx.revision,
        )
        needed[placed[planned.agent]] += planned.slots
        rows.append({name: getattr(fragment, name) for name in _NAMES})
        tx.record("FRAGMENT", fragment.resource_name, fragment.uid, None, fragment.message())
        told.append(
            story.Entry(
                query_uid, query_name, "", "PENDING", "placed", fragment.ordinal, fragment.agent_name, fragment.epoch
            )
        )
    if rows:
        tx.connection.execute(_INSERT, rows)
    _move_slots(tx, needed)
    story.append_all(tx, told)


def fragments_of(tx: Tx, query_uid: str) -> list[OpenFragment]:
    """In the order of their ordinals."""
    return [opened(row) for row in tx.connection.execute(_BY_QUERY, {"query_uid_": query_uid})]


def select_fragments() -> Select[Any]:
    """Rows that `opened` reads, for lists and pages: columns of `fragments`, and `query_name`."""
    return _COLUMNS


def opened(row: Row[Any]) -> OpenFragment:
    return OpenFragment(
        uid=row.uid,
        query_uid=row.query_uid,
        query_name=row.query_name,
        ordinal=row.ordinal,
        kind=row.kind,
        node_local=row.node_local,
        agent_uid=row.agent_uid,
        agent_name=row.agent_name,
        incarnation=row.incarnation,
        state=row.state,
        epoch=row.epoch,
        slots=row.slots,
        slots_held=row.slots_held,
        attempts=row.attempts,
        last_error=row.last_error,
        revision=row.revision,
        waiting=row.waiting,
        starts=row.starts,
    )


def queries_on(tx: Tx, agent_uid: str) -> list[str]:
    """Uids of the queries that have a fragment on the agent which is not confirmed gone."""
    return list(tx.connection.execute(_QUERIES_ON, {"agent_uid_": agent_uid}).scalars())


def release_agent(tx: Tx, agent_uid: str) -> None:
    """Counts every fragment on the agent as gone: it was declared gone for good.

    RUNNING queries are taken back; the reconciler places elsewhere what can move, and lets go of the names of queries
    that only waited for this agent.
    """
    row = tx.connection.execute(select(agents.c.name).where(agents.c.uid == agent_uid)).one()
    cause = f"agent {row.name} was declared gone for good"
    held = [
        opened(found)
        for found in tx.connection.execute(
            _COLUMNS.where(fragments.c.agent_uid == agent_uid, fragments.c.slots_held).order_by(
                fragments.c.query_uid, fragments.c.ordinal
            )
        )
    ]
    concerned = list(dict.fromkeys(fragment.query_uid for fragment in held))
    query_states.take_back(tx, concerned, cause)
    changes = Changes(tx)
    for fragment in held:
        changes.gone(fragment, cause)
    changes.flush()


def delete_query(tx: Tx, query_uid: str, cause: str = "dropped") -> None:
    """Deletes an ended query, all of whose fragments are gone, with its fragments and edges.

    Its name is free from now on. Its error rows stay for their time, which runs anew.
    """
    query = query_states.open_query(tx, query_uid)
    if query is None:
        return
    _ = query.message  # (it tells how many fragments there were)
    for fragment in fragments_of(tx, query_uid):
        tx.record("FRAGMENT", fragment.resource_name, fragment.uid, fragment.message(), None)
    tx.connection.execute(_DELETE_OF, {"query_uid_": query_uid})
    edge_topics.let_go(tx, query_uid)
    query.delete(cause)


def _move_slots(tx: Tx, deltas: Mapping[str, int]) -> None:
    """Adds to the slots in use of each agent; INSUFFICIENT_CAPACITY, naming the agent, where there are not enough."""
    wanted = {uid: delta for uid, delta in deltas.items() if delta}
    if not wanted:
        return
    rows = tx.connection.execute(_AGENTS, {"uids_": list(wanted)}).all()
    for row in rows:
        if row.slots_used + wanted[row.uid] > row.slots:
            free = row.slots - row.slots_used
            raise HeadgateError(
                INSUFFICIENT_CAPACITY,
                f"agent {row.name} has {free} of {row.slots} slots free, and {wanted[row.uid]} are needed",
                metadata={"agent": row.name, "free": str(free), "needed": str(wanted[row.uid])},
            )
    for before in agent_rows.messages(tx, rows):
        after = catalog.Agent()
        after.CopyFrom(before)
        after.slots_used += wanted[before.uid]
        after.revision = tx.revision
        moved = {"uid_": before.uid, "delta_": wanted[before.uid], "revision_": tx.revision}
        tx.connection.execute(_USE_SLOTS, moved)
        tx.record("AGENT", before.name, before.uid, before, after)


def by_uid(tx: Tx, uids: Iterable[str]) -> dict[str, OpenFragment]:
    """Those of the fragments that exist, by uid."""
    listed = list(uids)
    found: dict[str, OpenFragment] = {}
    for start in range(0, len(listed), query_states.BATCH):
        some = listed[start : start + query_states.BATCH]
        for row in tx.connection.execute(_BY_UID, {"uids_": some}):
            found[row.uid] = opened(row)
    return found


_UNENDED = (
    select(fragments.c.uid)
    .join(queries, queries.c.uid == fragments.c.query_uid)
    .where(fragments.c.uid.in_(bindparam("uids_", expanding=True)), queries.c.state.not_in(QUERY_ENDED))
)


def that_may_run(tx: Tx, uids: Iterable[str]) -> list[str]:
    """Those of the fragments whose query has not ended."""
    found = tx.connection.execute(_UNENDED, {"uids_": list(uids)})
    return [row.uid for row in found]
