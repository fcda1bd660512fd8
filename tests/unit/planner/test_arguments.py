"""Nothing of a statement is ignored: what a node has and nobody reads is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlglot import exp

from headgate.catalog import v1 as catalog
from headgate_coordinator.errors import UNSUPPORTED
from headgate_coordinator.sql.arguments import READ, unread, unread_names
from headgate_coordinator.sql.conditions import compile_text
from headgate_coordinator.sql.errors import StatementError
from headgate_coordinator.sql.expressions import _HANDLERS
from headgate_coordinator.sql.planner import plan_query
from tests.unit.planner.kit import CATALOG, MemoryView, cases, corpus_files, parse_query

VIEW = MemoryView(CATALOG).apply("CREATE SINK result(a INT32) TYPE PRINT ON edge")
# Between them they have every clause and most operators.
QUERIES = [
    "SELECT vehicle + 1 AS a FROM lrb WHERE speed BETWEEN 1 AND 2 OR lane IN (1, 2) AND NOT direction INTO result",
    "SELECT DISTINCT vehicle AS a FROM lrb WINDOW TUMBLING(creationTS, SIZE 1 MIN) INTO result",
    "SELECT MAX(vehicle) AS a FROM lrb GROUP BY highway WINDOW TUMBLING(creationTS, SIZE 1 MIN) HAVING COUNT(*) > 1 "
    "ORDER BY a DESC LIMIT 3 INTO result",
    "WITH t AS (SELECT vehicle AS a FROM lrb) SELECT a FROM t UNION ALL SELECT x.a FROM (SELECT 1 AS a FROM lrb) x "
    "INTO result",
    "SELECT CASE WHEN s LIKE 'a%' ESCAPE '!' THEN CAST(trim(LEADING 'x' FROM s) AS INT32) ELSE ints[0] END AS a "
    "FROM types WHERE s IS NOT NULL AND EXTRACT(YEAR FROM ts) > 1 AND s RLIKE 'a' INTO result",
    "SELECT p.a FROM (SELECT CAST(order_id AS INT32) AS a, ts FROM payments) p JOIN shipments s "
    "ON p.a = s.order_id AND s.ts BETWEEN p.ts AND p.ts + INTERVAL '5' MINUTES INTO result",
]


def _altered(tree: exp.Expr) -> Iterator[tuple[exp.Expr, str]]:
    """The tree with one argument more that nobody reads, in every place and for every such argument."""
    for index, node in enumerate(tree.walk()):
        for key in node.arg_types:
            if key in READ[type(node)] or node.args.get(key):
                continue
            copy = tree.copy()
            changed = next(part for place, part in enumerate(copy.walk()) if place == index)
            changed.set(key, exp.Literal.number(1))
            yield copy, f"{type(node).__name__}.{key}"


@pytest.mark.parametrize("query", QUERIES, ids=["filter", "distinct", "top_n", "union", "functions", "join"])
def test_argument_that_nobody_reads_is_refused_wherever_it_stands(query: str) -> None:
    statement = parse_query(query)
    assert plan_query(statement, VIEW).fragments
    tried = set()
    for tree, name in _altered(statement.select):
        if name in tried or not list(unread(tree)):
            continue
        tried.add(name)
        with pytest.raises(StatementError) as raised:
            plan_query(replace(statement, select=tree), VIEW)
        assert raised.value.problems, name
    assert len(tried) > 20


def test_node_that_nobody_knows_is_refused() -> None:
    statement = parse_query("SELECT vehicle AS a FROM lrb WHERE speed > 1 INTO result")
    statement.select.args["where"].set("this", exp.Xor(this=exp.true(), expression=exp.false()))
    with pytest.raises(StatementError) as raised:
        plan_query(statement, VIEW)
    assert raised.value.reason == UNSUPPORTED


def test_every_node_that_expressions_can_have_says_what_is_read_of_it() -> None:
    refused = {exp.Window}
    assert set(_HANDLERS) - set(READ) - refused == set()


def test_what_is_read_is_an_argument_of_its_node() -> None:
    ours = {"stream_window", "except_"}
    for node, read in READ.items():
        assert set(read) - set(node.arg_types) - ours == set(), node


@pytest.mark.slow
def test_accepted_queries_of_the_corpus_have_nothing_unread() -> None:
    for path in corpus_files():
        for case in cases(path):
            if path.stem.startswith("refused") or case.name.startswith("refused"):
                continue
            assert list(unread_names(parse_query(case.query).select)) == [], f"{path.stem}: {case.name}"


@pytest.mark.parametrize(
    "where", ["name = CAST('x' AS INT64)", "slots = TRY_CAST('5' AS TIMESTAMP)", "create_time > CAST('1' AS BOOL)"]
)
def test_condition_over_resources_ignores_no_cast(where: str) -> None:
    with pytest.raises(StatementError):
        compile_text(catalog.RESOURCE_KIND_AGENT, where)
