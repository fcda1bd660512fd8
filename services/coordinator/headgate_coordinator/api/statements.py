"""StatementService: statements of the SQL dialect, one after the other or as a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import statement_service_pb2
from headgate_common.dispatch import Call
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.api.mutations import Mutations, Part
from headgate_coordinator.api.planning import Planning, explained
from headgate_coordinator.catalog import bundles, operations, tables
from headgate_coordinator.catalog.bundles import Step
from headgate_coordinator.catalog.drafts import Drafts, Trial
from headgate_coordinator.catalog.operations import Rules
from headgate_coordinator.catalog.plan_uses import PlanChanged
from headgate_coordinator.catalog.queries import PlannedQuery
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import UNSUPPORTED
from headgate_coordinator.sql.statements import (
    DescribeStatement,
    ExplainStatement,
    QueryStatement,
    RequestStatement,
    ShowStatement,
    Statement,
    WatchStatement,
)


class StatementService:
    descriptor = statement_service_pb2.DESCRIPTOR.services_by_name["StatementService"]

    def __init__(self, store: Store, mutations: Mutations, planning: Planning) -> None:
        self._store = store
        self._mutations = mutations
        self._planning = planning

    async def execute_statement(
        self, request: catalog.ExecuteStatementRequest, call: Call
    ) -> catalog.ExecuteStatementResponse:
        """Each statement is a transaction of its own.

        With `request_id` each is remembered as a part of the request, so that a retry after a crash or a failure goes
        on where the first call ended; the whole answer is remembered when all are done.
        """
        parsed = await self._planning.parse(request.statement)
        if not parsed:
            raise HeadgateError(INVALID_ARGUMENT, "there is no statement in the text", metadata={"field": "statement"})
        if not any(_changes(statement) for statement in parsed):
            return await self._execute_all(request, parsed, call)
        known = await self._mutations.replay(request, catalog.ExecuteStatementResponse, call)
        if known is not None:
            return known
        if request.validate_only:
            return await self._rehearse_all(request, parsed, call)
        response = await self._execute_all(request, parsed, call)
        if not request.request_id or response.HasField("failure"):
            return response
        return await self._mutations.execute(request, catalog.ExecuteStatementResponse, lambda _: response, call)

    async def apply_bundle(self, request: catalog.ApplyBundleRequest, call: Call) -> catalog.ApplyBundleResponse:
        known = await self._mutations.replay(request, catalog.ApplyBundleResponse, call)
        if known is not None:
            return known
        steps = await self._planning.run(lambda: bundles.steps_of(request.items, self._planning.parse_now))
        bundles.refuse_too_many(steps, self._mutations.rules)

        def apply(tx: Tx, drafts: Drafts) -> catalog.ApplyBundleResponse:
            results = bundles.apply_bundle(tx, steps, self._mutations.rules, drafts)
            return catalog.ApplyBundleResponse(results=results, revision=tx.revision if tx.changes else 0)

        drafts = await self._planning.drafts(bundles.queries_of(steps), self._mutations.plan_attempts)
        return await self._mutations.accept_all(
            request, catalog.ApplyBundleResponse, drafts, self._planning.plan_bundle, apply, call
        )

    async def _execute_all(
        self, request: catalog.ExecuteStatementRequest, parsed: Sequence[Statement], call: Call
    ) -> catalog.ExecuteStatementResponse:
        response = catalog.ExecuteStatementResponse()
        for index, statement in enumerate(parsed):
            try:
                response.results.append(await self._execute(request, index, statement, call))
            except HeadgateError as error:
                if index == 0:
                    raise
                response.failure.CopyFrom(bundles.failure(error, index, _shown(index, statement)))
                break
        return response

    async def _execute(
        self, request: catalog.ExecuteStatementRequest, index: int, statement: Statement, call: Call
    ) -> catalog.StatementResult:
        if isinstance(statement, ExplainStatement):
            return _explain_result(statement, await self._planning.plan(statement.query, "", for_people=True))
        if not _changes(statement):
            return await self._store.read(lambda tx: self._look(tx, statement))
        step = bundles.step_of_statement(index, statement)
        rules = self._mutations.rules
        if step.query is None:
            perform = partial(_perform, step, rules, planned=None)
            return await self._mutations.execute(request, catalog.StatementResult, perform, call, Part(index))
        query = step.query
        return await self._mutations.accept(
            request,
            catalog.StatementResult,
            lambda: self._planning.plan(query, ""),
            lambda tx, planned: _perform(step, rules, tx, planned=planned),
            call,
            Part(index),
        )

    def _look(self, tx: Tx, statement: Statement) -> catalog.StatementResult:
        """A statement that reads."""
        if isinstance(statement, ShowStatement):
            return tables.show(tx, statement, self._planning.matches(statement))
        if isinstance(statement, DescribeStatement):
            return tables.describe(tx, statement)
        if isinstance(statement, WatchStatement):
            raise HeadgateError(UNSUPPORTED, "WATCH is a stream: give the statement to WatchService.Watch")
        raise HeadgateError(UNSUPPORTED, f"this coordinator does not execute {statement.verb}")

    async def _rehearse_all(
        self, request: catalog.ExecuteStatementRequest, parsed: Sequence[Statement], call: Call
    ) -> catalog.ExecuteStatementResponse:
        steps = [bundles.step_of_statement(index, one) for index, one in enumerate(parsed) if _changes(one)]
        bundles.refuse_too_many(steps, self._mutations.rules)
        queries = {index: found for index, one in enumerate(parsed) if (found := _query_of(one)) is not None}
        drafts = await self._planning.drafts(queries, self._mutations.plan_attempts)
        return await self._mutations.accept_all(
            request,
            catalog.ExecuteStatementResponse,
            drafts,
            self._planning.plan_bundle,
            partial(self._rehearse, parsed),
            call,
        )

    def _rehearse(self, parsed: Sequence[Statement], tx: Tx, drafts: Drafts) -> catalog.ExecuteStatementResponse:
        """All statements in one transaction that is rolled back, so that each sees what those before it would do."""
        response = catalog.ExecuteStatementResponse()
        trial = Trial(tx, drafts)
        for index, statement in enumerate(parsed):
            trial.begin(index)
            try:
                result = self._rehearse_one(trial, index, statement)
            except HeadgateError as error:
                trial.require_planned()
                if index == 0:
                    raise
                response.failure.CopyFrom(bundles.failure(error, index, _shown(index, statement)))
                break
            response.results.append(result)
        trial.require_planned()
        return response

    def _rehearse_one(self, trial: Trial, index: int, statement: Statement) -> catalog.StatementResult:
        rules = self._mutations.rules
        if _changes(statement):
            result = bundles.perform(trial, bundles.step_of_statement(index, statement), rules)
            operations.settle(trial.tx, rules, trial.new_changes())
            return result
        if isinstance(statement, ExplainStatement):
            return _rehearse_explain(trial, statement)
        return self._look(trial.tx, statement)


def _perform(step: Step, rules: Rules, tx: Tx, *, planned: PlannedQuery | None) -> catalog.StatementResult:
    """One statement as a transaction of its own."""
    result = bundles.perform_planned(tx, step, rules, planned)
    operations.settle(tx, rules)
    return result


def _rehearse_explain(trial: Trial, statement: ExplainStatement) -> catalog.StatementResult:
    """The plan against what the statements before it would do; nothing where it is yet to be made."""
    try:
        planned = trial.plan(statement.query)
    except PlanChanged as changed:
        trial.outdated(changed)
        planned = None
    if planned is not None:
        return _explain_result(statement, planned)
    trial.want(statement.query, for_people=True)
    return catalog.StatementResult()


def _explain_result(statement: ExplainStatement, planned: PlannedQuery) -> catalog.StatementResult:
    text = explained(planned, statement.format).text
    table = catalog.ResultTable(columns=["plan"], rows=[catalog.ResultRow(values=[line]) for line in text.splitlines()])
    return catalog.StatementResult(statement=statement.text, verb=statement.verb, table=table)


def _query_of(statement: Statement) -> QueryStatement | None:
    """What is to be planned of a statement."""
    if isinstance(statement, ExplainStatement):
        return statement.query
    return statement if isinstance(statement, QueryStatement) else None


def _changes(statement: Statement) -> bool:
    return isinstance(statement, RequestStatement | QueryStatement)


def _shown(index: int, statement: Statement) -> str:
    return bundles.shown(bundles.step_of_statement(index, statement)) if _changes(statement) else statement.text
