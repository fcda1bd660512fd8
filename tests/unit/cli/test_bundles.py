"""Bundle files, and where their problems are."""

from __future__ import annotations

import pytest

from headgate.catalog import v1 as catalog
from headgate_cli import bundles
from headgate_cli.failures import Failure
from headgate_cli.statements import Piece


def statements(text: str, name: str = "x.sql") -> list[str]:
    return [item.statement for item in bundles.read_bundle(text, name).items]


def test_each_statement_of_a_file_is_an_item() -> None:
    assert statements("CREATE A; CREATE B;") == ["CREATE A", "CREATE B"]


def test_a_file_may_say_begin_and_commit_itself() -> None:
    assert statements("BEGIN; CREATE A; CREATE B; COMMIT;") == ["CREATE A", "CREATE B"]


def test_json_is_read_as_the_request_itself() -> None:
    text = '{"items": [{"statement": "CREATE A"}, {"create_agent": {"name": "a", "address": "h:1", "slots": 2}}]}'
    items = bundles.read_bundle(text, "-").items
    assert items[0].statement == "CREATE A"
    assert items[1].create_agent == catalog.CreateAgentRequest(name="a", address="h:1", slots=2)


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("-- nothing", "x.sql", "no statement"),
        ("{", "x.json", "not a bundle"),
        ('{"thing": 1}', "x.json", "not a bundle"),
        ('{"items": []}', "x.json", "no items"),
    ],
)
def test_what_is_no_bundle_is_refused_by_name(text: str, name: str, says: str) -> None:
    with pytest.raises(Failure, match=f"{name}.*{says}"):
        bundles.read_bundle(text, name)


@pytest.mark.parametrize(("line", "column", "place"), [(1, 8, (10, 12)), (2, 3, (11, 3)), (0, 0, (0, 0))])
def test_a_place_in_a_statement_becomes_a_place_in_the_file(line: int, column: int, place: tuple[int, int]) -> None:
    problem = catalog.StatementProblem(line=line, column=column, message="m")
    moved = bundles.moved(problem, Piece("SELECT", line=10, column=5))
    assert (moved.line, moved.column) == place
    assert moved.message == "m"


@pytest.mark.parametrize("text", ["3", "[1, 2]", "null", '"CREATE A"', "{", "[" * 100_000])
def test_json_that_is_no_bundle_is_wrong_usage(text: str) -> None:
    with pytest.raises(Failure, match="is not a bundle"):
        bundles.read_bundle(text, "x.json")
