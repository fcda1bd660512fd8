"""Which names mean what at a place in a query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from headgate_coordinator.sql.algebra import Call, Column, Expr, Literal, Window, columns_in
from headgate_coordinator.sql.errors import did_you_mean, quoted
from headgate_coordinator.sql.nodes import WindowSpelling
from headgate_coordinator.sql.typecheck import BAD
from headgate_coordinator.sql.types import TIMESTAMP, VARCHAR

_BOUNDS = {"start": "start", "end": "end", "window_start": "start", "window_end": "end"}


@dataclass(frozen=True, slots=True)
class BoundWindow:
    """A window that rows have been assigned to, as the struct `column`."""

    window: Window
    column: Column
    spelling: WindowSpelling

    def bound(self, which: str) -> Expr:
        return Call("field", (self.column, Literal(which, VARCHAR)), TIMESTAMP, self.column.nullable)

    def time(self) -> Expr:
        """The last instant in the window, which keeps the watermark."""
        return Call("window_time", (self.column,), TIMESTAMP, self.column.nullable)

    def named(self, name: str) -> Expr | None:
        """What a bare name means, where it means this window."""
        folded = name.lower()
        if folded == "window_time":
            return self.time()
        if folded in ("start", "end") and self.spelling is not WindowSpelling.CLAUSE:
            return None
        if folded == "window":
            return self.column if self.spelling is WindowSpelling.FUNCTION else None
        which = _BOUNDS.get(folded)
        return None if which is None else self.bound(which)


@dataclass(frozen=True, slots=True)
class Range:
    """A relation in FROM: its alias and its columns by name, in order.

    A wild one could not be bound, for a reason already noted: any name may be a column of it.
    """

    alias: str
    columns: tuple[tuple[str, Expr], ...]
    window: BoundWindow | None = None
    wild: bool = False
    _by_name: dict[str, list[Expr]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        by_name: dict[str, list[Expr]] = {}
        for name, expr in self.columns:
            by_name.setdefault(name.lower(), []).append(expr)
        object.__setattr__(self, "_by_name", by_name)

    def optional(self) -> Range:
        """The relation as the side of an outer join that may be missing."""
        return replace(self, columns=tuple((name, with_nullable(expr, True)) for name, expr in self.columns))

    def present(self, exprs: set[Expr]) -> Range:
        """The relation after rows were removed in which one of the expressions is NULL."""
        columns = tuple((name, with_nullable(expr, False) if expr in exprs else expr) for name, expr in self.columns)
        return replace(self, columns=columns)

    def find(self, name: str) -> list[Expr]:
        found = self._by_name.get(name.lower(), [])
        if not found and self.window is not None:
            named = self.window.named(name)
            found = [named] if named is not None else []
        return found


def with_nullable(expr: Expr, nullable: bool) -> Expr:
    """The expression, known to be NULL somewhere or nowhere."""
    return expr if isinstance(expr, Literal) else replace(expr, nullable=nullable)


class NameProblem(Exception):
    """A name that means nothing, or too much."""

    def __init__(self, message: str, suggestion: str = "", place: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.suggestion = suggestion
        # Which part of the dotted name is wrong.
        self.place = place


@dataclass(slots=True)
class Scope:
    """The names at one level of a query. `outer` is the query around a sub-select in IN or EXISTS."""

    ranges: list[Range] = field(default_factory=list)
    window: BoundWindow | None = None
    outer: Scope | None = None
    # Columns of the outer query that were used.
    correlated: set[Column] = field(default_factory=set)
    # Columns merged by USING: the name means this.
    merged: dict[str, Expr] = field(default_factory=dict)

    def is_present(self, exprs: set[Expr]) -> None:
        """Notes that the expressions are not NULL in any row from here on."""
        self.ranges[:] = [source.present(exprs) for source in self.ranges]

    def star(self) -> Iterator[tuple[str, Expr]]:
        """What `*` stands for. Columns merged by USING come once."""
        seen: set[str] = set()
        for source in self.ranges:
            for name, expr in source.columns:
                folded = name.lower()
                if folded in self.merged:
                    if folded in seen:
                        continue
                    seen.add(folded)
                    expr = self.merged[folded]
                yield name, expr

    def range_of(self, alias: str) -> Range | None:
        folded = alias.lower()
        return next((source for source in self.ranges if source.alias.lower() == folded), None)

    def resolve(self, parts: Sequence[str], aliases: Mapping[str, Expr] | None = None) -> tuple[Expr, int]:
        """What a dotted name means and how many of its parts were used; the rest are fields of a struct.

        Order: the window's own names for a bare `start` or `end`, columns, the window's other names, `aliases`, the
        outer query. NameProblem where nothing or more than one thing is meant.
        """
        found = self._resolve_here(parts, aliases or {})
        if found is not None:
            return found
        if self.outer is not None:
            try:
                expr, used = self.outer.resolve(parts)
            except NameProblem:
                raise self._unknown(parts, aliases or {}) from None
            self.correlated |= columns_in(expr)
            return expr, used
        raise self._unknown(parts, aliases or {})

    def _resolve_here(self, parts: Sequence[str], aliases: Mapping[str, Expr]) -> tuple[Expr, int] | None:
        name = parts[0].lower()
        if len(parts) > 1:
            if name == "window" and self.window is not None and parts[1].lower() in ("start", "end"):
                return self.window.bound(parts[1].lower()), 2
            source = self.range_of(parts[0])
            if source is not None and source.wild:
                return BAD, len(parts)
            if source is not None:
                found = source.find(parts[1])
                if not found:
                    raise self._unknown_in(source, parts)
                return self._only(found, parts[1], [source]), 2
        if self.window is not None and name in ("start", "end"):
            bound = self.window.named(name)
            if bound is not None:
                return bound, 1
        if name in self.merged:
            return self.merged[name], 1
        found = [expr for source in self.ranges for expr in source.find(name)]
        if found:
            return self._only(found, parts[0], self.ranges), 1
        if self.window is not None:
            bound = self.window.named(name)
            if bound is not None:
                return bound, 1
        if name in aliases:
            return aliases[name], 1
        return (BAD, len(parts)) if any(source.wild for source in self.ranges) else None

    @staticmethod
    def _only(found: list[Expr], name: str, ranges: Sequence[Range]) -> Expr:
        if len(found) == 1:
            return found[0]
        holders = [source.alias for source in ranges if source.find(name)]
        qualified = " or ".join(quoted(f"{alias}.{name}") for alias in holders) if len(holders) > 1 else ""
        raise NameProblem(f"the column {quoted(name)} is ambiguous", f"write {qualified}" if qualified else "")

    def _unknown(self, parts: Sequence[str], aliases: Mapping[str, Expr]) -> NameProblem:
        written = ".".join(parts)
        names = [name for source in self.ranges for name, _ in source.columns]
        if len(parts) > 1:
            source_names = [source.alias for source in self.ranges]
            hint = did_you_mean(parts[0], source_names) or did_you_mean(parts[-1], names)
            return NameProblem(f"unknown column {quoted(written)}", hint)
        if self.window is None and parts[0].lower() in _BOUNDS:
            return NameProblem(f"unknown column {quoted(written)}", "the SELECT has no WINDOW whose bound it could be")
        return NameProblem(f"unknown column {quoted(written)}", did_you_mean(parts[0], (*names, *aliases)))

    @staticmethod
    def _unknown_in(source: Range, parts: Sequence[str]) -> NameProblem:
        names = [name for name, _ in source.columns]
        hint = did_you_mean(parts[1], names)
        return NameProblem(f"unknown column {quoted(parts[1])} of {quoted(source.alias)}", hint, 1)


def parts_of(column: exp.Column) -> list[exp.Identifier]:
    """The parts of a dotted name, the outermost first."""
    return [part for part in column.parts if isinstance(part, exp.Identifier)]
