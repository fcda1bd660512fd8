"""Shows what statements and bundles did."""

from __future__ import annotations

from collections.abc import Sequence

from headgate.catalog import v1 as catalog
from headgate_cli import kinds
from headgate_cli.output import Output, plain, print_table, print_values, stdout


def show_results(results: Sequence[catalog.StatementResult], output: Output) -> None:
    if output is not Output.TABLE:
        print_values([plain(result) for result in results], output)
        return
    for result in results:
        show_result(result)


def show_result(result: catalog.StatementResult) -> None:
    if result.HasField("table"):
        columns = list(result.table.columns)
        if len(columns) == 1:
            # A plan is text; a table around it would only be in the way.
            for row in result.table.rows:
                stdout().print(row.values[0])
            return
        print_table([column.upper() for column in columns], [list(row.values) for row in result.table.rows])
        return
    stdout().print(summary(result))


def summary(result: catalog.StatementResult) -> str:
    """One line: what was done to what."""
    names = [kind.name_of(message) for kind, message in map(kinds.of_resource, result.resources)]
    line = " ".join([result.verb, ", ".join(names)]).strip()
    return f"{line} (nothing to do)" if result.skipped else line


def created_queries(results: Sequence[catalog.StatementResult]) -> list[str]:
    """Names of the queries that the results have brought into being."""
    return [
        resource.query.name
        for result in results
        for resource in result.resources
        if resource.WhichOneof("resource") == "query"
        and resource.query.desired_state == catalog.DESIRED_STATE_RUNNING
        and not result.skipped
        and result.verb.startswith(("CREATE", "SELECT"))
    ]
