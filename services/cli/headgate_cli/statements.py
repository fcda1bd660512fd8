"""Finds where one statement ends and the next begins, and which of them form a bundle.

The coordinator parses statements; this only has to know what a `;` inside quotes or a comment looks like.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headgate_cli.failures import ExitCode, Failure

# A text, a name or a raw text in quotes: what may contain a `;` that ends nothing. An open one reaches to the end.
_QUOTED = re.compile(
    r"""
      (?<![A-Za-z0-9_])[rR]'[^']*(?:'|\Z)
    | (?<![A-Za-z0-9_])[rR]"[^"]*(?:"|\Z)
    | '(?:[^'\\]|''|\\.)*(?:'|\\?\Z)
    | "(?:[^"]|"")*(?:"|\Z)
    | `(?:[^`]|``)*(?:`|\Z)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Piece:
    """One statement without its `;`, and where it begins in the text, from 1."""

    text: str
    line: int
    column: int

    @property
    def keyword(self) -> str:
        """Its first word, in capitals, whatever follows it; empty where it begins with something else."""
        found = re.match(r"\w+", self.text)
        return found.group().upper() if found else ""


@dataclass(frozen=True, slots=True)
class Bundle:
    """What stood between BEGIN and COMMIT: all of it happens, or none."""

    pieces: tuple[Piece, ...]


def split(text: str) -> list[Piece]:
    """The statements of a text, in order. What is empty or only a comment is left out. A comment that is not closed is
    refused: all that follows it would be left out in silence."""
    unclosed = _unclosed(text)
    if unclosed is not None:
        line = text.count("\n", 0, unclosed) + 1
        raise Failure(ExitCode.REFUSED, f"line {line}: a comment is not closed: /* without */; nothing was done")
    return [piece for piece in (_piece(text, start, end) for start, end in _spans(text)) if piece is not None]


def is_complete(text: str) -> bool:
    """Whether nothing more is to be typed: after the last `;` that ends a statement come at most comments."""
    end = max((position + 1 for position in _semicolons(text)), default=0)
    # One more sign would be inside a comment that is not closed yet, and outside of one that is.
    return _skip_blank(text + "\n.", end, len(text) + 2) == len(text) + 1


def _comment_end(text: str, start: int) -> int | None:
    """Where the comment that begins here ends, None where none begins. Comments between /* and */ nest."""
    if text.startswith("--", start):
        end = text.find("\n", start)
        return len(text) if end < 0 else end
    if not text.startswith("/*", start):
        return None
    closed = _closed(text, start)
    return len(text) if closed is None else closed


def _closed(text: str, start: int) -> int | None:
    """Where the comment between /* and */ that begins here ends; None where it does not."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return None


def _unclosed(text: str) -> int | None:
    """Where a comment begins that nothing ends."""
    position = 0
    while position < len(text):
        comment = _comment_end(text, position)
        if comment is not None:
            if text.startswith("/*", position) and _closed(text, position) is None:
                return position
            position = comment
        elif quoted := _QUOTED.match(text, position):
            position = quoted.end()
        else:
            position += 1
    return None


def _semicolons(text: str) -> Iterator[int]:
    """Where statements end."""
    position = 0
    while position < len(text):
        comment = _comment_end(text, position)
        if comment is not None:
            position = comment
        elif quoted := _QUOTED.match(text, position):
            position = quoted.end()
        else:
            if text[position] == ";":
                yield position
            position += 1


def _spans(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    for end in _semicolons(text):
        yield start, end
        start = end + 1
    yield start, len(text)


def _skip_blank(text: str, start: int, end: int) -> int:
    """The place of the first thing from `start` on that is neither space nor comment; `end` where there is none."""
    while start < end:
        comment = _comment_end(text, start)
        if comment is not None:
            start = comment
        elif text[start].isspace():
            start += 1
        else:
            break
    return min(start, end)


def _piece(text: str, start: int, end: int) -> Piece | None:
    """The statement between two offsets, without the comments and space before it."""
    start = _skip_blank(text, start, end)
    if start == end:
        return None
    line = text.count("\n", 0, start) + 1
    return Piece(text[start:end].rstrip(), line, start - (text.rfind("\n", 0, start) + 1) + 1)


def words_of(text: str) -> list[str]:
    """The words of a statement in capitals, without those in quotes and comments."""
    kept: list[str] = []
    position = 0
    while position < len(text):
        comment = _comment_end(text, position)
        quoted = None if comment is not None else _QUOTED.match(text, position)
        if comment is not None or quoted is not None:
            position = comment if comment is not None else quoted.end() if quoted else position
            kept.append(" ")
        else:
            kept.append(text[position])
            position += 1
    return re.findall(r"\w+", "".join(kept).upper())


def group(pieces: list[Piece]) -> list[Piece | Bundle]:
    """Gathers what stands between BEGIN and COMMIT into bundles; what ROLLBACK ends is left out."""
    grouped: list[Piece | Bundle] = []
    open_bundle: list[Piece] | None = None
    began = 0
    for piece in pieces:
        match piece.keyword:
            case "BEGIN":
                if open_bundle is not None:
                    raise Failure(ExitCode.REFUSED, f"line {piece.line}: BEGIN inside the bundle begun on line {began}")
                open_bundle, began = [], piece.line
            case "COMMIT" | "ROLLBACK" as word:
                if open_bundle is None:
                    raise Failure(ExitCode.REFUSED, f"line {piece.line}: {word} without BEGIN")
                if word == "COMMIT" and open_bundle:
                    grouped.append(Bundle(tuple(open_bundle)))
                open_bundle = None
            case _ if open_bundle is not None:
                open_bundle.append(piece)
            case _:
                grouped.append(piece)
    if open_bundle is not None:
        raise Failure(ExitCode.REFUSED, f"the bundle begun on line {began} has no COMMIT; nothing of it was done")
    return grouped
