"""How the queries of a bundle are planned outside of its transaction, though they use what the bundle creates.

The transaction is tried. Where a query has no plan yet, a stand-in takes its place, with its name and with references
to what it names; at the end the try is rolled back with `Unplanned`, which tells what is to be planned and what each
plan may use. Then all is planned while nobody waits, and the transaction is tried again with these drafts. It commits
once each query has a plan that fits what the transaction itself sees:

- Everything that the statement names is as it was, and the rule for any planned query holds (`plan_uses`).
- A query whose plan does not fit is to be planned again, and so are those after it, which may want the same slots.
- A step is given the same uids in every try, so a plan knows what the bundle creates by the uid it will have. Tries
  that were rolled back have told nobody of them.
- The first error in the order of the steps is the one that is told: that of a plan is kept, and raised at its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_common.ids import Ids
from headgate_coordinator.catalog.plan_uses import PlanChanged
from headgate_coordinator.catalog.planner_view import (
    LoadedView,
    Topology,
    load_named,
    load_topology,
    sources_named,
    view_of,
)
from headgate_coordinator.catalog.queries import PlannedQuery
from headgate_coordinator.catalog.tx import Change, Tx
from headgate_coordinator.errors import PLAN_OUTDATED
from headgate_coordinator.sql.statements import QueryStatement

# The step, the prefix, and how many of that prefix the step was given before.
GivenUid = tuple[int, str, int]


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan and what it was made against, or why there is none."""

    view: LoadedView
    outcome: PlannedQuery | HeadgateError


@dataclass(frozen=True, slots=True)
class Drafts:
    """What is known before a try: plans by the place of their step, and the uids that steps were given."""

    # The sources that each query names, by the place of its step.
    sources: Mapping[int, frozenset[str]]
    # How often plans may be found outdated; with the last time it is given up.
    attempts: int
    outdated: int = 0
    plans: Mapping[int, Draft] = field(default_factory=dict)
    uids: Mapping[GivenUid, str] = field(default_factory=dict)

    @classmethod
    def of(cls, queries: Mapping[int, QueryStatement], attempts: int) -> Drafts:
        """Nothing is planned yet. Takes as long as the statements are: not for the event loop."""
        return cls({place: sources_named(query) for place, query in queries.items()}, attempts)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A query to be planned: `view` is what it may use, but for the slots of the `Wanted` before it."""

    place: int
    query: QueryStatement
    view: LoadedView
    # Whether it is only explained.
    for_people: bool = False
    # Whether its name is taken and it will not be created.
    skipped: bool = False


class Unplanned(Exception):
    """Rolls a try back. `wanted` is to be planned, in this order, and added to `drafts` for the next one."""

    def __init__(self, wanted: list[Wanted], drafts: Drafts) -> None:
        super().__init__()
        self.wanted = wanted
        self.drafts = drafts


class Trial:
    """One try, made inside the transaction: it gives each query its plan or a stand-in, and each step its uids."""

    def __init__(self, tx: Tx, drafts: Drafts) -> None:
        self.tx = tx
        self._drafts = drafts
        self._wanted: list[Wanted] = []
        self._outdated = drafts.outdated
        self._topology: Topology | None = None
        self._changed_by: dict[str, int] = {}
        self._noted: set[tuple[str, str]] = set()
        self._uids = _StepUids(tx.ids, drafts.uids)
        tx.ids = self._uids

    def begin(self, place: int) -> None:
        """The step at `place` comes next."""
        self.new_changes()
        self._uids.begin(place)

    def plan(self, query: QueryStatement) -> PlannedQuery | None:
        """The plan of a query at this place, or its error; None where it is to be planned, PlanChanged if again."""
        draft = self._drafts.plans.get(self._uids.place)
        if draft is None or self._wanted:
            return None
        if isinstance(draft.outcome, HeadgateError):
            raise draft.outcome
        draft.view.named.require_same(load_named(self.tx, query, self._drafts.sources[self._uids.place]))
        return self._at_this_revision(draft.outcome)

    def outdated(self, changed: PlanChanged) -> None:
        """Takes note that a plan does not fit; PLAN_OUTDATED after too many."""
        self._outdated += 1
        if self._outdated >= self._drafts.attempts:
            raise HeadgateError(
                PLAN_OUTDATED,
                f"the catalog changed under the plan {self._outdated} times, last because {changed}; try again",
            ) from changed

    def want(self, query: QueryStatement, *, for_people: bool = False) -> PlannedQuery:
        """Asks for a plan of the query at this place. The answer is its stand-in, which has no fragments."""
        if self._topology is None:
            self._topology = load_topology(self.tx)
        view = view_of(self.tx, query, self._drafts.sources[self._uids.place], self._topology)
        self._wanted.append(Wanted(self._uids.place, query, view, for_people))
        # It begins anew, and so do its uids.
        self._uids.begin(self._uids.place)
        return _stand_in(query, view)

    def skipped(self) -> None:
        """What was wanted last will not be created."""
        self._wanted[-1] = replace(self._wanted[-1], skipped=True)

    def topology_changed(self) -> None:
        """A step may have changed agents or links."""
        self._topology = None

    def new_changes(self) -> list[Change]:
        """Resources that were first changed by this step, since it was last asked."""
        found: list[Change] = []
        # They come last, so none need be looked at twice.
        for change in reversed(self.tx.changes):
            if (change.kind, change.uid) in self._noted:
                break
            self._noted.add((change.kind, change.uid))
            self._changed_by.setdefault(change.uid, self._uids.place)
            found.append(change)
        return found

    def changed_by(self, uid: str) -> int | None:
        """The place of the first step that changed the resource, if one did."""
        self.new_changes()
        return self._changed_by.get(uid)

    def require_planned(self) -> None:
        """Ends the try if a plan is wanted: what comes after a stand-in, an error too, is not to be believed."""
        if not self._wanted:
            return
        first = self._wanted[0].place
        kept = {place: draft for place, draft in self._drafts.plans.items() if place < first}
        raise Unplanned(
            self._wanted, replace(self._drafts, outdated=self._outdated, plans=kept, uids=dict(self._uids.given))
        )

    def _at_this_revision(self, planned: PlannedQuery) -> PlannedQuery:
        """The plan, in which what this transaction has changed is of the revision that it will have."""
        if not any(use.uid in self._changed_by for use in planned.plan.uses):
            return planned
        plan = catalog.QueryPlan()
        plan.CopyFrom(planned.plan)
        for use in plan.uses:
            if use.uid in self._changed_by:
                use.revision = self.tx.revision
        return replace(planned, plan=plan)


class SlotsTaken:
    """Counts the slots of plans that are made one after the other, for the views of those that follow."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()

    def seen_by(self, view: LoadedView) -> LoadedView:
        """The view with these slots in use."""
        return view.with_slots_used(self._taken) if self._taken else view

    def add(self, plan: catalog.QueryPlan) -> None:
        uids = {use.name: use.uid for use in plan.uses if use.kind == "agent"}
        for fragment in plan.fragments:
            self._taken[uids[fragment.agent]] += fragment.slots


class _StepUids:
    """Gives a step the uids again that it was given before."""

    def __init__(self, fresh: Ids, given: Mapping[GivenUid, str]) -> None:
        self.place = 0
        self.given = dict(given)
        self._fresh = fresh
        self._asked: Counter[str] = Counter()

    def begin(self, place: int) -> None:
        self.place = place
        self._asked.clear()

    def uid(self, prefix: str) -> str:
        key = (self.place, prefix, self._asked[prefix])
        self._asked[prefix] += 1
        if key not in self.given:
            self.given[key] = self._fresh.uid(prefix)
        return self.given[key]


def _stand_in(query: QueryStatement, view: LoadedView) -> PlannedQuery:
    """Refers to all that the statement names, so that the steps after it find that in use."""
    plan = catalog.QueryPlan()
    for logical in view.named.logical.values():
        plan.uses.add(kind="logical_source", uid=logical.uid, name=logical.name)
        for physical in view.physical_sources(logical.uid):
            plan.uses.add(kind="physical_source", uid=physical.uid, name=physical.name)
    for sink in view.named.sinks.values():
        plan.uses.add(kind="sink", uid=sink.uid, name=sink.name)
    return PlannedQuery(
        name=query.name or "",
        plan=plan,
        deadline_us=query.options.deadline_us,
        links_declared=bool(view.links()),
        shown=query.shown_text,
    )
