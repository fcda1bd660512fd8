"""Runs SQL text against the coordinator: statements one by one, BEGIN ... COMMIT as a bundle, WATCH and SELECT without
INTO as streams."""

from __future__ import annotations

from collections.abc import Sequence

from grpc import StatusCode

from headgate.catalog import v1 as catalog
from headgate_cli import bundles
from headgate_cli.commands.watch import follow
from headgate_cli.connection import Connection
from headgate_cli.output import Output, plain, print_json, say
from headgate_cli.results import show_results
from headgate_cli.selecting import Rows, is_select, select
from headgate_cli.statements import Bundle, Piece, group, split
from headgate_common.errors import HeadgateError, Reason

_CODES = {code.value[0]: code for code in StatusCode}


class SqlSession:
    """One connection and one way to write results. Errors carry places counted in the text that was given."""

    def __init__(self, connection: Connection, output: Output) -> None:
        self._connection = connection
        self._output = output
        self._gathered: list[object] | None = None

    async def run(self, text: str) -> None:
        """Runs all statements of a text, in order. The first that fails ends it.

        As JSON, all results are one array, written at the end; what was done before a failure is in it.
        """
        self._gathered = [] if self._output is Output.JSON else None
        try:
            for entry in group(split(text)):
                if isinstance(entry, Bundle):
                    await self.run_bundle(list(entry.pieces))
                else:
                    await self.run_statement(entry)
        finally:
            if self._gathered is not None:
                print_json(self._gathered)
                self._gathered = None

    async def run_statement(self, piece: Piece) -> None:
        if piece.keyword == "WATCH":
            await follow(self._connection, catalog.WatchRequest(statement=piece.text), self._output)
            return
        if is_select(piece):
            try:
                await select(self._connection, piece, Rows(self._output, self._gathered))
            except HeadgateError as error:
                raise placed(error, piece) from error
            return
        request = catalog.ExecuteStatementRequest(statement=piece.text, request_id=self._connection.request_id())
        try:
            answer = await self._connection.call("StatementService.ExecuteStatement", request)
        except HeadgateError as error:
            raise placed(error, piece) from error
        self._show(answer.results)
        if answer.HasField("failure"):
            raise placed(of_failure(answer.failure), piece)

    async def run_bundle(self, pieces: list[Piece]) -> None:
        answer = await bundles.apply(self._connection, bundles.of_pieces(pieces), validate_only=False)
        self._show(answer.results)
        say(f"applied at revision {answer.revision}")

    def _show(self, results: Sequence[catalog.StatementResult]) -> None:
        if self._gathered is None:
            show_results(results, self._output)
        else:
            self._gathered += [plain(result) for result in results]


def of_failure(failure: catalog.StatementFailure) -> HeadgateError:
    """The error that a call would have failed with, had the statement been alone."""
    reason = Reason(failure.reason, _CODES[failure.code], "")
    return HeadgateError(reason, failure.message, details=list(failure.problems))


def placed(error: HeadgateError, piece: Piece) -> HeadgateError:
    """The same error, with its places counted in the text that the statement stood in."""
    details = [
        bundles.moved(detail, piece) if isinstance(detail, catalog.StatementProblem) else detail
        for detail in error.details
    ]
    return HeadgateError(
        error.reason, error.message, metadata=error.metadata, details=details, retry_after=error.retry_after
    )
