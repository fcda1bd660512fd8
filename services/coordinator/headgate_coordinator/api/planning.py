"""From a text to statements and plans, off the event loop where that takes long.

A plan is made against a view that one read has loaded, outside of any transaction; inside a bundle, against what the
bundle's own transaction sees.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.planner_view import AgentCache, LoadedView, load_view
from headgate_coordinator.catalog.queries import PlannedQuery
from headgate_coordinator.catalog.secrets import masked, mentions_secret, redacted_plan
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tables import resource_kind
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import SINK_CONFLICT
from headgate_coordinator.sql.conditions import compile_where
from headgate_coordinator.sql.explain import explain_text
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.names import fold
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

    async def plan(self, query: QueryStatement, sink: str) -> PlannedQuery:
        """Plans against the last committed state. `sink` is the one that the request names, if it does."""
        query = _with_sink(query, sink)
        view = await self._store.read(lambda tx: load_view(tx, query, self._cache))
        return await self.run(lambda: self._plan(query, view))

    def plan_inside(self, tx: Tx, query: QueryStatement, sink: str) -> PlannedQuery:
        """Plans against what an open transaction sees."""
        query = _with_sink(query, sink)
        return self._plan(query, load_view(tx, query))

    async def explain(
        self, query: QueryStatement, sink: str, form: catalog.ExplainFormat.ValueType
    ) -> catalog.ExplainQueryResponse:
        return _explained(await self.plan(query, sink), form)

    def explain_inside(
        self, tx: Tx, query: QueryStatement, form: catalog.ExplainFormat.ValueType
    ) -> catalog.ExplainQueryResponse:
        return _explained(self.plan_inside(tx, query, ""), form)

    def matches(self, statement: ShowStatement) -> Callable[[Message], bool] | None:
        """The WHERE of a SHOW as a function."""
        if statement.where is None:
            return None
        return compile_where(resource_kind(statement.kind), statement.where, statement.source)

    def _plan(self, query: QueryStatement, view: LoadedView) -> PlannedQuery:
        return PlannedQuery(
            name=query.name or "",
            plan=plan_query(query, view, self._settings),
            deadline_us=query.options.deadline_us,
            links_declared=bool(view.links()),
        )


def _with_sink(query: QueryStatement, asked: str) -> QueryStatement:
    """The query with the sink of its request; SINK_CONFLICT where its INTO names another."""
    if not asked:
        return query
    sink = fold(asked, "sink")
    if query.sink is not None and fold(query.sink, "sink") != sink:
        raise HeadgateError(
            SINK_CONFLICT,
            f"the statement writes INTO {fold(query.sink)}, and the request names the sink {sink}; name one",
            metadata={"statement": fold(query.sink), "request": sink},
        )
    return replace(query, sink=sink)


def _explained(planned: PlannedQuery, form: catalog.ExplainFormat.ValueType) -> catalog.ExplainQueryResponse:
    shown = redacted_plan(planned.plan)
    return catalog.ExplainQueryResponse(plan=shown, text=explain_text(shown, form))
