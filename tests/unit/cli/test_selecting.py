"""SELECT without INTO: which statements are, and how rows are written."""

from __future__ import annotations

import json

import pytest

from headgate_cli.output import Output
from headgate_cli.selecting import Rows, is_select
from headgate_cli.statements import split


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("SELECT a FROM s", True),
        ("select a from s limit 3", True),
        ("WITH x AS (SELECT a FROM s) SELECT a FROM x", True),
        ("SELECT*FROM s", True),
        ("SELECT(a) FROM s", True),
        ("SELECT/* all */a FROM s", True),
        ("SELECT'x' AS a FROM s", True),
        ("SELECT 'INTO' AS a, `into` FROM s -- INTO nothing", True),
        ("SELECT a FROM s INTO sink", False),
        ("INSERT INTO sink SELECT a FROM s", False),
        ("CREATE QUERY q AS SELECT a FROM s INTO sink", False),
        ("SHOW QUERIES", False),
    ],
)
def test_a_query_without_a_sink_is_told_from_other_statements(text: str, is_one: bool) -> None:
    (piece,) = split(text)
    assert is_select(piece) is is_one


def test_rows_are_lines_of_a_table_under_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    rows = Rows(Output.TABLE, None)
    rows.begin(["a", "text"])
    rows.add([])
    assert capsys.readouterr().out == ""
    rows.add(['{"a":1,"text":"x"}', '{"a":null,"text":"a longer one"}', '{"a":[1,2],"text":"y"}'])
    lines = [line.split("   ") for line in capsys.readouterr().out.splitlines()]
    assert [[cell.strip() for cell in line if cell.strip()] for line in lines] == [
        ["A", "TEXT"],
        ["1", "x"],
        ["NULL", "a longer one"],
        ["[1, 2]", "y"],
    ]


def test_a_row_of_a_table_is_one_line_and_gives_no_orders_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    rows = Rows(Output.TABLE, None)
    rows.begin(["a", "b\x1b]0;title\x07"])
    rows.add([json.dumps({"a": "a\nb\x1b[31mred\r\t", "b": ["\x9b2J", "\u202e"]}), '{"a":"plain \\u00e9","b":1}'])
    lines = [line.split("   ") for line in capsys.readouterr().out.splitlines()]
    assert [[cell.strip() for cell in line if cell.strip()] for line in lines] == [
        ["A", "B\\x1b]0;TITLE\\x07"],
        ["a\\nb\\x1b[31mred\\r\\t", '["\\x9b2J", "\\u202e"]'],
        ["plain é", "1"],
    ]


def test_rows_are_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    rows = Rows(Output.JSONL, None)
    rows.begin(["a"])
    rows.add(['{"a":1}', '{"a":"\\u00e9"}'])
    assert capsys.readouterr().out == '{"a":1}\n{"a":"é"}\n'


def test_rows_are_gathered_for_one_array(capsys: pytest.CaptureFixture[str]) -> None:
    gathered: list[object] = []
    rows = Rows(Output.JSON, gathered)
    rows.begin(["a"])
    rows.add(['{"a":1}'])
    assert gathered == [{"a": 1}]
    assert capsys.readouterr().out == ""
