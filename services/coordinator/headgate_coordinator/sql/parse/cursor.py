"""Reads the tokens of one statement from left to right, and says precisely what was expected where."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot.tokenizer_core import Token, TokenType

from headgate_common.durations import duration, parse_duration
from headgate_common.errors import HeadgateError, Reason
from headgate_coordinator.errors import INVALID_NAME
from headgate_coordinator.sql import names
from headgate_coordinator.sql.errors import SourceText, StatementError, Step, did_you_mean, one_of, quoted
from headgate_coordinator.sql.limits import StatementLimits

_LITERALS = (TokenType.STRING, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.RAW_STRING, TokenType.HEX_STRING)


class Cursor:
    """A place in the tokens of one statement. `expect...` and `take...` raise `StatementError` and do not come back."""

    def __init__(self, tokens: list[Token], source: SourceText, limits: StatementLimits) -> None:
        self.tokens = tokens
        self.source = source
        self.limits = limits
        self.index = 0

    @property
    def current(self) -> Token | None:
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    @property
    def offset(self) -> int:
        """Where the current token begins, or the statement ends."""
        if self.index < len(self.tokens):
            return self.tokens[self.index].start
        return self.tokens[-1].end + 1 if self.tokens else 0

    @property
    def done(self) -> bool:
        return self.index >= len(self.tokens)

    def word(self, ahead: int = 0) -> str:
        """The word or sign at hand in capitals; empty for literals, quoted names and at the end."""
        index = self.index + ahead
        if index >= len(self.tokens) or self.tokens[index].token_type in _LITERALS:
            return ""
        return self.tokens[index].text.upper()

    def at(self, *words: str) -> bool:
        return all(self.word(ahead) == word for ahead, word in enumerate(words))

    def accept(self, *words: str) -> bool:
        """Steps over these words if they are at hand."""
        if not self.at(*words):
            return False
        self.index += len(words)
        return True

    def accept_any(self, words: Iterable[str]) -> str:
        """Steps over one of these words and answers it; empty if none is at hand."""
        word = self.word()
        if word and word in words:
            self.index += 1
            return word
        return ""

    def expect(self, *words: str, where: str = "") -> None:
        for word in words:
            if not self.accept(word):
                raise self.expected(f"`{word}`" + (f" {where}" if where else ""), [word])

    def expect_end(self, candidates: Iterable[str] = ()) -> None:
        if not self.done:
            raise self.refusal(f"unexpected {self.found()}", suggestion=did_you_mean(self.word(), candidates))

    def found(self) -> str:
        token = self.current
        return quoted(self.source.shown(token.start, token.end + 1)) if token else "the end of the statement"

    def refusal(
        self, message: str, offset: int | None = None, suggestion: str = "", reason: Reason | None = None
    ) -> StatementError:
        """The error for a problem at the current token, or at `offset`."""
        at = self.offset if offset is None else offset
        return StatementError([self.source.problem(Step.PARSE, at, message, suggestion, reason)], self.source)

    def expected(self, what: str, candidates: Iterable[str] = ()) -> StatementError:
        """The error for a token that is not what it should be."""
        return self.refusal(f"expected {what}, found {self.found()}", suggestion=did_you_mean(self.word(), candidates))

    def take_name(self, what: str) -> str:
        """A name of a resource, quoted or not, folded. Dashes within it need no quotes here."""
        token = self.current
        if token is None or not (token.token_type is TokenType.IDENTIFIER or self._goes_on(token)):
            raise self.expected(f"the name of the {what}")
        self.index += 1
        if token.token_type is TokenType.IDENTIFIER:
            return self.fold(token.text, what, token.start)
        end = token.end
        while (following := self.current) is not None and following.start == end + 1 and self._goes_on(following):
            end = following.end
            self.index += 1
        return self.fold(self.source.text[token.start : end + 1], what, token.start)

    def take_topic(self) -> str:
        """The name of a topic by Kafka's rule, quoted or not, case kept. Dots and dashes need no quotes here."""
        token = self.current
        if token is None or not (token.token_type is TokenType.IDENTIFIER or self._goes_on(token, ".")):
            raise self.expected("the name of the topic")
        self.index += 1
        name, end = token.text, token.end
        if token.token_type is not TokenType.IDENTIFIER:
            while (next_ := self.current) is not None and next_.start == end + 1 and self._goes_on(next_, "."):
                end = next_.end
                self.index += 1
            name = self.source.text[token.start : end + 1]
        fault = names.topic_fault(name)
        if fault:
            raise self.refusal(f"{name[:60]!a} names no topic: {fault}", token.start, reason=INVALID_NAME)
        return name

    @staticmethod
    def _goes_on(token: Token, also: str = "") -> bool:
        if token.token_type in (TokenType.STRING, TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.IDENTIFIER):
            return False
        text = token.text.replace("_", "a")
        return token.token_type is TokenType.DASH or (text.replace(also, "a") if also else text).isalnum()

    def fold(self, name: str, what: str, offset: int) -> str:
        try:
            return names.fold(name, f"name of the {what}")
        except HeadgateError as error:
            raise self.refusal(error.message, offset, reason=error.reason) from None

    def take_string(self, what: str) -> str:
        token = self.current
        if token is None or token.token_type not in (TokenType.STRING, TokenType.RAW_STRING):
            raise self.expected(f"{what} in single quotes")
        self.index += 1
        return token.text

    def take_integer(self, what: str, least: int, most: int) -> int:
        token = self.current
        if token is None or token.token_type is not TokenType.NUMBER or not token.text.isdigit():
            raise self.expected(f"{what}, a whole number")
        if len(token.text) > 18 or not least <= int(token.text) <= most:
            raise self.refusal(f"{what} is from {least:,} to {most:,}, not {token.text[:30]}")
        self.index += 1
        return int(token.text)

    def take_duration(self) -> int:
        """Microseconds of `30 SEC`, `30s` or `'30 seconds'`."""
        token = self.current
        try:
            if token is not None and token.token_type is TokenType.STRING:
                self.index += 1
                return parse_duration(token.text)
            if token is not None and token.token_type is TokenType.NUMBER:
                self.index += 1
                self.accept("::")
                unit = self.current
                if unit is None or not unit.text.isalpha():
                    raise self.expected("a unit of time such as SEC")
                self.index += 1
                return duration(token.text, unit.text)
        except ValueError as error:
            raise self.refusal(str(error), token.start if token else None) from None
        raise self.expected("a duration such as 30 SEC")

    def take_word_of(self, words: Iterable[str], what: str) -> str:
        """One of some words, in capitals."""
        listed = list(words)
        word = self.accept_any(listed)
        if not word:
            raise self.refusal(
                f"expected {what}, found {self.found()}",
                suggestion=did_you_mean(self.word(), listed) or f"write {one_of(listed)}",
            )
        return word

    def rest(self) -> list[Token]:
        """The tokens from here on; the cursor is then at the end."""
        tokens = self.tokens[self.index :]
        self.index = len(self.tokens)
        return tokens

    def text_between(self, start: int, end: int) -> str:
        return self.source.text[start:end]
