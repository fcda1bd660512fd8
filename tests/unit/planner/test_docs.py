"""Every example of the SQL pages does what the page says, and the list of functions is the list."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.catalog import v1 as catalog
from headgate_coordinator.sql.bind import bind
from headgate_coordinator.sql.errors import Problems, StatementError
from headgate_coordinator.sql.functions import AGGREGATE_FUNCTIONS, SCALAR_FUNCTIONS
from headgate_coordinator.sql.planner import plan_query
from headgate_coordinator.sql.settings import PlannerSettings
from tests.unit.planner.kit import MemoryView, parse_query

DOCS = Path(__file__).parents[3] / "docs" / "sql"
PAGES = ("select.md", "by-example.md", "coming-from.md")


def examples(page: str) -> Iterator[tuple[str, str, MemoryView]]:
    """Each example of a page: `refused` or empty, its text, and the catalog that the page has made."""
    view = MemoryView()
    for kind, text in re.findall(r"^```sql ?(\w*)\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL):
        if text.startswith("CREATE "):
            view.apply(text)
        else:
            yield kind, text.strip(), view


EXAMPLES = [(page, *example) for page in PAGES for example in examples(page)]


def _planned(text: str, view: MemoryView) -> catalog.QueryPlan:
    """The plan of an example, into a sink with exactly its columns."""
    statement = parse_query(text)
    problems = Problems(statement.source)
    bound, _ = bind(statement.select, view, problems, PlannerSettings(), 0, True)
    problems.raise_if_any()
    assert bound is not None
    fields = [catalog.Field(name=name, type=str(column.type)) for name, column in bound.outputs]
    view.sinks["out"] = catalog.Sink(
        name="out", uid="out", schema=catalog.Schema(fields=fields), type=catalog.SINK_TYPE_PRINT, agent="edge"
    )
    return plan_query(replace(statement, sink="out"), view)


@pytest.mark.parametrize(
    ("page", "kind", "text", "view"), EXAMPLES, ids=[f"{e[0]}-{i}" for i, e in enumerate(EXAMPLES)]
)
def test_example_is_planned_or_refused_as_the_page_says(page: str, kind: str, text: str, view: MemoryView) -> None:
    if kind == "refused":
        with pytest.raises(StatementError):
            _planned(text, view)
    else:
        assert kind == "", f"{page}: unknown mark {kind}"
        assert _planned(text, view).fragments


def test_pages_have_examples() -> None:
    assert len(EXAMPLES) >= 25


def _function_list() -> str:
    groups: dict[str, list[str]] = {}
    for function in (*AGGREGATE_FUNCTIONS, *SCALAR_FUNCTIONS):
        names = f"`{function.name}`"
        if function.synonyms:
            names += " (" + ", ".join(f"`{name}`" for name in function.synonyms) + ")"
        groups.setdefault(function.group, []).append(names)
    return "\n".join(f"- {group}: {', '.join(names)}." for group, names in groups.items())


def test_list_of_functions_is_complete() -> None:
    page = DOCS / "select.md"
    text = page.read_text()
    head, marker, rest = text.partition("<!-- functions -->\n")
    recorded, end, tail = rest.partition("<!-- end of functions -->")
    if os.environ.get("UPDATE_GOLDEN"):
        page.write_text(f"{head}{marker}{_function_list()}\n{end}{tail}")
        recorded = _function_list() + "\n"
    assert recorded == _function_list() + "\n"
