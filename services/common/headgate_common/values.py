"""How settings are written: the kinds of value a configuration field may have, how each is read and shown.

A kind reads what TOML gives (already typed) and what the environment and flags give (text) alike, and raises
`ValueError` for anything else: nothing is guessed, nothing is rounded. `Seconds` and `Bytes` are plain `float` and
`int` to the code that uses them; the annotation only says how people write them.
"""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from headgate_common.redact import redact_field

_DURATION = "duration"
_SIZE = "size"

Seconds = Annotated[float, _DURATION]
Bytes = Annotated[int, _SIZE]

_UNITS_OF_TIME = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_UNITS_OF_SIZE = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)")
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_NOTHING = {"", "none"}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value. `read` raises ValueError; `expected` finishes the sentence "expected ..."."""

    name: str
    expected: str
    read: Callable[[Any], Any]
    show: Callable[[Any], str]
    # Set for a table of free keys, whose values have this kind.
    values: Kind | None = None


def kind_of(hint: Any) -> Kind:
    """The kind of a field's type; a type that no kind reads is a programming error."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        unit = arguments[1]
        if unit in _ANNOTATED:
            return _ANNOTATED[unit]
    elif origin in (Union, types.UnionType):
        present = [a for a in arguments if a is not type(None)]
        if len(present) == 1 and len(arguments) == 2:
            return _optional(kind_of(present[0]))
    elif origin is Literal:
        return _choice(arguments)
    elif origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _list(kind_of(arguments[0]))
    elif origin is Mapping and arguments[0] is str:
        return _table(kind_of(arguments[1]))
    elif hint in _PLAIN:
        return _PLAIN[hint]
    raise TypeError(f"a setting cannot have the type {hint}")


def read_duration(raw: Any) -> float:
    """`250ms`, `1.5s`, `24h`; a bare number is seconds."""
    return _quantity(raw, _UNITS_OF_TIME, "s")


def read_size(raw: Any) -> int:
    """`64MiB`, `10MB`; a bare number is bytes."""
    size = _quantity(raw, _UNITS_OF_SIZE, "B")
    if size != int(size):
        raise ValueError
    return int(size)


def show_duration(seconds: float) -> str:
    """The shortest way to write it, to the microsecond: 0.25 -> 250ms, 86400 -> 24h, 1.5 -> 1.5s."""
    if not math.isfinite(seconds):
        return str(seconds)
    whole = round(seconds * 1_000_000)
    if whole == 0:
        return "0s"
    for unit, factor in (("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000)):
        if whole % factor == 0:
            return f"{whole // factor}{unit}"
    if whole < 1_000_000:
        return f"{whole // 1000}ms" if whole % 1000 == 0 else f"{whole}us"
    return f"{Decimal(whole) / 1_000_000:f}".rstrip("0") + "s"


def show_size(size: int) -> str:
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _UNITS_OF_SIZE[unit] == 0:
            return f"{size // _UNITS_OF_SIZE[unit]}{unit}"
    return f"{size}B"


def _quantity(raw: Any, units: Mapping[str, float], default: str) -> float:
    if isinstance(raw, bool):
        raise ValueError
    if isinstance(raw, int | float):
        number, unit = float(raw), default
    else:
        match = _QUANTITY.fullmatch(_text(raw).strip())
        if match is None:
            raise ValueError
        number, unit = float(match[1]), match[2] or default
    if unit not in units or not math.isfinite(number) or number < 0:
        raise ValueError
    # Multiplying by a reciprocal would turn 250ms into 0.25000000000000006 for some numbers; dividing does not.
    factor = units[unit]
    return number * factor if factor >= 1 else number / round(1 / factor)


def _text(raw: Any) -> str:
    if not isinstance(raw, str):
        raise ValueError
    return raw


def _read_bool(raw: Any) -> bool:
    if isinstance(raw, bool):
        return raw
    word = _text(raw).strip().lower()
    if word not in _WORDS:
        raise ValueError
    return _WORDS[word]


def _read_int(raw: Any) -> int:
    if isinstance(raw, bool):
        raise ValueError
    return raw if isinstance(raw, int) else int(_text(raw).replace("_", ""))


def _read_float(raw: Any) -> float:
    if isinstance(raw, bool):
        raise ValueError
    number = float(raw if isinstance(raw, int | float) else _text(raw))
    if not math.isfinite(number):
        raise ValueError
    return number


def _show_bool(value: bool) -> str:
    return "true" if value else "false"


def _read_path(raw: Any) -> Path:
    text = raw if isinstance(raw, Path) else _text(raw)
    if str(text) == "":
        raise ValueError
    return Path(text).expanduser()


_PLAIN: dict[Any, Kind] = {
    bool: Kind("true or false", "true or false", _read_bool, _show_bool),
    int: Kind("integer", "a whole number", _read_int, str),
    float: Kind("number", "a number", _read_float, lambda value: f"{value:g}"),
    str: Kind("text", "text", _text, str),
    Path: Kind("path", "a path", _read_path, str),
}
_ANNOTATED = {
    _DURATION: Kind("duration", "a duration such as 250ms, 6s or 24h", read_duration, show_duration),
    _SIZE: Kind("size", "a size such as 512KiB, 64MiB or 2GiB", read_size, show_size),
}


def _optional(inner: Kind) -> Kind:
    def read(raw: Any) -> Any:
        if raw is None or (isinstance(raw, str) and raw.strip().lower() in _NOTHING):
            return None
        return inner.read(raw)

    return Kind(inner.name, f"{inner.expected}, or none", read, lambda v: "none" if v is None else inner.show(v))


def _choice(words: tuple[Any, ...]) -> Kind:
    def read(raw: Any) -> Any:
        if _text(raw) not in words:
            raise ValueError
        return raw

    listed = ", ".join(words[:-1]) + f" or {words[-1]}" if len(words) > 1 else str(words[0])
    return Kind(" | ".join(words), f"one of {listed}", read, str)


def _list(item: Kind) -> Kind:
    def read(raw: Any) -> tuple[Any, ...]:
        if isinstance(raw, list | tuple):
            return tuple(item.read(one) for one in raw)
        return tuple(item.read(one.strip()) for one in _text(raw).split(",") if one.strip())

    return Kind(
        f"list of {item.name}",
        f"a list, each {item.expected} (a,b,c)",
        read,
        lambda value: ",".join(item.show(one) for one in value),
    )


def _table(item: Kind) -> Kind:
    def read(raw: Any) -> Mapping[str, Any]:
        if not isinstance(raw, Mapping):
            raise ValueError
        return {str(key): item.read(value) for key, value in raw.items()}

    return Kind(
        f"table of {item.name}",
        f"a table, each value {item.expected} (KEY.name=value)",
        read,
        # A table of free keys may hold the one or other secret.
        lambda value: ",".join(f"{key}={redact_field(key, item.show(one))}" for key, one in sorted(value.items())),
        values=item,
    )
