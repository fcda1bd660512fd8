"""Types of columns in the canonical spelling, which is all that plans carry (docs/sql/types.md).

The coordinator reads what people write, synonyms and all, and spells it canonically; agents and engines read that one
spelling and nothing else, with `read_type`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# Types without parameters.
PLAIN = frozenset(
    (
        "BOOL",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "FLOAT32",
        "FLOAT64",
        "BINARY",
        "DATE",
        "TIMESTAMP",
    )
)
_PIECE = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*)|(?P<number>\d+)|(?P<quoted>`(?:[^`]|``)*`)|(?P<sign>[<>(),:]))"
)
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class StructField:
    """A field of a STRUCT."""

    name: str
    type: ColumnType
    not_null: bool = False


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type: its family, and the parameters that the family has."""

    kind: str
    # DECIMAL
    precision: int = 0
    scale: int = 0
    # CHAR(n) and VARCHAR(n); 0 for any length
    length: int = 0
    # ARRAY; the values of a MAP
    element: ColumnType | None = None
    # MAP
    key: ColumnType | None = None
    # STRUCT
    fields: tuple[StructField, ...] = ()

    @property
    def is_text(self) -> bool:
        return self.kind in ("VARCHAR", "CHAR")

    @property
    def is_float(self) -> bool:
        return self.kind in ("FLOAT32", "FLOAT64")

    @property
    def is_integer(self) -> bool:
        return self.kind.startswith(("INT", "UINT"))

    @property
    def is_nested(self) -> bool:
        return self.kind in ("ARRAY", "MAP", "STRUCT")


def read_type(text: str) -> ColumnType:
    """The type of a canonical spelling; a ValueError for anything else."""
    return _Reader(text).read()


class _Reader:
    """Recursive descent over the canonical spelling; the depth is bounded."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def read(self) -> ColumnType:
        type_ = self._type()
        if self._text[self._at :].strip():
            raise self._wrong()
        return type_

    def _wrong(self) -> ValueError:
        return ValueError(f"not a type in canonical spelling: {self._text[:200]!r} at {self._at}")

    def _next(self, group: str) -> str | None:
        match = _PIECE.match(self._text, self._at)
        if match is None or match.lastgroup != group:
            return None
        self._at = match.end()
        return match.group(group)

    def _sign(self, sign: str) -> bool:
        saved = self._at
        if self._next("sign") == sign:
            return True
        self._at = saved
        return False

    def _expect(self, sign: str) -> None:
        if not self._sign(sign):
            raise self._wrong()

    def _number(self) -> int:
        digits = self._next("number")
        if digits is None:
            raise self._wrong()
        return int(digits)

    def _type(self) -> ColumnType:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("a type that nests too deeply")
        kind = self._next("word")
        type_ = self._of(kind)
        self._depth -= 1
        return type_

    def _of(self, kind: str | None) -> ColumnType:
        match kind:
            case "DECIMAL":
                self._expect("(")
                precision = self._number()
                self._expect(",")
                scale = self._number()
                self._expect(")")
                return ColumnType("DECIMAL", precision=precision, scale=scale)
            case "VARCHAR" | "CHAR":
                if not self._sign("("):
                    return ColumnType(kind)
                length = self._number()
                self._expect(")")
                return ColumnType(kind, length=length)
            case "ARRAY":
                self._expect("<")
                element = self._type()
                self._expect(">")
                return ColumnType("ARRAY", element=element)
            case "MAP":
                self._expect("<")
                key = self._type()
                self._expect(",")
                element = self._type()
                self._expect(">")
                return ColumnType("MAP", key=key, element=element)
            case "STRUCT":
                return self._struct()
            case str() if kind in PLAIN:
                return ColumnType(kind)
            case _:
                raise self._wrong()

    def _struct(self) -> ColumnType:
        self._expect("<")
        fields = [self._field()]
        while self._sign(","):
            fields.append(self._field())
        self._expect(">")
        return ColumnType("STRUCT", fields=tuple(fields))

    def _field(self) -> StructField:
        name = self._next("word")
        if name is None:
            quoted = self._next("quoted")
            if quoted is None:
                raise self._wrong()
            name = quoted[1:-1].replace("``", "`")
        self._expect(":")
        type_ = self._type()
        saved = self._at
        if self._next("word") == "NOT" and self._next("word") == "NULL":
            return StructField(name, type_, not_null=True)
        self._at = saved
        return StructField(name, type_)
