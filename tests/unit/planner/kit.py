"""A catalog in memory for planning tests, written in the statements that users write."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.descriptors import validate_sink, validate_source
from headgate_coordinator.sql.errors import StatementError
from headgate_coordinator.sql.explain import explain_text
from headgate_coordinator.sql.limits import StatementLimits
from headgate_coordinator.sql.names import fold
from headgate_coordinator.sql.parse import parse_statements
from headgate_coordinator.sql.planner import plan_query
from headgate_coordinator.sql.settings import PlannerSettings
from headgate_coordinator.sql.statements import ExplainStatement, QueryStatement, RequestStatement
from headgate_coordinator.sql.types import validate_schema

CORPUS = Path(__file__).parents[2] / "corpus" / "queries"


class MemoryView:
    """A `CatalogView` over dictionaries. Uids are `<kind>-<name>`; `asked` counts look-ups by kind."""

    def __init__(self, statements: str = "") -> None:
        self.logical: dict[str, catalog.LogicalSource] = {}
        self.physical: dict[str, list[catalog.PhysicalSource]] = {}
        self.sinks: dict[str, catalog.Sink] = {}
        self.agent_list: list[catalog.Agent] = []
        self.link_list: list[catalog.NetworkLink] = []
        self.asked: dict[str, int] = {}
        if statements:
            self.apply(statements)

    def apply(self, text: str) -> MemoryView:
        for statement in parse_statements(text, StatementLimits()):
            assert isinstance(statement, RequestStatement), statement.verb
            self._apply(statement.request)
        return self

    def _apply(self, request: object) -> None:
        match request:
            case catalog.CreateAgentRequest():
                self._agent(request)
            case catalog.CreateNetworkLinkRequest():
                self._link(request.from_agent, request.to_agent)
            case catalog.CreateLogicalSourceRequest():
                name = fold(request.name)
                self.logical[name] = catalog.LogicalSource(
                    name=name, uid=f"logical-{name}", schema=validate_schema(request.schema), revision=1
                )
            case catalog.CreatePhysicalSourceRequest():
                self._physical(request)
            case catalog.CreateSinkRequest():
                name = fold(request.name)
                self.sinks[name] = catalog.Sink(
                    name=name,
                    uid=f"sink-{name}",
                    schema=validate_schema(request.schema),
                    agent=request.agent,
                    type=request.type,
                    options=validate_sink(request.type, request.options, request.schema),
                    revision=1,
                )
            case _:
                raise AssertionError(type(request).__name__)

    def _agent(self, request: catalog.CreateAgentRequest) -> None:
        name = fold(request.name)
        self.agent_list.append(
            catalog.Agent(
                name=name,
                uid=f"agent-{name}",
                address=request.address,
                slots=request.slots,
                zone=request.zone,
                group=request.group or "default",
                roles=request.roles or [catalog.AGENT_ROLE_LOG, catalog.AGENT_ROLE_FRAGMENTS],
                state=catalog.AGENT_STATE_ACTIVE,
                has_engine=not request.without_engine,
                revision=1,
            )
        )
        for peer in request.peers:
            self._link(name, peer)

    def _link(self, sender: str, receiver: str) -> None:
        uid = f"link-{sender}-{receiver}"
        self.link_list.append(catalog.NetworkLink(from_agent=sender, to_agent=receiver, uid=uid, revision=1))

    def _physical(self, request: catalog.CreatePhysicalSourceRequest) -> None:
        logical = self.logical[fold(request.logical_source)]
        feeding = self.physical.setdefault(logical.uid, [])
        name = request.name or f"{logical.name}_{len(feeding) + 1}"
        valid = validate_source(request.type, request.options, request.parser_options, logical.schema)
        feeding.append(
            catalog.PhysicalSource(
                name=name,
                uid=f"physical-{name}",
                logical_source=logical.name,
                agent=request.agent,
                type=request.type,
                options=valid.options,
                parser_options=valid.parser_options,
                revision=1,
            )
        )

    def agent(self, name: str) -> catalog.Agent:
        return next(agent for agent in self.agent_list if agent.name == name)

    def _count(self, kind: str) -> None:
        self.asked[kind] = self.asked.get(kind, 0) + 1

    def logical_source(self, name: str) -> catalog.LogicalSource | None:
        self._count("logical_source")
        return self.logical.get(name)

    def physical_sources(self, logical_uid: str) -> Sequence[catalog.PhysicalSource]:
        self._count("physical_sources")
        return self.physical.get(logical_uid, [])

    def sink(self, name: str) -> catalog.Sink | None:
        self._count("sink")
        return self.sinks.get(name)

    def agents(self) -> Sequence[catalog.Agent]:
        self._count("agents")
        return self.agent_list

    def links(self) -> Sequence[catalog.NetworkLink]:
        self._count("links")
        return self.link_list

    def logical_source_names(self) -> Sequence[str]:
        self._count("logical_source_names")
        return list(self.logical)

    def sink_names(self) -> Sequence[str]:
        self._count("sink_names")
        return list(self.sinks)


@dataclass(frozen=True, slots=True)
class Case:
    """A query of the corpus: the statements that prepare the catalog, and the query itself."""

    name: str
    prepared: str
    query: str

    def view(self) -> MemoryView:
        """The corpus's catalog, with what the case adds to it."""
        view = MemoryView(CATALOG)
        return view.apply(self.prepared) if self.prepared else view


CATALOG = (CORPUS / "catalog.sql").read_text()


def corpus_files() -> list[Path]:
    return sorted(path for path in CORPUS.glob("*.sql") if path.name != "catalog.sql")


def cases(path: Path) -> list[Case]:
    """The cases of a file: `--- name`, statements, and the query as the last of them."""
    found = []
    for block in re.split(r"^--- ", path.read_text(), flags=re.MULTILINE)[1:]:
        name, _, text = block.partition("\n")
        prepared, _, query = text.strip().rpartition(";\n")
        found.append(Case(name.strip(), prepared, query))
    return found


def outcome(case: Case) -> str:
    """What becomes of a case: the plan as EXPLAIN shows it, or the exact error."""
    try:
        return explain_text(plan(case.query, case.view()), catalog.EXPLAIN_FORMAT_TEXT)
    except StatementError as error:
        lines = [f"refused: {error}"]
        for problem in error.details:
            assert isinstance(problem, catalog.StatementProblem)
            lines.append(f"{problem.step} at line {problem.line}, column {problem.column}: {problem.message}")
            if problem.suggestion:
                lines.append(f"  {problem.suggestion}")
            lines.extend(f"  | {line}" for line in problem.excerpt.split("\n"))
        return "\n".join(lines)


def parse_query(text: str) -> QueryStatement:
    (statement,) = parse_statements(text, StatementLimits())
    if isinstance(statement, ExplainStatement):
        statement = statement.query
    assert isinstance(statement, QueryStatement)
    return statement


def plan(text: str, view: MemoryView, settings: PlannerSettings | None = None) -> catalog.QueryPlan:
    return plan_query(parse_query(text), view, settings)
