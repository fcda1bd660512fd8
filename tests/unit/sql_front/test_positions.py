"""Every node that a later step may complain about can be found in the text."""

from __future__ import annotations

import pytest
from sqlglot import exp

from headgate_coordinator.sql.nodes import StreamWindow, offset_of
from headgate_coordinator.sql.parse import parse_query_statement
from headgate_coordinator.sql.statements import QueryStatement

TEXT = """
-- a comment with ünïcode
CREATE QUERY q AS
SELECT a.speed AS v, upper(name), CASE WHEN x THEN 1 ELSE NULL END, CAST(y AS INT32), 'text' || z, TRUE, count(*)
FROM cars AS a
LEFT JOIN owners ON a.id = owners.id
WHERE a.kind IN ('car', 'truck') AND EXISTS (SELECT 1 FROM b)
GROUP BY kind
WINDOW TUMBLING(ts, SIZE 5 SEC)
HAVING count(DISTINCT name) > 5
ORDER BY v LIMIT 10
INTO out
"""


@pytest.fixture(scope="module")
def query() -> QueryStatement:
    return parse_query_statement(TEXT)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (exp.Case, "CASE"),
        (exp.Cast, "CAST"),
        (exp.DataType, "INT32"),
        (exp.Null, "NULL"),
        (exp.Boolean, "TRUE"),
        (exp.Star, "*"),
        (exp.DPipe, "'text'"),
        (exp.Join, "LEFT JOIN"),
        (exp.Where, "WHERE"),
        (exp.In, "a.kind"),
        (exp.Exists, "EXISTS"),
        (exp.Group, "GROUP BY"),
        (StreamWindow, "WINDOW"),
        (exp.Having, "HAVING"),
        (exp.Order, "ORDER BY"),
        (exp.Limit, "LIMIT"),
        (exp.Select, "SELECT a.speed"),
        (exp.Table, "cars AS a"),
        (exp.Alias, "a.speed AS v"),
    ],
)
def test_node_is_found_where_it_was_written(query: QueryStatement, kind: type[exp.Expr], text: str) -> None:
    node = query.select.find(kind)
    offset = offset_of(node)
    assert offset is not None
    assert TEXT[offset : offset + len(text)] == text


def test_every_node_has_a_place_within_the_statement(query: QueryStatement) -> None:
    for node in query.select.walk():
        offset = offset_of(node)
        assert offset is not None, repr(node)
        assert query.offset <= offset < len(TEXT)


def test_every_name_and_literal_is_found_exactly(query: QueryStatement) -> None:
    for node in query.select.find_all(exp.Identifier, exp.Literal):
        offset = offset_of(node)
        assert offset is not None
        written = f"'{node.name}'" if isinstance(node, exp.Literal) and node.is_string else node.name
        assert TEXT[offset : offset + len(written)] == written


def test_statement_knows_its_own_text_and_line(query: QueryStatement) -> None:
    assert (query.line, query.column) == (3, 1)
    assert query.text.startswith("CREATE QUERY q") and query.text.endswith("INTO out")
    assert query.select_text.startswith("SELECT a.speed") and query.select_text.endswith("LIMIT 10")
    assert query.sink_offset is not None and TEXT[query.sink_offset :].startswith("out")


def test_places_outlive_copies(query: QueryStatement) -> None:
    copy = query.select.copy()
    assert offset_of(copy.find(exp.Case)) == offset_of(query.select.find(exp.Case))
