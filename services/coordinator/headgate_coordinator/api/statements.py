"""StatementService: statements of the SQL dialect, one after the other or as a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from headgate.catalog import v1 as catalog
from headgate.catalog.v1 import statement_service_pb2
from headgate_common.dispatch import Call
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.api.mutations import Mutations, Part
from headgate_coordinator.api.planning import Planning
from headgate_coordinator.catalog import bundles, operations, tables
from headgate_coordinator.catalog.bundles import Step
from headgate_coordinator.catalog.operations import Rules
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

        With `request_id` each is remembered as a part of the request, so that a retry after a crash goes on where the
        first call ended; the whole answer is remembered at the end.
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
            steps = [bundles.step_of_statement(index, one) for index, one in enumerate(parsed) if _changes(one)]
            bundles.refuse_too_many_queries(steps, self._mutations.rules)
            return await self._mutations.execute(
                request, catalog.ExecuteStatementResponse, partial(self._rehearse, parsed), call
            )
        response = await self._execute_all(request, parsed, call)
        if not request.request_id:
            return response
        return await self._mutations.execute(request, catalog.ExecuteStatementResponse, lambda _: response, call)

    async def apply_bundle(self, request: catalog.ApplyBundleRequest, call: Call) -> catalog.ApplyBundleResponse:
        known = await self._mutations.replay(request, catalog.ApplyBundleResponse, call)
        if known is not None:
            return known
        steps = await self._planning.run(lambda: bundles.steps_of(request.items, self._planning.parse_now))
        bundles.refuse_too_many_queries(steps, self._mutations.rules)

        def apply(tx: Tx) -> catalog.ApplyBundleResponse:
            results = bundles.apply_bundle(tx, steps, self._mutations.rules, self._planning.plan_inside)
            return catalog.ApplyBundleResponse(results=results, revision=tx.revision if tx.changes else 0)

        return await self._mutations.execute(request, catalog.ApplyBundleResponse, apply, call)

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
        if isinstance(statement, ExplainStatement):
            text = self._planning.explain_inside(tx, statement.query, statement.format).text
            rows = [catalog.ResultRow(values=[line]) for line in text.splitlines()]
            table = catalog.ResultTable(columns=["plan"], rows=rows)
            return catalog.StatementResult(statement=statement.text, verb=statement.verb, table=table)
        if isinstance(statement, WatchStatement):
            raise HeadgateError(UNSUPPORTED, "WATCH is a stream: give the statement to WatchService.Watch")
        raise HeadgateError(UNSUPPORTED, f"this coordinator does not execute {statement.verb}")

    def _rehearse(self, parsed: Sequence[Statement], tx: Tx) -> catalog.ExecuteStatementResponse:
        """All statements in one transaction that is rolled back, so that each sees what those before it would do."""
        response = catalog.ExecuteStatementResponse()
        rules = self._mutations.rules
        for index, statement in enumerate(parsed):
            try:
                if _changes(statement):
                    step = bundles.step_of_statement(index, statement)
                    result = bundles.perform(tx, step, rules, self._planning.plan_inside)
                    operations.settle(tx, rules)
                else:
                    result = self._look(tx, statement)
            except HeadgateError as error:
                if index == 0:
                    raise
                response.failure.CopyFrom(bundles.failure(error, index, _shown(index, statement)))
                break
            response.results.append(result)
        return response


def _perform(step: Step, rules: Rules, tx: Tx, *, planned: PlannedQuery | None) -> catalog.StatementResult:
    """One statement as a transaction of its own."""
    result = bundles.perform_planned(tx, step, rules, planned)
    operations.settle(tx, rules)
    return result


def _changes(statement: Statement) -> bool:
    return isinstance(statement, RequestStatement | QueryStatement)


def _shown(index: int, statement: Statement) -> str:
    return bundles.shown(bundles.step_of_statement(index, statement)) if _changes(statement) else statement.text
