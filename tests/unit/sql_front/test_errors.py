"""Problems: their place, their excerpt, their words, and their form on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate_common.errors import from_status, to_status
from headgate_coordinator.errors import BIND_ERROR, REASONS, TYPE_ERROR
from headgate_coordinator.sql.errors import (
    EXCERPT_WIDTH,
    MAX_PROBLEMS,
    Problem,
    Problems,
    SourceText,
    StatementError,
    Step,
    did_you_mean,
    one_of,
    quoted,
)


@settings(deadline=None)
@given(st.text(max_size=300), st.data())
def test_position_and_excerpt_point_at_the_character(text: str, data: st.DataObject) -> None:
    offset = data.draw(st.integers(0, len(text)))
    source = SourceText(text)
    line, column = source.position(offset)
    lines = text.split("\n")
    assert sum(len(each) + 1 for each in lines[: line - 1]) + column - 1 == offset
    shown, _, caret = source.excerpt(line, column).partition("\n")
    assert len(shown) <= EXCERPT_WIDTH + 2
    assert caret.strip() == "^"
    if offset < len(text) and text[offset].isprintable():
        assert shown[len(caret) - 1] == text[offset]


@settings(deadline=None)
@given(st.integers(0, 999))
def test_caret_is_below_its_character_in_a_long_line(column: int) -> None:
    line = "".join(chr(ord("A") + i % 26) for i in range(1_000))
    shown, _, caret = SourceText(f"first\n{line}\nlast").excerpt(2, column + 1).partition("\n")
    assert shown[len(caret) - 1] == line[column]
    assert len(shown) <= EXCERPT_WIDTH + 2


def test_no_place_has_no_excerpt() -> None:
    source = SourceText("SELECT 1")
    assert source.position(None) == (0, 0)
    assert source.excerpt(0, 0) == ""


def test_secrets_are_starred_in_excerpts() -> None:
    source = SourceText("one 'secret' two")
    source.hidden.append((5, 11))
    assert source.excerpt(1, 1).startswith("one '******' two")
    assert source.shown(7, 9) == "**"


def test_error_has_the_reason_of_its_first_problem_and_tells_of_the_others() -> None:
    problems = Problems(SourceText("SELECT speeed\nFROM t"))
    problems.raise_if_any()
    problems.add(Step.TYPE, 7, "types do not fit", "cast it")
    problems.add(Step.BIND, 19, "no such source")
    with pytest.raises(StatementError) as raised:
        problems.raise_if_any()
    error = raised.value
    assert error.reason is TYPE_ERROR
    assert error.message == "line 1, column 8: types do not fit: cast it (and 1 more problem)"
    assert [problem.effective_reason for problem in error.problems] == [TYPE_ERROR, BIND_ERROR]


def test_problems_survive_the_wire() -> None:
    source = SourceText("SELECT speeed FROM t")
    error = StatementError([source.problem(Step.BIND, 7, "unknown column `speeed`", "did you mean `speed`?")], source)
    back = from_status(to_status(error), REASONS)
    assert back.reason is BIND_ERROR
    assert list(back.details) == [
        catalog.StatementProblem(
            step="BIND",
            line=1,
            column=8,
            excerpt="SELECT speeed FROM t\n       ^",
            message="unknown column `speeed`",
            suggestion="did you mean `speed`?",
        )
    ]


def test_an_error_is_bounded() -> None:
    problems = [Problem(Step.PARSE, 1, 1, "wrong")] * 10_000
    error = StatementError(problems, SourceText("x" * 1_000_000))
    assert len(error.details) == MAX_PROBLEMS
    assert len(to_status(error).SerializeToString()) < 50_000


def test_suggestions_are_for_close_words_only() -> None:
    columns = ["speed", "creationTS", "highway"]
    assert did_you_mean("speeed", columns) == "did you mean `speed`?"
    assert did_you_mean("CREATIONTS", ["creationTS"]) == ""
    assert did_you_mean("creation_ts", columns) == "did you mean `creationTS`?"
    assert did_you_mean("altitude", columns) == ""
    assert did_you_mean("x" * 10_000_000, columns) == ""


def test_words_of_the_user_are_short_and_printable() -> None:
    assert quoted("a\0b\nc") == "`a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c`"
    assert len(quoted("x" * 1_000_000)) < 70


def test_lists_of_words() -> None:
    assert one_of(["A"]) == "A"
    assert one_of(["A", "B"]) == "A or B"
    assert one_of(["A", "B", "C"]) == "A, B or C"
