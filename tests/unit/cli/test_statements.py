"""Where one statement ends and the next begins."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from headgate_cli.failures import Failure
from headgate_cli.statements import Bundle, Piece, group, is_complete, split, words_of
from headgate_coordinator.sql.dialect import Headgate


def texts(sql: str) -> list[str]:
    return [piece.text for piece in split(sql)]


@pytest.mark.parametrize(
    "quoted",
    [
        "';'",
        "'it''s; so'",
        r"'a\';b'",
        r"r'a\'",
        '"a;b"',
        '"a"";b"',
        "`a;b`",
        "/* ; */ x",
        "/* '; */ x",
        "/* /* ; */ ; */ x",
        "-- ;'\n x",
    ],
)
def test_a_semicolon_inside_quotes_or_a_comment_ends_nothing(quoted: str) -> None:
    assert texts(f"SELECT {quoted}; SHOW QUERIES") == [f"SELECT {quoted}", "SHOW QUERIES"]


def test_what_is_empty_or_only_a_comment_is_no_statement() -> None:
    assert texts("; ;\n-- nothing\n; /* here */ ;") == []


def test_a_statement_knows_where_it_begins() -> None:
    pieces = split("-- first\nSHOW AGENTS;  SHOW\n  SINKS;\n\n\tDROP SINK x")
    assert [(p.line, p.column, p.keyword) for p in pieces] == [(2, 1, "SHOW"), (2, 15, "SHOW"), (5, 2, "DROP")]


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("SHOW QUERIES", False),
        ("SHOW QUERIES;", True),
        ("SHOW QUERIES;  -- done", True),
        ("SHOW 'a;", False),
        ("SHOW /* ;", False),
        ("SHOW QUERIES; SHOW", False),
        ("SELECT 1 -- ;", False),
    ],
)
def test_typing_is_done_when_the_last_statement_is_ended(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_what_stands_between_begin_and_commit_is_one_bundle() -> None:
    grouped = group(
        split("SHOW AGENTS; BEGIN; CREATE A; CREATE B; commit; BEGIN/* not */; DROP C; ROLLBACK; SHOW SINKS")
    )
    shown = [[p.text for p in e.pieces] if isinstance(e, Bundle) else e.text for e in grouped]
    assert shown == ["SHOW AGENTS", ["CREATE A", "CREATE B"], "SHOW SINKS"]


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("BEGIN; CREATE A", "no COMMIT; nothing of it was done"),
        ("COMMIT", "COMMIT without BEGIN"),
        ("BEGIN;\nBEGIN; COMMIT", "line 2: BEGIN inside the bundle begun on line 1"),
    ],
)
def test_a_bundle_that_is_not_whole_is_refused(sql: str, says: str) -> None:
    with pytest.raises(Failure, match=says):
        group(split(sql))


@given(st.text(alphabet="ab;'\"`-/*\\\n ", max_size=60))
def test_no_text_is_lost_or_made_up_and_splitting_ends(text: str) -> None:
    assume(is_whole(text))
    joined = "".join(piece.text for piece in split(text))
    kept = iter(text)
    assert all(character in kept for character in joined)


@given(st.lists(st.sampled_from([";", "'", '"', "`", "--", "/*", "*/", "\\", "\n", "a", " ", "r'", 'R"', "''"])))
def test_statements_end_where_the_coordinator_says_they_end(signs: list[str]) -> None:
    text = "".join(signs)
    # The coordinator's tokenizer takes the star of an opening for that of a closing; nobody writes that.
    assume("/*/" not in text and is_whole(text))
    try:
        tokens = Headgate().tokenize(text)
    except TokenError:
        # Not closed: the coordinator refuses the text, wherever it is cut.
        return
    groups: list[list[int]] = [[]]
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            groups.append([])
        else:
            groups[-1].append(token.start)
    assert [offset_of(text, piece) for piece in split(text)] == [group[0] for group in groups if group]


@pytest.mark.parametrize(
    ("text", "line"),
    [("/*", 1), ("CREATE A;\n/* DROP B;\nDROP C;", 2), ("CREATE A /* /* */", 1), ("/**/ '/*' -- /*\n/*", 2)],
)
def test_a_comment_that_is_not_closed_is_refused_with_its_line_because_it_hides_what_follows(
    text: str, line: int
) -> None:
    with pytest.raises(Failure, match=f"line {line}: a comment is not closed"):
        split(text)


def is_whole(text: str) -> bool:
    """Whether every comment is closed."""
    try:
        split(text)
    except Failure:
        return False
    return True


def offset_of(text: str, piece: Piece) -> int:
    lines = text.split("\n")[: piece.line - 1]
    return sum(len(line) + 1 for line in lines) + piece.column - 1


def test_words_in_quotes_and_comments_are_not_words_of_the_statement() -> None:
    assert words_of("SELECT 'INTO' AS `INTO`, \"x\" -- INTO\n FROM a /* INTO */ WHERE b") == [
        "SELECT",
        "AS",
        "FROM",
        "A",
        "WHERE",
        "B",
    ]
