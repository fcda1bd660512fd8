"""Every statement of tests/corpus/statements means what its golden file says, or is refused as it says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf import text_format
from sqlglot import exp

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.errors import StatementError
from headgate_coordinator.sql.nodes import window_of
from headgate_coordinator.sql.parse import parse_statements
from headgate_coordinator.sql.statements import (
    DescribeStatement,
    ExplainStatement,
    QueryStatement,
    RequestStatement,
    ShowStatement,
    Statement,
    WatchStatement,
)

CORPUS = Path(__file__).parents[2] / "corpus" / "statements"
SEPARATOR = "--- "


def cases_of(path: Path) -> dict[str, str]:
    cases: dict[str, str] = {}
    name = ""
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if line.startswith(SEPARATOR):
            name = line.removeprefix(SEPARATOR).strip()
            assert name not in cases, f"{path.name} has two cases {name}"
            cases[name] = ""
        else:
            assert name, f"{path.name} does not begin with a case"
            cases[name] += line
    return cases


def all_cases() -> list[tuple[str, str, str]]:
    return [(path.stem, name, text) for path in sorted(CORPUS.glob("*.sql")) for name, text in cases_of(path).items()]


def outcome(text: str) -> str:
    try:
        statements = parse_statements(text)
    except StatementError as error:
        return "".join(refused(error))
    return "".join(line + "\n" for statement in statements for line in accepted(statement))


def refused(error: StatementError) -> Iterator[str]:
    yield f"{error}\n"
    for detail in error.details:
        assert isinstance(detail, catalog.StatementProblem)
        yield f"{detail.step} {detail.line}:{detail.column} {detail.message}\n"
        if detail.suggestion:
            yield f"  {detail.suggestion}\n"
        for line in detail.excerpt.splitlines():
            yield f"  | {line}\n"


def accepted(statement: Statement) -> Iterator[str]:
    yield f"{statement.verb} at {statement.line}:{statement.column}"
    match statement:
        case RequestStatement():
            if statement.if_not_exists:
                yield "  if not exists"
            yield f"  {type(statement.request).__name__}"
            for line in text_format.MessageToString(statement.request).splitlines():
                yield f"  {line}"
        case QueryStatement():
            yield from query_lines(statement)
        case ExplainStatement():
            yield f"  format {catalog.ExplainFormat.Name(statement.format)}"
            yield from query_lines(statement.query)
        case ShowStatement():
            for key in ("owner", "like", "limit"):
                if getattr(statement, key) is not None:
                    yield f"  {key} {getattr(statement, key)}"
            if statement.where is not None:
                yield f"  where {statement.where.sql(dialect='spark')}"
        case WatchStatement():
            yield f"  kind {catalog.ResourceKind.Name(statement.kind)}"
            yield f"  columns {', '.join(statement.columns) or 'all'}"
            if statement.where is not None:
                yield f"  where {statement.where.sql(dialect='spark')}"
        case DescribeStatement():
            yield f"  {statement.kind or 'anything'} named {statement.name}"


def query_lines(query: QueryStatement) -> Iterator[str]:
    yield f"  name {query.name}{' if not exists' if query.if_not_exists else ''}, sink {query.sink}"
    options = query.options
    for key in ("deadline_us", "start", "idle_timeout_us", "delivery", "lateness_us"):
        if getattr(options, key) is not None:
            yield f"  {key} {getattr(options, key)}"
    if options.mode:
        yield f"  mode {catalog.QueryMode.Name(options.mode)}"
    yield f"  {query.select.sql(dialect='spark')}"
    for node in query.select.walk():
        window = window_of(node)
        if window is not None:
            column = window.time_column
            settings = [
                f"{key}={window.args[key]}"
                for key in ("size", "advance", "gap", "lateness", "offset", "unit")
                if window.args.get(key) is not None
            ]
            over = column.sql(dialect="spark") if column is not None else "processing time"
            kind = "select" if isinstance(node, exp.Select) else f"table {node.alias_or_name}"
            yield f"  window of {kind}: {window.window_kind} over {over}, {', '.join(settings)} ({window.spelling})"


@pytest.mark.parametrize(
    ("file", "name", "text"), [pytest.param(*case, id=f"{case[0]}-{case[1]}") for case in all_cases()]
)
def test_statement_has_the_outcome_of_its_golden_file(file: str, name: str, text: str) -> None:
    assert outcome(text) == cases_of(CORPUS / f"{file}.golden").get(name), (
        f"{file}.sql, case {name}: if the new outcome is right, run with UPDATE_GOLDEN=1"
    )


@pytest.mark.parametrize(
    ("file", "name", "text"), [pytest.param(*case, id=f"{case[0]}-{case[1]}") for case in all_cases()]
)
def test_name_of_a_case_says_whether_it_is_refused(file: str, name: str, text: str) -> None:
    try:
        parse_statements(text)
        refused = False
    except StatementError:
        refused = True
    assert refused == name.startswith("refused_")


def test_golden_files_have_no_cases_that_the_corpus_lacks() -> None:
    for path in CORPUS.glob("*.golden"):
        assert set(cases_of(path)) == set(cases_of(path.with_suffix(".sql")))


def test_corpus_is_large() -> None:
    assert len(all_cases()) >= 150


def update() -> None:
    for path in sorted(CORPUS.glob("*.sql")):
        lines = [f"{SEPARATOR}{name}\n{outcome(text)}" for name, text in cases_of(path).items()]
        path.with_suffix(".golden").write_text("".join(lines))


if os.environ.get("UPDATE_GOLDEN"):
    update()
