"""What the parts of binding share: the state of one statement, and what a bound query is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from headgate_coordinator.errors import UNSUPPORTED
from headgate_coordinator.sql.algebra import Column, Expr, Ids, Node, Source
from headgate_coordinator.sql.errors import Problems, Step
from headgate_coordinator.sql.expressions import ExpressionBinder
from headgate_coordinator.sql.nodes import offset_of
from headgate_coordinator.sql.operators import Effort
from headgate_coordinator.sql.scope import BoundWindow, Scope
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.view import CatalogView


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound query: what it does and what its columns are called. `window` is the one its rows are in, if there is
    one.

    `time_name` is what the user called the time of that window. `correlated` are conditions that speak of the query
    around it as well.
    """

    node: Node
    outputs: tuple[tuple[str, Column], ...]
    places: tuple[exp.Expr | None, ...] = ()
    window: BoundWindow | None = None
    time_name: str = ""
    correlated: tuple[Expr, ...] = ()


@dataclass(frozen=True, slots=True)
class WithQuery:
    """A query of a WITH clause, and what its own FROM can see."""

    query: exp.Query
    columns: tuple[str, ...]
    visible: Mapping[str, WithQuery]


@dataclass(slots=True)
class Context:
    """What all parts of one statement's binding share."""

    view: CatalogView
    problems: Problems
    settings: PlannerSettings
    lateness_us: int
    exactly_once: bool
    effort: Effort
    ids: Ids = field(default_factory=Ids)
    relations: int = 0
    sources: dict[str, Source | None] = field(default_factory=dict)
    # The queries of WITH clauses by the identity of their trees, and which of them were bound.
    with_queries: dict[int, tuple[exp.CTE, WithQuery]] = field(default_factory=dict)
    with_queries_used: set[int] = field(default_factory=set)

    def refuse(self, node: exp.Expr | None, message: str, suggestion: str = "") -> None:
        self.problems.add(Step.BIND, offset_of(node), message, suggestion, UNSUPPORTED)

    def expressions(self, scope: Scope) -> ExpressionBinder:
        return ExpressionBinder(scope, self.problems, self.settings.max_in_list, self.exactly_once, self.effort)


# Binds a query that sees these WITH queries, and, in IN or EXISTS, the scope around it.
BindQuery = Callable[[exp.Query, Mapping[str, WithQuery], Scope | None], Bound | None]
