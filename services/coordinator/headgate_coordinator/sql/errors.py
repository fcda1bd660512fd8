"""What is wrong with a statement, and where: the one error that every step from parsing to placement raises.

A step finds `Problem`s; independent ones are gathered (`Problems`) and reported together. `StatementError` carries each
as a `StatementProblem` with the line of the text and a caret below the place, so that a client needs no copy of the
text to show it.
"""

from __future__ import annotations

import difflib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from sqlglot.errors import ParseError

from headgate.catalog import v1 as catalog
from headgate_common.errors import HeadgateError, Reason
from headgate_coordinator.errors import BIND_ERROR, PARSE_ERROR, PLACEMENT_ERROR, TYPE_ERROR, UNSUPPORTED

# An excerpt shows at most this much of a line, and an error at most so many problems: a hostile text must not come back
# many times its size.
EXCERPT_WIDTH = 120
MAX_PROBLEMS = 50
MAX_QUOTED = 60


class Step(StrEnum):
    """The step of planning that found a problem."""

    PARSE = "PARSE"
    BIND = "BIND"
    TYPE = "TYPE"
    OPTIMISE = "OPTIMISE"
    PLACE = "PLACE"


_REASON_OF_STEP = {
    Step.PARSE: PARSE_ERROR,
    Step.BIND: BIND_ERROR,
    Step.TYPE: TYPE_ERROR,
    Step.OPTIMISE: UNSUPPORTED,
    Step.PLACE: PLACEMENT_ERROR,
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `line` and `column` count from 1, in characters; 0 where there is no place.

    `reason` is what a caller may rely on; that of the step unless said otherwise.
    """

    step: Step
    line: int
    column: int
    message: str
    suggestion: str = ""
    reason: Reason | None = None

    @property
    def effective_reason(self) -> Reason:
        return self.reason or _REASON_OF_STEP[self.step]

    def sentence(self) -> str:
        """The problem for a person, with its place and what to do about it."""
        place = f"line {self.line}, column {self.column}: " if self.line else ""
        return f"{place}{self.message}{': ' + self.suggestion if self.suggestion else ''}"


class SourceText:
    """The whole text that was sent, which offsets of tokens and nodes point into.

    `hidden` are the places of secrets in it, as pairs of offsets: no excerpt shows them.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.hidden: list[tuple[int, int]] = []

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        position = self.text.find("\n")
        while position >= 0:
            starts.append(position + 1)
            position = self.text.find("\n", position + 1)
        return starts

    def position(self, offset: int | None) -> tuple[int, int]:
        """Line and column, from 1, of the character at `offset`; (0, 0) for None."""
        if offset is None:
            return 0, 0
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def excerpt(self, line: int, column: int) -> str:
        """The line, cut to a readable width around the column, and a caret below it; empty where there is no place."""
        if not line:
            return ""
        start = self._line_starts[line - 1]
        end = self._line_starts[line] - 1 if line < len(self._line_starts) else len(self.text)
        first = max(0, column - 1 - EXCERPT_WIDTH * 2 // 3) if end - start > EXCERPT_WIDTH else 0
        shown = self.shown(start + first, min(end, start + first + EXCERPT_WIDTH))
        printable = "".join(c if c.isprintable() else " " for c in shown)
        before, after = "…" if first else "", "…" if start + first + EXCERPT_WIDTH < end else ""
        caret = len(before) + column - 1 - first
        return f"{before}{printable}{after}\n{' ' * caret}^"

    def shown(self, start: int, end: int) -> str:
        """A part of the text with a star for each character of a secret."""
        part = self.text[start:end]
        for first, last in self.hidden:
            if first < end and last > start:
                low, high = max(first, start) - start, min(last, end) - start
                part = part[:low] + "*" * (high - low) + part[high:]
        return part

    def problem(
        self, step: Step, offset: int | None, message: str, suggestion: str = "", reason: Reason | None = None
    ) -> Problem:
        line, column = self.position(offset)
        return Problem(step, line, column, message, suggestion, reason)


class StatementError(HeadgateError):
    """A statement that cannot be planned. Its reason is that of its first problem."""

    def __init__(self, problems: Iterable[Problem], source: SourceText) -> None:
        self.problems = tuple(problems)
        if not self.problems:
            raise ValueError("a StatementError needs a problem")
        shown = self.problems[:MAX_PROBLEMS]
        more = len(self.problems) - 1
        message = self.problems[0].sentence()
        if more:
            message += f" (and {more} more {'problem' if more == 1 else 'problems'})"
        super().__init__(
            self.problems[0].effective_reason,
            message,
            details=[
                catalog.StatementProblem(
                    step=problem.step,
                    line=problem.line,
                    column=problem.column,
                    excerpt=source.excerpt(problem.line, problem.column),
                    message=problem.message,
                    suggestion=problem.suggestion,
                )
                for problem in shown
            ],
        )


class QuerySyntaxError(ParseError):
    """A problem found while sqlglot parses, with its offset. Becomes a `StatementError` before anyone else sees it."""

    def __init__(self, message: str, offset: int, suggestion: str = "", reason: Reason | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.suggestion = suggestion
        self.reason = reason


class Problems:
    """Gathers independent problems of one text and raises them together. What is found twice is told once."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.found: list[Problem] = []
        self._known: set[Problem] = set()

    def add(
        self, step: Step, offset: int | None, message: str, suggestion: str = "", reason: Reason | None = None
    ) -> None:
        problem = self.source.problem(step, offset, message, suggestion, reason)
        if problem not in self._known:
            self._known.add(problem)
            self.found.append(problem)

    def extend(self, problems: Iterable[Problem]) -> None:
        self.found.extend(problems)

    def __bool__(self) -> bool:
        return bool(self.found)

    def raise_if_any(self) -> None:
        if self.found:
            raise StatementError(self.found, self.source)


def quoted(text: str) -> str:
    """A word of the user in a message: shortened, printable, in backticks."""
    shown = text if len(text) <= MAX_QUOTED else text[: MAX_QUOTED - 1] + "…"
    return "`" + "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in shown) + "`"


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """ "did you mean `speed`?" for the closest candidate, or an empty string. Case does not count."""
    if len(word) > MAX_QUOTED * 2:
        return ""
    by_folded: dict[str, str] = {}
    for candidate in candidates:
        by_folded.setdefault(candidate.lower(), candidate)
    # The word itself is no help to someone who has just written it.
    by_folded.pop(word.lower(), None)
    close = difflib.get_close_matches(word.lower(), by_folded, n=1, cutoff=0.6)
    return f"did you mean {quoted(by_folded[close[0]])}?" if close else ""


def one_of(words: Iterable[str]) -> str:
    """ "A, B or C"."""
    listed = list(words)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} or {listed[-1]}"
