"""What sqlglot's parser lets pass in silence and this dialect refuses.

sqlglot reads the SQL of many systems and forgives a lot: a missing bracket, comma or AND, an empty list. A statement
that is read otherwise than it was written is worse than one that is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

if TYPE_CHECKING:
    from sqlglot.parser import Parser as _Base
else:
    _Base = object

T = TypeVar("T")


def closed(parse: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A parser of a function's arguments after which the closing bracket must follow."""

    def strict(parser: Any) -> Any:
        parsed = parse(parser)
        if not parser._match(TokenType.R_PAREN, advance=False):
            parser.raise_error("Expecting )")
        return parsed

    return strict


class StrictSyntax(_Base):
    """Mixed into the parser before sqlglot's own."""

    # `JOIN t` without a condition stays without one.
    ADD_JOIN_ON_TRUE = False
    # Statements have no parameters: `?`, `:a`, `@a`, `$1` and `{a}` mean nothing.
    PLACEHOLDER_PARSERS: ClassVar[dict[TokenType, Callable[..., Any]]] = {}

    def _parse_csv(self, parse_method: Callable[[], T | None], sep: TokenType = TokenType.COMMA) -> list[T]:
        first = parse_method()
        if first is None and not self._match(sep, advance=False):
            return []
        items = [self._present(first)]
        while self._match(sep):
            items.append(self._present(parse_method()))
        return items

    def _present(self, item: T | None) -> T:
        if item is None:
            self.raise_error("Required argument")
        assert item is not None
        return item

    def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
        projections, exclude = super()._parse_projections()
        if not projections:
            self.raise_error("Required argument")
        return projections, exclude

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        low = self._parse_bitwise()
        if not self._match(TokenType.AND):
            self.raise_error("Expecting AND")
        return self.expression(exp.Between(this=this, low=low, high=self._parse_bitwise()))

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        parsed = super()._parse_in(this, alias)
        if not any(parsed.args.get(key) for key in ("expressions", "query", "unnest", "field")):
            self.raise_error("IN needs at least one value", self._prev)
        return parsed

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        group = super()._parse_group(skip_group_by_token)
        if group is not None and not any(group.args.values()):
            self.raise_error("Required argument")
        return group

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        parsed = super()._parse_bracket(this)
        # sqlglot steps over a star after the name of a table.
        if isinstance(this, exp.Table) and self._match(TokenType.STAR, advance=False):
            self.raise_error("Invalid expression / Unexpected token")
        return parsed

    def _parse_string_as_identifier(self) -> exp.Identifier | None:
        return None

    def check_join(self, join: exp.Join) -> None:
        """Refuses `ON` without a condition and `USING ()`."""
        if self._prev.token_type is TokenType.ON or join.args.get("using") == []:
            self.raise_error("Required argument")
