"""Many changes in one transaction, in order, all or none; and what is said of each.

Everything is parsed before the transaction, and nothing is planned inside it (see drafts.py). What holds only at the
end (physical sources that are unique, links that join all agents) is checked once at the end, and blamed on the step
that brought it about.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.catalog import operations, sources
from headgate_coordinator.catalog.descriptors.brokers import with_brokers
from headgate_coordinator.catalog.drafts import Drafts, Trial
from headgate_coordinator.catalog.operations import OPERATIONS, Rules
from headgate_coordinator.catalog.plan_uses import PlanChanged
from headgate_coordinator.catalog.planner_view import with_sink
from headgate_coordinator.catalog.queries import PlannedQuery
from headgate_coordinator.catalog.secrets import without_secrets
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.watch import as_resource
from headgate_coordinator.errors import ALREADY_EXISTS, UNSUPPORTED
from headgate_coordinator.sql.statements import QueryStatement, RequestStatement, Statement

# An error travels in headers, so a statement in it is cut to this length.
SHOWN_TEXT = 500
# Items of a bundle are as many at most; a text in one of them may hold many statements.
MAX_STEPS = 1_000

ParseStatements = Callable[[str], Sequence[Statement]]
# Requests that change what plans are placed on.
_OF_TOPOLOGY = (
    catalog.CreateAgentRequest,
    catalog.DropAgentRequest,
    catalog.CreateNetworkLinkRequest,
    catalog.DropNetworkLinkRequest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One change. `item` is its place in the bundle or text, `text` the statement it was written as, if it was."""

    item: int
    request: Message
    verb: str
    text: str = ""
    if_not_exists: bool = False
    # Set for CREATE QUERY.
    query: QueryStatement | None = None


def steps_of(items: Sequence[catalog.BundleItem], parse: ParseStatements) -> list[Step]:
    """The steps of a bundle. An error names the item."""
    steps: list[Step] = []
    for index, item in enumerate(items):
        chosen = item.WhichOneof("item")
        try:
            if chosen == "statement":
                parsed = parse(item.statement)
                if not parsed:
                    raise HeadgateError(INVALID_ARGUMENT, "there is no statement in the text")
                steps.extend(step_of_statement(index, statement) for statement in parsed)
            else:
                steps.append(_step_of_request(index, getattr(item, chosen or ""), parse))
        except HeadgateError as error:
            raise blamed(error, index, "") from error
    return steps


def step_of_statement(index: int, statement: Statement) -> Step:
    """The step of a statement that changes something; UNSUPPORTED for any other."""
    if isinstance(statement, RequestStatement):
        return Step(
            item=index,
            request=statement.request,
            verb=statement.verb,
            text=statement.text,
            if_not_exists=statement.if_not_exists,
        )
    if isinstance(statement, QueryStatement):
        request = catalog.CreateQueryRequest(name=statement.name or "", statement=statement.text)
        return Step(
            item=index,
            request=request,
            verb="CREATE QUERY",
            text=statement.text,
            if_not_exists=statement.if_not_exists,
            query=statement,
        )
    raise HeadgateError(UNSUPPORTED, f"{statement.verb} changes nothing: a bundle is of CREATE, DROP, STOP and queries")


def _step_of_request(index: int, request: Message, parse: ParseStatements) -> Step:
    for field in ("request_id", "validate_only"):
        if getattr(request, field):
            raise HeadgateError(
                INVALID_ARGUMENT,
                f"{field} must not be set inside a bundle; set it on the bundle",
                metadata={"field": field},
            )
    if isinstance(request, catalog.CreateQueryRequest):
        if request.temporary:
            raise HeadgateError(
                INVALID_ARGUMENT, "a temporary query stands alone: create it by itself", metadata={"field": "temporary"}
            )
        return Step(item=index, request=request, verb="CREATE QUERY", query=only_query(parse(request.statement)))
    return Step(item=index, request=request, verb=OPERATIONS[type(request)].verb)


def only_query(parsed: Sequence[Statement]) -> QueryStatement:
    """The one query of a text that must hold just that."""
    if len(parsed) == 1 and isinstance(parsed[0], QueryStatement):
        return parsed[0]
    what = f"{len(parsed)} statements" if len(parsed) != 1 else parsed[0].verb
    raise HeadgateError(
        INVALID_ARGUMENT,
        f"`statement` must be one query, SELECT ... or CREATE QUERY ..., not {what}",
        metadata={"field": "statement"},
    )


def refuse_too_many(steps: Sequence[Step], rules: Rules) -> None:
    """Every other write waits while a transaction takes its steps, so there is a bound."""
    queries = sum(step.query is not None for step in steps)
    for what, number, most in (("queries", queries, rules.bundle_queries), ("changes", len(steps), MAX_STEPS)):
        if number > most:
            raise HeadgateError(
                INVALID_ARGUMENT,
                f"there are {number:,} {what} in one transaction, and {most:,} are allowed; "
                "make the others in further bundles",
                metadata={what: str(number)},
            )


def queries_of(steps: Sequence[Step]) -> dict[int, QueryStatement]:
    """Those to be planned, by place, as their statements have them."""
    return {place: step.query for place, step in enumerate(steps) if step.query is not None}


def apply_bundle(tx: Tx, steps: Sequence[Step], rules: Rules, drafts: Drafts) -> list[catalog.StatementResult]:
    """Performs every step; the first error, blamed on its item, ends it and with it the transaction.

    Raises `Unplanned` where queries are to be planned before it is tried again.
    """
    trial = Trial(tx, drafts)
    results = []
    for place, step in enumerate(steps):
        trial.begin(place)
        try:
            results.append(perform(trial, step, rules))
        except HeadgateError as error:
            trial.require_planned()
            raise blamed(error, step.item, shown(step)) from error
    trial.require_planned()
    try:
        operations.settle(tx, rules)
    except HeadgateError as error:
        guilty = trial.changed_by(error.metadata.get("uid", ""))
        step = steps[-1 if guilty is None else guilty]
        raise blamed(error, step.item, shown(step)) from error
    return results


def perform(trial: Trial, step: Step, rules: Rules) -> catalog.StatementResult:
    """Does one step, without what must hold at the end of the transaction; a stand-in does for a query unplanned."""
    if step.query is None:
        if isinstance(step.request, _OF_TOPOLOGY):
            trial.topology_changed()
        return perform_planned(trial.tx, step, rules, None)
    assert isinstance(step.request, catalog.CreateQueryRequest)
    query = with_sink(step.query, step.request.sink)
    try:
        planned = trial.plan(query)
        if planned is not None:
            return perform_planned(trial.tx, step, rules, planned)
    except PlanChanged as changed:
        trial.outdated(changed)
    done = perform_planned(trial.tx, step, rules, trial.want(query))
    if done.skipped:
        trial.skipped()
    return done


def perform_planned(tx: Tx, step: Step, rules: Rules, planned: PlannedQuery | None) -> catalog.StatementResult:
    """Does one step, for a query with its plan. Raises `PlanChanged`, having done nothing, if that is outdated."""
    operation = OPERATIONS[type(step.request)] if planned is None else operations.create_query_operation(planned)
    try:
        if step.if_not_exists and isinstance(step.request, catalog.CreatePhysicalSourceRequest):
            sources.refuse_same_locus(tx, with_brokers(step.request, rules.kafka_brokers))
        resource = operation.apply(tx, step.request, rules)
    except HeadgateError as error:
        if error.reason is ALREADY_EXISTS and step.if_not_exists:
            return result(step, None)
        raise
    return result(step, None if resource is None else as_resource(operation.field, resource))


def result(step: Step, resource: catalog.Resource | None) -> catalog.StatementResult:
    """What is said of a step that was done; `skipped` where there is nothing to show."""
    done = catalog.StatementResult(statement=shown(step), verb=step.verb, skipped=resource is None)
    if resource is not None:
        done.resources.append(resource)
    return done


def shown(step: Step) -> str:
    """The statement as it may be answered: without the secrets among its options."""
    if step.query is not None and step.query.shown_text:
        return step.query.shown_text
    return without_secrets(step.text, step.request) if step.text else ""


def failure(error: HeadgateError, index: int, text: str) -> catalog.StatementFailure:
    """An error as part of an answer."""
    cut = text if len(text) <= SHOWN_TEXT else text[: SHOWN_TEXT - 1] + "…"
    return catalog.StatementFailure(
        index=index,
        statement=cut,
        code=error.reason.code.value[0],
        reason=error.reason.name,
        message=error.message,
        problems=[detail for detail in error.details if isinstance(detail, catalog.StatementProblem)],
    )


def blamed(error: HeadgateError, item: int, text: str) -> HeadgateError:
    """The same error, naming the item of the bundle in its message, metadata and details."""
    return HeadgateError(
        error.reason,
        f"item {item}: {error.message}",
        metadata={**error.metadata, "item": str(item)},
        details=[failure(error, item, text), *error.details],
        retry_after=error.retry_after,
    )
