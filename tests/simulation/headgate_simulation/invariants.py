"""What must hold after every commit, in every run.

`Checker` keeps a mirror of the catalog made from nothing but the change records, and checks what a commit touched
against the mirror (exact, because a commit can break only what it touched) and against the truth: what the agents'
processes really run. Every `FULL_EVERY` commits, and at quiet, everything is checked again from the tables themselves.

To add an invariant: write a method that takes what changed and calls `fail` with a name of its own, and call it from
`committed`; if it can be broken without a commit, add it to `everything` as well. Then plant a bug that breaks it
(`planted.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.tx import Change
from headgate_coordinator.query.transitions import FRAGMENT_TRANSITIONS, QUERY_ENDED, QUERY_TRANSITIONS
from headgate_simulation.database import FastDatabase
from headgate_simulation.edges import Edges
from headgate_simulation.failures import Failures
from headgate_simulation.grants import Grants
from headgate_simulation.memory import Memory
from headgate_simulation.places import Places
from headgate_simulation.store import Commit
from headgate_simulation.truth import Truth
from headgate_simulation.violation import fail

FULL_EVERY = 50

QUERY_STATES = {value: name.removeprefix("QUERY_STATE_") for name, value in catalog.QueryState.items()}
FRAGMENT_STATES = {value: name.removeprefix("FRAGMENT_STATE_") for name, value in catalog.FragmentState.items()}
DESIRED = {value: name.removeprefix("DESIRED_STATE_") for name, value in catalog.DesiredState.items()}
_ORDER = {"RUNNING": 0, "STOPPED": 1, "DROPPED": 2}
UNREACHABLE = catalog.AGENT_STATE_UNREACHABLE
# The table of each kind, and its column of uids.
TABLES = {
    "AGENT": ("agents", "uid"),
    "NETWORK_LINK": ("network_links", "uid"),
    "LOGICAL_SOURCE": ("logical_sources", "uid"),
    "PHYSICAL_SOURCE": ("physical_sources", "uid"),
    "SINK": ("sinks", "uid"),
    "QUERY": ("queries", "uid"),
    "FRAGMENT": ("fragments", "uid"),
    "TOPIC": ("topics", "uid"),
    "PARTITION": ("partitions", "key"),
    "TRANSFER": ("transfers", "uid"),
}


# A change as its kind, and the resource before and after it in its wire form.
Told = tuple[str, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What an agent had obeyed when a command reached it."""

    agent: str
    term: int
    epoch: int


@dataclass(slots=True)
class Mirror:
    """The catalog as its change records tell it: messages by kind and uid."""

    by_kind: dict[str, dict[str, Any]] = field(default_factory=lambda: {kind: {} for kind in TABLES})
    fragments_of: dict[str, dict[str, None]] = field(default_factory=dict)
    fragments_on: dict[str, dict[str, None]] = field(default_factory=dict)
    agents_by_name: dict[str, Any] = field(default_factory=dict)
    topics_of: dict[str, dict[str, None]] = field(default_factory=dict)

    def apply(self, change: Change) -> None:
        table = self.by_kind[change.kind]
        old: Any = table.get(change.uid)
        if change.kind == "FRAGMENT":
            self._index_fragment(old, change.after)
        elif change.kind == "AGENT":
            self._index_agent(old, change.after)
        elif change.kind == "TOPIC":
            self._index_topic(old, change.after)
        if change.after is None:
            table.pop(change.uid, None)
        else:
            table[change.uid] = change.after

    def _index_agent(self, old: Any, new: Any) -> None:
        if old is not None:
            name = old.name
            if self.agents_by_name.get(name) is old:
                del self.agents_by_name[name]
        if new is not None:
            self.agents_by_name[new.name] = new

    def _index_fragment(self, old: Any, new: Any) -> None:
        if old is not None:
            self.fragments_of.get(old.query_uid, {}).pop(old.uid, None)
            self.fragments_on.get(old.agent, {}).pop(old.uid, None)
        if new is not None:
            self.fragments_of.setdefault(new.query_uid, {})[new.uid] = None
            self.fragments_on.setdefault(new.agent, {})[new.uid] = None

    def _index_topic(self, old: Any, new: Any) -> None:
        if old is not None:
            self.topics_of.get(old.query_uid, {}).pop(old.uid, None)
        if new is not None and new.query_uid:
            self.topics_of.setdefault(new.query_uid, {})[new.uid] = None

    def topics(self, query_uid: str) -> list[Any]:
        """Those that the query made for itself."""
        table = self.by_kind["TOPIC"]
        return [table[uid] for uid in self.topics_of.get(query_uid, ())]

    def fragments(self, query_uid: str) -> list[Any]:
        table = self.by_kind["FRAGMENT"]
        return [table[uid] for uid in self.fragments_of.get(query_uid, ())]


class Checker:
    def __init__(self, database: FastDatabase, truth: Truth, now: Callable[[], float]) -> None:
        self.mirror = Mirror()
        self._failures = Failures(database, self.mirror, truth, now)
        self.edges = Edges(database, self.mirror)
        self.grants = Grants(database)
        self.places = Places(self.mirror, self.edges)
        self._memory = Memory(database)
        self.revision = 0
        # What each revision changed, as watchers are to be told of it.
        self.told: dict[int, list[Told]] = {}
        self.commits = 0
        self._full_at = FULL_EVERY
        self._database = database
        self._truth = truth
        self._story_read = 0
        # The epoch of the grant to lead.
        self.leader = 0
        # Processes whose agent was dropped, and what agents said that they have forgotten.
        self._dropped: set[str] = set()
        self._forgotten: dict[tuple[str, str], int] = {}
        # The last term in which they were told to.
        self._forgotten_in: dict[tuple[str, str], int] = {}
        # The highest term that an agent has obeyed, and the highest epoch of a fragment that it was told of.
        self._terms: dict[str, int] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        # The highest epoch of which a registration has reached the agent, whatever came of it.
        self._reached: dict[tuple[str, str], int] = {}

    # After every commit

    def committed(self, commit: Commit) -> None:
        self.commits += 1
        self.grants.committed()
        self._one_leader(commit)
        if commit.revision is not None:
            self._revision(commit.revision.number)
            changes = commit.revision.changes
            self.told[self.revision] = [_told(change) for change in changes]
            for change in changes:
                self._change_is_true(change)
            before = {change.uid: self.mirror.by_kind[change.kind].get(change.uid) for change in changes}
            for change in changes:
                self._transition(change, before[change.uid])
                if change.kind == "QUERY" and not commit.cause:
                    self._looked_at(change, before[change.uid], change.after)
            for change in changes:
                self.mirror.apply(change)
            self._after(changes, before)

    def settled(self) -> None:
        """A commit is complete, with all operations that share it."""
        if self.commits >= self._full_at:
            self._full_at = self.commits + FULL_EVERY
            self.everything()

    def _one_leader(self, commit: Commit) -> None:
        """Two leaders never both act: what a controller writes, it writes in the term that leads at that moment."""
        row = self.grants.known.get(("coordinator", "leader"))
        self.leader = 0 if row is None else row[0]
        if commit.term is not None and (row is None or row[0] != commit.term or row[1] is None):
            fail("one leader acts", f"{commit.coordinator} wrote in term {commit.term}, but {row} leads")

    def _revision(self, number: int) -> None:
        if number != self.revision + 1:
            fail("revisions are dense", f"revision {number} follows {self.revision}")
        self.revision = number

    def _change_is_true(self, change: Change) -> None:
        """The history tells what was there before, and nothing twice."""
        known = self.mirror.by_kind[change.kind].get(change.uid)
        if not _same(known, change.before):
            fail(
                "history is true",
                f"{change.kind} {change.name} was\n{known}\nbut its change says\n{change.before}",
                (change.name, change.uid),
            )
        if change.before is None and change.after is None:
            fail("history is true", f"{change.kind} {change.name}: a change from nothing to nothing", (change.name,))

    def _transition(self, change: Change, before: Any) -> None:
        after: Any = change.after
        if change.kind == "QUERY":
            self._query_transition(change, before, after)
        elif change.kind == "FRAGMENT":
            self._fragment_transition(change, before, after)
        elif change.kind == "AGENT":
            self._agent_transition(change, before, after)

    def _agent_transition(self, change: Change, before: Any, after: Any) -> None:
        """A process whose agent was dropped is shut out for good."""
        if before is not None and before.incarnation and (after is None or not after.incarnation):
            self._dropped.add(before.incarnation)
        if before is not None and (after is None or not after.incarnation):
            self._failures.dropped(before.name)
        if after is not None and after.incarnation in self._dropped:
            fail("a dropped process stays out", f"{after.incarnation} is back as agent {change.name}", (change.name,))
        comes_in = after is not None and after.incarnation and (before is None or not before.incarnation)
        if comes_in and self._truth.count(change.name, after.incarnation):
            text = f"{after.incarnation} is let in as agent {change.name}, and still has what the catalog let go of"
            fail("nothing of before comes in", text, (change.name,))

    def _query_transition(self, change: Change, before: Any, after: Any) -> None:
        about = (change.name, change.uid)
        if after is not None:
            self._failures.changed(before, after)
        if before is None:
            if after.state != catalog.QUERY_STATE_PENDING:
                fail("legal transitions", f"query {change.name} begins {QUERY_STATES[after.state]}", about)
            return
        was = QUERY_STATES[before.state]
        if after is None:
            if not any(_leads(_QUERY_STEPS, was, end) for end in QUERY_ENDED):
                fail("legal transitions", f"query {change.name} was deleted while {was}", about)
            return
        now = QUERY_STATES[after.state]
        if not _leads(_QUERY_STEPS, was, now):
            fail("legal transitions", f"query {change.name} went from {was} to {now}", about)
        if _ORDER[DESIRED[after.desired_state]] < _ORDER[DESIRED[before.desired_state]]:
            fail(
                "what was asked for stays asked for",
                f"query {change.name}: {DESIRED[before.desired_state]} became {DESIRED[after.desired_state]}",
                about,
            )
        if was != now and after.desired_state != catalog.DESIRED_STATE_RUNNING and self._passed_running(after):
            fail("what is unwanted is not brought up", f"query {change.name} is RUNNING, though it was stopped", about)
        if was != now and now == "STOPPED" and after.desired_state == catalog.DESIRED_STATE_RUNNING:
            fail("legal transitions", f"query {change.name} is STOPPED, though nobody asked for it", about)
        if now == "FAILED" and not after.failure.reason:
            fail("a failure has a reason", f"query {change.name} is FAILED and does not say why", about)
        if before.stop_mode == catalog.STOP_MODE_HARD and after.stop_mode == catalog.STOP_MODE_SOFT:
            fail("a hard stop stays hard", f"query {change.name} went back to a soft stop", about)

    def _passed_running(self, query: Any) -> bool:
        """Whether it reached RUNNING in the last transaction, if only on its way."""
        steps = self._database.raw.execute(
            "SELECT to_state FROM story WHERE query_uid = ? AND revision = ? AND fragment = 0",
            (query.uid, query.revision),
        )
        return ("RUNNING",) in steps.fetchall()

    def _looked_at(self, change: Change, before: Any, after: Any) -> None:
        """A controller that looks at a query which is not wanted any more takes it down, and does nothing else."""
        if before is None or after is None or after.desired_state == catalog.DESIRED_STATE_RUNNING:
            return
        if after.state == before.state and QUERY_STATES[after.state] in ("PENDING", "DEPLOYING", "RUNNING"):
            text = f"query {change.name} was looked at and left {QUERY_STATES[after.state]}, though it is to be stopped"
            fail("a stop is seen at the next look", text, (change.name, change.uid))

    def _fragment_transition(self, change: Change, before: Any, after: Any) -> None:
        about = (change.name, change.uid)
        if before is None:
            if after.state != catalog.FRAGMENT_STATE_PENDING:
                fail("legal transitions", f"fragment {change.name} begins {FRAGMENT_STATES[after.state]}", about)
            return
        if after is None:
            return
        was, now = FRAGMENT_STATES[before.state], FRAGMENT_STATES[after.state]
        new_epoch = after.epoch != before.epoch
        if after.epoch < before.epoch:
            fail("epochs grow", f"fragment {change.name} went from epoch {before.epoch} to {after.epoch}", about)
        if not _leads(_FRAGMENT_STEPS, was, now) or (not new_epoch and not _leads(_WITHIN_EPOCH, was, now)):
            fail("legal transitions", f"fragment {change.name} went from {was} to {now}", about)
        if was != now and now == "PENDING" and not new_epoch:
            fail("epochs grow", f"fragment {change.name} begins again in epoch {after.epoch}", about)

    def _run_is_not_well(self, fragment: Any, about: tuple[str, ...]) -> None:
        """A run that is well, on the process that the catalog knows, is not replaced; nor what waits to be started."""
        agent = self.mirror.agents_by_name.get(fragment.agent)
        state = FRAGMENT_STATES[fragment.state]
        if agent is not None and state == "REGISTERED":
            held = self._truth.holds(fragment.agent, agent.incarnation, fragment.uid)
            if held == fragment.epoch and agent.state != UNREACHABLE:
                text = f"{fragment.agent} has {fragment.uid} in epoch {held} as registered, and it gets a new epoch"
                fail("a run that is well is not replaced", text, about)
        if state not in ("STARTED", "RUNNING"):
            return
        for run in self._truth.runs_of(fragment.uid):
            if (
                agent is not None
                and run.agent == fragment.agent
                and run.epoch == fragment.epoch
                and run.incarnation == agent.incarnation
            ):
                fail("a run that is well is not replaced", f"{run} runs, and gets a new epoch", about)

    def _runs(self, before: Any, after: Any, *, follows: bool) -> None:
        """What really runs allows what the catalog says now. `follows` if the leader of an edge of it has moved."""
        about = (before.query, before.query_uid, before.uid, before.agent)
        moved = after is not None and after.agent != before.agent
        if after is None:
            self._run_is_gone("name lock", before, about)
        elif before.slots_held and not after.slots_held and not moved:
            self._run_is_gone("slots are returned when the run is gone", before, about)
        elif after.epoch != before.epoch and not moved and not follows:
            self._run_is_not_well(before, about)

    def _run_is_gone(self, invariant: str, fragment: Any, about: tuple[str, ...]) -> None:
        """Slots and names are free when nothing runs any more. Only a process that is shut out does not count."""
        agent = self.mirror.agents_by_name.get(fragment.agent)
        if agent is None:
            return
        for run in self._truth.runs_of(fragment.uid):
            if run.agent == fragment.agent and run.epoch <= fragment.epoch and run.incarnation == agent.incarnation:
                fail(invariant, f"{run} still runs, but the catalog lets go of it", about)
        held = self._truth.holds(fragment.agent, agent.incarnation, fragment.uid)
        if 0 < held <= fragment.epoch:
            text = f"{agent.name} still has epoch {held} of {fragment.uid}, but the catalog lets go of it"
            fail(invariant, text, about)

    def _after(self, changes: Sequence[Change], before: dict[str, Any]) -> None:
        mirror = self.mirror
        followers = self.edges.followers(changes, before)
        agents: dict[str, None] = {}
        queries: dict[str, None] = {}
        for change in changes:
            now: Any = change.after
            if change.kind == "AGENT":
                agents[change.name] = None
                # What is asked of queries is asked of their agents' life and place, not of how full these are.
                if _lives(before[change.uid]) != _lives(now):
                    for uid in mirror.fragments_on.get(change.name, ()):
                        queries[mirror.by_kind["FRAGMENT"][uid].query_uid] = None
            elif change.kind == "QUERY":
                queries[change.uid] = None
            elif change.kind == "TOPIC":
                queries.update({side.query_uid: None for side in (before[change.uid], now) if side is not None})
            elif change.kind == "FRAGMENT":
                was = before[change.uid]
                for side in (was, now):
                    if side is not None:
                        agents[side.agent] = None
                        queries[side.query_uid] = None
                if was is not None:
                    self._runs(was, now, follows=change.uid in followers)
                if now is not None and (was is None or was.agent != now.agent or now.slots_held > was.slots_held):
                    self._placement(now)
                if now is not None and (was is None or (was.state, was.epoch) != (now.state, now.epoch)):
                    self._confirmed(now)
        self.places.changed(changes)
        for name in agents:
            self._capacity(name)
        for uid in queries:
            self._query(uid)
            self.edges.query(uid)

    def _placement(self, fragment: Any) -> None:
        agent = self.mirror.agents_by_name.get(fragment.agent)
        if agent is None or agent.state == UNREACHABLE:
            state = "no longer there" if agent is None else "UNREACHABLE"
            fail(
                "no placement on an unreachable agent",
                f"fragment {fragment.ordinal} of {fragment.query} was placed on {fragment.agent}, which is {state}",
                (fragment.query, fragment.query_uid, fragment.uid, fragment.agent),
            )
        self.places.placed(fragment)

    def _confirmed(self, fragment: Any) -> None:
        """The catalog calls running, or complete, only what an agent really ran, or completed, in that epoch."""
        state = FRAGMENT_STATES[fragment.state]
        key = (fragment.agent, fragment.uid)
        if state == "REGISTERED" and self._reached.get(key, 0) < fragment.epoch:
            fail(
                "states are confirmed",
                f"fragment {fragment.ordinal} of {fragment.query} is REGISTERED in epoch {fragment.epoch}, "
                f"and {fragment.agent} has never heard of it",
                (fragment.query, fragment.query_uid, fragment.uid, fragment.agent),
            )
        known = {"RUNNING": self._truth.ran, "TERMINATED": self._truth.completed}.get(state)
        if known is not None and (fragment.uid, fragment.epoch) not in known:
            fail(
                "states are confirmed",
                f"fragment {fragment.ordinal} of {fragment.query} is {state} in epoch {fragment.epoch}, but never was",
                (fragment.query, fragment.query_uid, fragment.uid, fragment.agent),
            )

    def _capacity(self, name: str) -> None:
        agent = self.mirror.agents_by_name.get(name)
        table = self.mirror.by_kind["FRAGMENT"]
        held = sum(table[uid].slots for uid in self.mirror.fragments_on.get(name, ()) if table[uid].slots_held)
        used = 0 if agent is None else agent.slots_used
        if held != used or (agent is not None and used > agent.slots):
            fail("capacity", f"agent {name}: {used} slots used, fragments hold {held}", (name,))

    def _query(self, uid: str) -> None:
        query = self.mirror.by_kind["QUERY"].get(uid)
        fragments = self.mirror.fragments(uid)
        if query is None:
            if fragments:
                fail("history is true", f"the query of fragments {[f.uid for f in fragments]} is gone", (uid,))
            return
        about = (query.name, uid)
        state = QUERY_STATES[query.state]
        if state == "RUNNING":
            for fragment in fragments:
                if fragment.state == catalog.FRAGMENT_STATE_TERMINATED:
                    continue
                agent = self.mirror.agents_by_name.get(fragment.agent)
                if agent is None or agent.state == UNREACHABLE:
                    fail(
                        "RUNNING means running",
                        f"query {query.name} is RUNNING while {fragment.agent} is unreachable",
                        (*about, fragment.uid, fragment.agent),
                    )
                if fragment.state != catalog.FRAGMENT_STATE_RUNNING:
                    fail(
                        "RUNNING means running",
                        f"query {query.name} is RUNNING while fragment {fragment.ordinal} is "
                        f"{FRAGMENT_STATES[fragment.state]}",
                        (*about, fragment.uid, fragment.agent),
                    )
        if state in QUERY_ENDED:
            held = [fragment.ordinal for fragment in fragments if fragment.slots_held]
            if held:
                fail("ended means gone", f"query {query.name} is {state}, but fragments {held} hold slots", about)
            if state == "TERMINATED" and any(
                f.kind == catalog.FRAGMENT_KIND_SOURCE and f.state != catalog.FRAGMENT_STATE_TERMINATED
                for f in fragments
            ):
                fail("ended means gone", f"query {query.name} is TERMINATED, but a source of it did not end", about)

    # When a coordinator sends a command

    def brought_up(self, coordinator: str, method: str, fragment: Any) -> None:
        """Nobody brings up what is gone: its calls have ended before it is forgotten, and none is made again."""
        if fragment.uid not in self.mirror.by_kind["FRAGMENT"]:
            fail(
                "what is dropped is not brought up",
                f"{coordinator} sends {method} of {fragment.uid} epoch {fragment.epoch}, which is gone",
                (coordinator, fragment.uid),
            )

    # After every command that an agent has obeyed

    def asked(self, agent: str, method: str, fragment: Any) -> Asked:
        """A command reaches an agent."""
        key = (agent, fragment.uid)
        if method == "RegisterFragment":
            self._reached[key] = max(self._reached.get(key, 0), fragment.epoch)
        return Asked(agent, self._terms.get(agent, 0), self._epochs.get(key, 0))

    def obeyed(self, asked: Asked, term: int, method: str, fragment: Any) -> None:
        """An agent that has obeyed a term obeys no lower one, and starts no run below one that it knew."""
        agent, uid, epoch = asked.agent, fragment.uid, fragment.epoch
        if term < asked.term:
            fail("lower terms are refused", f"{agent} obeyed term {term} after {asked.term}", (agent, uid))
        if method in ("RegisterFragment", "StartFragment") and epoch < asked.epoch:
            fail(
                "lower epochs are refused",
                f"{agent} obeyed {method} of epoch {epoch} after {asked.epoch}",
                (agent, uid),
            )
        if method == "RegisterFragment" and epoch <= self._forgotten.get((agent, uid), 0):
            fail(
                "what is forgotten stays forgotten", f"{agent} took epoch {epoch}, which it had forgotten", (agent, uid)
            )
        self._terms[agent] = max(self._terms.get(agent, 0), term)
        if method != "StopFragment":
            self._epochs[agent, uid] = max(self._epochs.get((agent, uid), 0), epoch)
        if method == "UnregisterFragment":
            self.forgot(agent, uid, epoch, term)
            for run in self._truth.runs_of(uid):
                if run.agent == agent and run.epoch <= epoch:
                    fail("unregistered means gone", f"{run} still runs, though {agent} said it is gone", (agent, uid))

    def forgot(self, agent: str, uid: str, epoch: int, term: int) -> None:
        """An agent has forgotten a fragment for certain, whether or not anybody was told: also because it was dropped,
        or by a command whose caller did not wait."""
        self._forgotten[agent, uid] = max(self._forgotten.get((agent, uid), 0), epoch)
        self._forgotten_in[agent, uid] = max(self._forgotten_in.get((agent, uid), 0), term)

    def disk_lost(self, agent: str) -> None:
        """What an agent said yes to is gone with its disk, and nothing of it is asked of its next process."""
        self._terms.pop(agent, None)
        for known in (self._epochs, self._forgotten, self._forgotten_in, self._reached):
            for key in [key for key in known if key[0] == agent]:
                del known[key]

    def remembered(self, agent: str, term: int, known: dict[str, int]) -> None:
        """What an agent said yes to, its next process knows: by uid, the highest epoch that it was told of. What was
        forgotten in an earlier term than the one it knows needs not be: commands of that term are refused."""
        if term < self._terms.get(agent, 0):
            fail("yes is durable", f"{agent} obeyed term {self._terms[agent]}, its next process knows {term}", (agent,))
        for (name, uid), epoch in self._epochs.items():
            if name == agent and known.get(uid, 0) < epoch:
                key = (name, uid)
                if self._forgotten.get(key, 0) >= epoch and self._forgotten_in[key] < term:
                    continue
                text = f"{agent} said yes to epoch {epoch} of {uid}, and its next process knows {known.get(uid)}"
                fail("yes is durable", text, (agent, uid))

    # Every so often, and at quiet

    def everything(self) -> None:
        """All of the above from the tables alone, and the mirror against them."""
        execute = self._database.raw.execute
        broken = execute("PRAGMA foreign_key_check").fetchall()
        if broken:
            fail("referential integrity", f"rows with broken references: {broken}")
        head = execute("SELECT value FROM revision").fetchone()[0]
        if head != self.revision:
            fail("revisions are dense", f"the catalog is at {head}, its changes at {self.revision}")
        low, high, count = execute(
            "SELECT MIN(revision), MAX(revision), COUNT(DISTINCT revision) FROM changes"
        ).fetchone()
        if count and (high != head or high - low + 1 != count):
            fail("revisions are dense", f"history has {count} revisions from {low} to {high}; the catalog is at {head}")
        for kind, (table, column) in TABLES.items():
            stored = {row[0] for row in execute(f"SELECT {column} FROM {table}")}
            mirrored = self.mirror.by_kind[kind].keys()
            if stored != mirrored:
                lost, extra = sorted(stored - mirrored), sorted(mirrored - stored)
                fail("history is true", f"{table}: {lost} not in the history, {extra} only there", (*lost, *extra))
        self._rows()
        self._stories()
        self._memory.check()
        for name in self.mirror.agents_by_name:
            self._capacity(name)
        for uid in self.mirror.by_kind["QUERY"]:
            self._query(uid)
        for uid in {*self.mirror.by_kind["QUERY"], *self.mirror.topics_of}:
            self.edges.query(uid)
        self._truth.check()

    def _stories(self) -> None:
        """Every single step that was taken, also where one transaction took several."""
        rows = self._database.raw.execute(
            "SELECT rowid, query_name, fragment, from_state, to_state FROM story WHERE rowid > ? ORDER BY rowid",
            (self._story_read,),
        )
        for rowid, name, fragment, before, after in rows:
            self._story_read = max(self._story_read, rowid)
            legal = FRAGMENT_TRANSITIONS if fragment else QUERY_TRANSITIONS
            if before and after and before != after and (before, after) not in legal:
                fail("legal transitions", f"{name}/{fragment} went from {before} to {after}", (name,))

    def _rows(self) -> None:
        execute = self._database.raw.execute
        for uid, state, slots, used in execute("SELECT uid, state, slots, slots_used FROM agents"):
            agent = self.mirror.by_kind["AGENT"][uid]
            known = (catalog.AgentState.Name(agent.state).removeprefix("AGENT_STATE_"), agent.slots, agent.slots_used)
            if known != (state, slots, used):
                fail("history is true", f"agent {agent.name} is {(state, slots, used)}, its history says {known}")
        for uid, state, desired in execute("SELECT uid, state, desired_state FROM queries"):
            query = self.mirror.by_kind["QUERY"][uid]
            told = (QUERY_STATES[query.state], DESIRED[query.desired_state])
            if told != (state, desired):
                fail("history is true", f"query {query.name} is {(state, desired)}, its history says {told}", (uid,))
        rows = execute("SELECT uid, state, epoch, slots_held, agent_name FROM fragments")
        for uid, state, epoch, held, agent_name in rows:
            fragment = self.mirror.by_kind["FRAGMENT"][uid]
            said = (FRAGMENT_STATES[fragment.state], fragment.epoch, int(fragment.slots_held), fragment.agent)
            if said != (state, epoch, held, agent_name):
                fail(
                    "history is true", f"fragment {uid} is {(state, epoch, held, agent_name)}, its history says {said}"
                )


def _closure(steps: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Where each state can lead, by any number of steps: one transaction may take several."""
    direct: dict[str, set[str]] = {}
    for before, after in steps:
        direct.setdefault(before, set()).add(after)
    found: dict[str, frozenset[str]] = {}
    for start in direct:
        reached, waiting = {start}, [start]
        while waiting:
            for after in direct.get(waiting.pop(), ()):
                if after not in reached:
                    reached.add(after)
                    waiting.append(after)
        found[start] = frozenset(reached)
    return found


_QUERY_STEPS = _closure(QUERY_TRANSITIONS)
_FRAGMENT_STEPS = _closure(FRAGMENT_TRANSITIONS)
_WITHIN_EPOCH = _closure(step for step in FRAGMENT_TRANSITIONS if step[1] != "PENDING")


def _leads(steps: dict[str, frozenset[str]], before: str, after: str) -> bool:
    return before == after or after in steps.get(before, ())


def _told(change: Change) -> Told:
    before, after = change.before, change.after
    return (
        change.kind.lower(),
        None if before is None else before.SerializeToString(deterministic=True),
        None if after is None else after.SerializeToString(deterministic=True),
    )


def _same(known: Message | None, told: Message | None) -> bool:
    if known is None or told is None:
        return known is told
    return known is told or known == told


def _lives(agent: Any) -> tuple[object, ...] | None:
    return None if agent is None else (agent.state, agent.address, agent.incarnation)
