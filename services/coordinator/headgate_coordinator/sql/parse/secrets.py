"""Finds the values of secret options among tokens, so that no error shows them, whatever else is wrong."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from headgate_coordinator.catalog.descriptors import SINKS, SOURCES

# The last words of their names: `sasl.password` comes as three tokens.
_OPTIONS = [option for source in SOURCES.values() for option in source.options] + [
    option for sink in SINKS.values() for option in sink.options
]
SECRET_NAMES = frozenset(name.rsplit(".", 1)[-1] for option in _OPTIONS if option.secret for name in option.names)


def secret_places(tokens: list[Token]) -> list[tuple[int, int]]:
    """Where the values stand in `'value' AS [SCOPE.]name` and `name = 'value'` of secret options."""
    places: list[tuple[int, int]] = []
    for index, token in enumerate(tokens):
        if token.text.rsplit(".", 1)[-1].lower() not in SECRET_NAMES:
            continue
        if index + 2 < len(tokens) and tokens[index + 1].token_type is TokenType.EQ:
            places.append(_inside(tokens[index + 2]))
        first = index
        while first >= 2 and tokens[first - 1].token_type is TokenType.DOT:
            first -= 2
        if first >= 2 and tokens[first - 1].token_type is TokenType.ALIAS:
            places.append(_inside(tokens[first - 2]))
    return places


def _inside(token: Token) -> tuple[int, int]:
    """A literal without its quotes."""
    quoted = token.token_type in (TokenType.STRING, TokenType.RAW_STRING)
    return (token.start + quoted, token.end + 1 - quoted)
