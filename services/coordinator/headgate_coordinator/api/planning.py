"""From a text to statements and plans, off the event loop where that takes long.

A plan is made outside of any transaction, against a view that was loaded in one: a read of the last committed state,
or for a bundle a try of its own transaction.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.drafts import Draft, Drafts, SlotsTaken, Unplanned
from headgate_coordinator.catalog.planner_view import AgentCache, LoadedView, load_view, with_sink
from headgate_coordinator.catalog.queries import PlannedQuery
from headgate_coordinator.catalog.secrets import masked, mentions_secret, redacted_plan
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tables import resource_kind
from headgate_coordinator.sql.conditions import compile_where
from headgate_coordinator.sql.explain import explain_text
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.parse import parse_statements
from headgate_coordinator.sql.planner import plan_query
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.statements import QueryStatement, ShowStatement, Statement

T = TypeVar("T")


class RunPlanner(Protocol):
    """Runs work that takes the processor for a while: on a few threads of its own, or inline in the simulator."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


class Planning:
    def __init__(self, store: Store, *, run: RunPlanner, limits: StatementLimits, settings: PlannerSettings) -> None:
        self._store = store
        self._settings = settings
        self._cache = AgentCache()
        self.run = run
        self.limits = limits

    async def parse(self, text: str) -> Sequence[Statement]:
        return await self.run(lambda: self.parse_now(text))

    def parse_now(self, text: str) -> Sequence[Statement]:
        """The statements of a text. The excerpts of an error show no literal where one of them may be a secret."""
        try:
            return parse_statements(text, self.limits)
        except HeadgateError as error:
            if mentions_secret(text):
                for detail in error.details:
                    if isinstance(detail, catalog.StatementProblem):
                        detail.excerpt = masked(detail.excerpt)
            raise

    async def plan(self, query: QueryStatement, sink: str, *, for_people: bool = False) -> PlannedQuery:
        """Plans against the last committed state. `sink` is the one that the request names, if it does."""
        query = with_sink(query, sink)
        view = await self._store.read(lambda tx: load_view(tx, query, self._cache))
        return await self.run(lambda: self._plan(query, view, for_people))

    async def drafts(self, queries: Mapping[int, QueryStatement], attempts: int) -> Drafts:
        """To begin a bundle with, whose queries are at these places."""
        return await self.run(lambda: Drafts.of(queries, attempts)) if queries else Drafts({}, attempts)

    async def plan_bundle(self, unplanned: Unplanned) -> Drafts:
        """Plans what a try of a bundle wants, in order: each plan sees the slots that those before it take.

        The first that cannot be planned is the last: the bundle ends there.
        """
        plans = dict(unplanned.drafts.plans)
        taken = SlotsTaken()
        for wanted in unplanned.wanted:
            view = taken.seen_by(wanted.view)
            try:
                planned = await self.run(partial(self._plan, wanted.query, view, wanted.for_people))
            except HeadgateError as error:
                plans[wanted.place] = Draft(view, error)
                break
            plans[wanted.place] = Draft(view, planned)
            if not (wanted.for_people or wanted.skipped):
                taken.add(planned.plan)
        return replace(unplanned.drafts, plans=plans)

    async def explain(
        self, query: QueryStatement, sink: str, form: catalog.ExplainFormat.ValueType
    ) -> catalog.ExplainQueryResponse:
        return explained(await self.plan(query, sink, for_people=True), form)

    def matches(self, statement: ShowStatement) -> Callable[[Message], bool] | None:
        """The WHERE of a SHOW as a function."""
        if statement.where is None:
            return None
        return compile_where(resource_kind(statement.kind), statement.where, statement.source)

    def _plan(self, query: QueryStatement, view: LoadedView, for_people: bool) -> PlannedQuery:
        if for_people and query.sink is None and query.name is None:
            # Nothing says where its rows go: so it is explained as what it would run as.
            query = replace(query, temporary=True)
        return PlannedQuery(
            name=query.name or "",
            plan=plan_query(query, view, self._settings, for_people=for_people),
            deadline_us=query.options.deadline_us,
            links_declared=bool(view.links()),
            shown=query.shown_text,
        )


def explained(planned: PlannedQuery, form: catalog.ExplainFormat.ValueType) -> catalog.ExplainQueryResponse:
    """A plan as it is shown, without secrets."""
    shown = redacted_plan(planned.plan)
    return catalog.ExplainQueryResponse(plan=shown, text=explain_text(shown, form))
