"""An option of a source, parser or sink: its name, what it may be, and how a value is read and normalised."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headgate_common.durations import parse_duration, show_duration
from headgate_coordinator.sql.errors import did_you_mean, one_of, quoted

REDACTED = "[redacted]"


class OptionType(StrEnum):
    """What the value of an option is."""

    TEXT = "text"
    INTEGER = "whole number"
    NUMBER = "number"
    BOOL = "true or false"
    DURATION = "duration"
    CHOICE = "one of"


@dataclass(frozen=True, slots=True)
class Option:
    """One option. `default` is in normal form; None means that there is none.

    A value is stored in normal form: choices as declared, booleans as `true` or `false`, durations as `5 s`. `check`
    adds a rule of its own: it answers what is wrong, or an empty string. A `pattern` option stands for all names that
    begin with its own and a dot, such as `field.speed`.
    """

    name: str
    type: OptionType
    meaning: str
    default: str | None = None
    required: bool = False
    secret: bool = False
    synonyms: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    max_length: int = 4096
    min_length: int = 1
    pattern: bool = False
    check: Callable[[str], str] | None = field(default=None, compare=False)
    # Makes the normal form of a text of its own kind; a ValueError says what is wrong.
    convert: Callable[[str], str] | None = field(default=None, compare=False)

    def normal(self, value: str) -> str:
        """The value in normal form; a ValueError says what is wrong with it."""
        if self.secret and value == REDACTED:
            raise ValueError(f"{REDACTED} stands for the secret in answers; give the secret itself")
        normal = self._normal(value)
        if self.convert:
            normal = self.convert(normal)
        fault = self.check(normal) if self.check else ""
        if fault:
            raise ValueError(fault)
        return normal

    def _normal(self, value: str) -> str:
        match self.type:
            case OptionType.TEXT:
                return self._normal_text(value)
            case OptionType.BOOL:
                if value.lower() not in ("true", "false"):
                    raise ValueError(f"expected true or false, not {quoted(value)}")
                return value.lower()
            case OptionType.CHOICE:
                by_folded = {choice.lower(): choice for choice in self.choices}
                if value.lower() not in by_folded:
                    suggestion = did_you_mean(value, self.choices) or f"expected {one_of(self.choices)}"
                    raise ValueError(f"there is no {quoted(value)}: {suggestion}")
                return by_folded[value.lower()]
            case OptionType.DURATION:
                microseconds = parse_duration(value)
                self._check_range(microseconds, show_duration)
                return show_duration(microseconds)
            case OptionType.INTEGER:
                digits = value.strip()
                if len(digits) > 20 or not digits.lstrip("-").isascii() or not digits.removeprefix("-").isdigit():
                    raise ValueError(f"expected a whole number, not {quoted(value)}")
                self._check_range(int(digits), str)
                return str(int(digits))
            case OptionType.NUMBER:
                try:
                    number = float(value) if len(value) <= 64 else float("nan")
                except ValueError:
                    number = float("nan")
                if not math.isfinite(number):
                    raise ValueError(f"expected a number, not {quoted(value)}")
                self._check_range(number, str)
                return repr(number)

    def _normal_text(self, value: str) -> str:
        if not self.min_length <= len(value) <= self.max_length:
            if not value:
                raise ValueError("it is empty")
            raise ValueError(f"it has from {self.min_length} to {self.max_length:,} characters, not {len(value):,}")
        if "\0" in value:
            raise ValueError("it has a NUL character in it")
        return value

    def _check_range(self, value: float, show: Callable[[Any], str]) -> None:
        low, high = self.low, self.high
        if (low is not None and value < low) or (high is not None and value > high):
            bounds = f"at least {show(low)}" if high is None else f"from {show(low or 0)} to {show(high)}"
            raise ValueError(f"it is {bounds}, not {show(value)}")

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.synonyms)


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one option, under the name it was given, or should have been given. An option of a query has
    no scope."""

    scope: str
    option: str
    message: str

    def __str__(self) -> str:
        name = f"{self.scope}.{self.option.upper()}" if self.scope else self.option
        return f"{name}: {self.message}"


def check_options(
    scope: str,
    whose: str,
    declared: tuple[Option, ...],
    given: Mapping[str, str],
    elsewhere: Mapping[str, str] | None = None,
) -> tuple[dict[str, str], list[Fault]]:
    """The options in normal form with defaults filled in, and everything that is wrong.

    `scope` is SOURCE, PARSER or SINK; `whose` names the type in messages. `elsewhere` says of names that are not known
    here which scope knows them.
    """
    by_name = {name: option for option in declared for name in option.names}
    patterns = [option for option in declared if option.pattern]
    normal: dict[str, str] = {}
    written: dict[str, str] = {}
    faults: list[Fault] = []
    for key, value in given.items():
        folded = key.lower()
        option = by_name.get(folded)
        name = option.name if option else folded
        if option is None:
            option = next((p for p in patterns if folded.startswith(p.name + ".")), None)
        if option is None or (option.pattern and folded == option.name):
            known = [f"{o.name}.…" if o.pattern else o.name for o in declared]
            suggestion = did_you_mean(folded, by_name) or (f"it has {one_of(known)}" if known else "it has none")
            if elsewhere and folded in elsewhere:
                suggestion = f"write {elsewhere[folded]}.{folded.upper()}"
            faults.append(Fault(scope, folded, f"{whose} has no such option: {suggestion}"))
            continue
        if name in written:
            faults.append(Fault(scope, folded, f"it says the same as {written[name].upper()}, which is given too"))
            continue
        written[name] = folded
        try:
            normal[name] = option.normal(value)
        except ValueError as error:
            faults.append(Fault(scope, folded, str(error)))
    for option in declared:
        if option.pattern or option.name in written:
            continue
        if option.required:
            faults.append(Fault(scope, option.name, f"{whose} needs it: {option.meaning}"))
        elif option.default is not None:
            normal[option.name] = option.default
    return normal, faults
