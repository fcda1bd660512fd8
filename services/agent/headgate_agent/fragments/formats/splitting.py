"""Where CSV records begin and end: by bytes, quickly where quotes are regular, and exactly everywhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headgate_agent.fragments.formats.rows import Data

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class Dialect:
    """What stands between values and between records, and what a value is wrapped in (nothing, if empty)."""

    field: bytes
    record: bytes
    quote: bytes


@dataclass(frozen=True, slots=True)
class Record:
    """A record: where it is, and its values, each with whether it was quoted. `unclosed`: a quote has no end."""

    start: int
    end: int
    values: tuple[tuple[bytes, bool], ...]
    unclosed: bool = False

    @property
    def is_blank(self) -> bool:
        return len(self.values) == 1 and self.values[0] == (b"", False)


class Splitter:
    """Splits by a dialect. A quote opens a quoted value only at the value's beginning, and is doubled inside one; what
    follows its end up to the delimiter belongs to the value. Where records end in a newline, a carriage return before
    it is part of the end."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.lines = dialect.record in (b"\n", b"\r\n")
        # Whether one byte each says everything, as the vectorised search needs it.
        self.plain = self.lines and len(dialect.field) == 1 and len(dialect.quote) <= 1 and dialect.field not in b"\r\n"
        field, record, quote = (re.escape(part) for part in (dialect.field, dialect.record, dialect.quote))
        plain_value = rb"((?:(?!%b|%b).)*)" % (field, record)
        quoted = rb"(?:%b((?:(?!%b).)*(?:%b%b(?:(?!%b).)*)*)%b(?!%b))?" % ((quote,) * 7)
        self._value = re.compile(
            (quoted if quote else rb"()?") + plain_value + rb"(%b|%b|\Z)" % (field, record), re.DOTALL
        )

    def ends(self, data: Data) -> npt.NDArray[np.int64] | None:
        """Where each whole record ends; None where only `records` can tell."""
        if not self.plain or not self._regular(data):
            return None
        content = np.frombuffer(data, np.uint8)
        newlines = np.flatnonzero(content == 10)
        if self.dialect.quote and self.dialect.quote in data:
            quotes = np.flatnonzero(content == self.dialect.quote[0])
            before = content[np.maximum(quotes[0::2] - 1, 0)]
            opening = (before == self.dialect.field[0]) | (before == 10) | (before == self.dialect.quote[0])
            if not bool(np.all(opening | (quotes[0::2] == 0))):
                return None
            newlines = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
        return newlines.astype(np.int64) + 1

    def separators(
        self, data: Data, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """How many delimiters of values each record has, given where records are. For what has `ends`."""
        content = np.frombuffer(data, np.uint8)
        found = np.flatnonzero(content == self.dialect.field[0])
        if self.dialect.quote and self.dialect.quote in data:
            quotes = np.flatnonzero(content == self.dialect.quote[0])
            found = found[np.searchsorted(quotes, found) % 2 == 0]
        counts: npt.NDArray[np.int64] = np.searchsorted(found, ends) - np.searchsorted(found, starts)
        return counts

    def is_quick(self, data: Data) -> bool:
        """Whether pyarrow splits whole records as `records` does: it closes a quote at the end by itself, and leaves
        out a byte order mark wherever a block begins with one."""
        quote = self.dialect.quote
        if data.startswith(BYTE_ORDER_MARK):
            return False
        if not quote or quote not in data:
            return self.plain and self._regular(data)
        return self.ends(data) is not None and data.count(quote) % 2 == 0

    def whole(self, data: Data, final: bool) -> int:
        """How many bytes are whole records."""
        if final:
            return len(data)
        if not self.dialect.quote or self.dialect.quote not in data:
            return _after(data.rfind(self.dialect.record), len(self.dialect.record))
        ends = self.ends(data)
        if ends is not None:
            return int(ends[-1]) if len(ends) else 0
        last = 0
        for record in self.records(data, final=False):
            last = record.end
        return last

    def first(self, data: Data, final: bool) -> int:
        """How many bytes the first record has; 0 if it is not whole yet."""
        return next((record.end for record in self.records(data, final)), 0)

    def records(self, data: Data, final: bool) -> Iterator[Record]:
        """The records one by one; without `final`, only those whose end is seen."""
        at, size = 0, len(data)
        while at < size:
            record = self._record(data, at, final)
            if record is None:
                return
            yield record
            at = record.end

    def _regular(self, data: Data) -> bool:
        """Whether every line ends alike, so that a newline byte is the end of a record unless it is quoted."""
        # Looking for one is much quicker than counting them.
        returns = data.count(b"\r") if b"\r" in data else 0
        if self.dialect.record == b"\r\n":
            return returns == data.count(b"\n") == data.count(b"\r\n")
        return returns == 0 or returns == data.count(b"\r\n")

    def _record(self, data: Data, start: int, final: bool) -> Record | None:
        values: list[tuple[bytes, bool]] = []
        at, quote = start, self.dialect.quote
        while True:
            match = self._value.match(data, at)
            if match is None:
                return None
            wrapped, rest, end = match.groups()
            if quote and wrapped is None and data.startswith(quote, at):
                return self._unclosed(data, start, at, final)
            at = match.end()
            if not end and not final:
                return None
            ended = end != self.dialect.field
            if ended and self.dialect.record == b"\n" and rest.endswith(b"\r"):
                rest = rest[:-1]
            if wrapped is None or not quote:
                values.append((rest, False))
            else:
                values.append((wrapped.replace(quote * 2, quote) + rest, True))
            if ended:
                return Record(start, at, tuple(values))

    def _unclosed(self, data: Data, start: int, at: int, final: bool) -> Record | None:
        if not final:
            return None
        end = data.find(self.dialect.record, at)
        return Record(start, len(data) if end < 0 else end + len(self.dialect.record), (), unclosed=True)


def _after(position: int, length: int) -> int:
    return 0 if position < 0 else position + length
