"""Lists of options: `SET(value AS key, ...)` and `WITH (key = value, ...)`. Both say the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot.tokenizer_core import TokenType

from headgate_coordinator.catalog.descriptors import Fault
from headgate_coordinator.errors import INVALID_CONFIG
from headgate_coordinator.sql.errors import StatementError, Step, quoted
from headgate_coordinator.sql.parse.cursor import Cursor

MAX_OPTION = 65_536
SCOPES = ("SOURCE", "PARSER", "SINK")


@dataclass(frozen=True, slots=True)
class Option:
    """One option: the words before its name (`SOURCE`.), its name in lower case, its value as text, and where."""

    scope: str
    key: str
    value: str
    offset: int


def take_options(cursor: Cursor) -> list[Option]:
    """The options at hand, if any: several lists are read as one. A key that comes twice is refused."""
    options: list[Option] = []
    while True:
        if cursor.at("SET", "("):
            cursor.index += 2
            options += _items(cursor, _set_item)
        elif cursor.at("WITH", "("):
            cursor.index += 2
            options += _items(cursor, _with_item)
        else:
            break
    refuse_twice(cursor, options)
    return options


def take_settings(cursor: Cursor) -> list[Option]:
    """`(key = value, ...)` or `(value AS key, ...)`."""
    cursor.expect("(")
    return _items(cursor, _either_item)


def take_names(cursor: Cursor) -> list[Option]:
    """`(key, ...)`: options without a value."""
    cursor.expect("(")
    return _items(cursor, _name_item)


def refuse_twice(cursor: Cursor, options: Sequence[Option]) -> None:
    seen: set[tuple[str, str]] = set()
    for option in options:
        if (option.scope, option.key) in seen:
            raise cursor.refusal(f"the option {quoted(option.key)} comes twice", option.offset)
        seen.add((option.scope, option.key))


def refuse_faults(cursor: Cursor, faults: Sequence[Fault], options: Sequence[Option], otherwise: int) -> None:
    """All faults of options at once, each where it was written."""
    offsets = {(option.scope == "PARSER", option.key): option.offset for option in options}
    problems = [
        cursor.source.problem(
            Step.PARSE,
            offsets.get((fault.scope == "PARSER", fault.option), otherwise),
            str(fault),
            reason=INVALID_CONFIG,
        )
        for fault in faults
    ]
    if problems:
        raise StatementError(problems, cursor.source)


def _items(cursor: Cursor, item: Callable[[Cursor], Option]) -> list[Option]:
    options: list[Option] = []
    while not cursor.accept(")"):
        options.append(item(cursor))
        if not cursor.accept(","):
            cursor.expect(")", where="or `,` after an option")
            break
    return options


def _set_item(cursor: Cursor) -> Option:
    value = take_value(cursor)
    cursor.expect("AS", where="between the value and the name of an option")
    offset = cursor.offset
    scope, key = _key(cursor)
    return Option(scope, key, value, offset)


def _with_item(cursor: Cursor) -> Option:
    offset = cursor.offset
    scope, key = _key(cursor)
    cursor.expect("=", where="after the name of an option")
    return Option(scope, key, take_value(cursor), offset)


def _either_item(cursor: Cursor) -> Option:
    start = cursor.index
    try:
        take_value(cursor)
        says_as = cursor.at("AS")
    except StatementError:
        # No value stands here, so a name should.
        says_as = False
    cursor.index = start
    return _set_item(cursor) if says_as else _with_item(cursor)


def _name_item(cursor: Cursor) -> Option:
    offset = cursor.offset
    scope, key = _key(cursor)
    return Option(scope, key, "", offset)


def _key(cursor: Cursor) -> tuple[str, str]:
    """`name`, `SCOPE.name` or `'scope.name'`; quotes and case do not matter. The name itself may have dots."""
    parts = [_key_part(cursor)]
    while cursor.accept("."):
        parts.append(_key_part(cursor))
    scope, dot, key = ".".join(parts).partition(".")
    return (scope.upper(), key) if dot and scope.upper() in SCOPES else ("", ".".join(parts))


def _key_part(cursor: Cursor) -> str:
    token = cursor.current
    if token is None or not (
        token.token_type in (TokenType.IDENTIFIER, TokenType.STRING) or token.text.replace("_", "a").isalnum()
    ):
        raise cursor.expected("the name of an option")
    if len(token.text) > 128 or not token.text.isprintable():
        raise cursor.refusal("the name of an option is at most 128 printable characters long")
    cursor.index += 1
    return token.text.lower()


def take_value(cursor: Cursor) -> str:
    """A string, number, TRUE, FALSE, a bare word, or a duration such as `5 SEC`, as text."""
    token = cursor.current
    if token is None:
        raise cursor.expected("the value of an option")
    if token.token_type in (TokenType.STRING, TokenType.RAW_STRING):
        cursor.index += 1
        if "\0" in token.text or len(token.text) > MAX_OPTION:
            raise cursor.refusal(f"a value is at most {MAX_OPTION:,} characters long and has no NUL in it", token.start)
        return token.text
    sign = "-" if cursor.accept("-") else ""
    token = cursor.current
    if token is not None and token.token_type is TokenType.NUMBER:
        cursor.index += 1
        cursor.accept("::")
        unit = cursor.word()
        if unit.isalpha() and unit != "AS":
            cursor.index += 1
            return f"{sign}{token.text} {unit.lower()}"
        return sign + token.text
    if token is None or sign or not token.text.replace("_", "a").isalnum():
        raise cursor.expected("the value of an option")
    cursor.index += 1
    return token.text.lower() if token.text.upper() in ("TRUE", "FALSE") else token.text
