"""From the text of a type to the type: one parser for columns of SQL and fields of the API."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from headgate_coordinator.sql.errors import did_you_mean, quoted
from headgate_coordinator.sql.types import model
from headgate_coordinator.sql.types.model import DataType, Kind, StructField
from headgate_coordinator.sql.types.table import TYPES

MAX_TYPE_TEXT = 65_536
MAX_TYPE_DEPTH = 32

_PIECE = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)
      | (?P<word>[^\W\d]\w*)
      | (?P<number>\d+)
      | (?P<quoted>`(?:[^`]|``)*`|"(?:[^"]|"")*")
      | (?P<sign>[<>(),:\[\]])""",
    re.VERBOSE | re.DOTALL,
)

# Names that other systems have, and what says the same here.
_ELSEWHERE = {
    "INT2": "INT16 or SMALLINT",
    "INT4": "INT32 or INT",
    "FLOAT4": "FLOAT32",
    "FLOAT8": "FLOAT64",
    "TIMESTAMP_NTZ": "TIMESTAMP, which is UTC",
    "TIME": "VARCHAR, or INT64 with microseconds of the day",
    "JSON": "VARCHAR, and the JSON functions on it",
    "JSONB": "VARCHAR, and the JSON functions on it",
    "UUID": "VARCHAR",
    "LIST": "ARRAY",
    "NCHAR": "CHAR",
    "NVARCHAR": "VARCHAR",
    "CLOB": "VARCHAR",
    "BLOB": "BINARY",
    "BIT": "BOOL",
    "MONEY": "DECIMAL(19,4)",
    "SERIAL": "INT64",
    "UNSIGNED": "UINT8, UINT16, UINT32 or UINT64",
}


class TypeSyntaxError(ValueError):
    """A text that is no type. `offset` counts from the beginning of the text."""

    def __init__(self, message: str, offset: int, suggestion: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.suggestion = suggestion


@dataclass(frozen=True, slots=True)
class _Piece:
    what: str
    text: str
    offset: int


def _plain_names() -> dict[str, DataType]:
    """Every name that stands alone: canonical names and synonyms of one word."""
    parameters = (Kind.DECIMAL, Kind.CHAR, Kind.VARCHAR, Kind.ARRAY, Kind.MAP, Kind.STRUCT)
    names: dict[str, DataType] = {}
    for row in TYPES.values():
        if row.kind not in parameters:
            for name in (row.kind, *row.synonyms):
                names[name.split(" ")[0]] = DataType(row.kind)
    return names


def _names_of(kind: Kind) -> tuple[str, ...]:
    return (kind, *(name for name in TYPES[kind].synonyms if name.isalpha()))


_PLAIN = _plain_names()
_DECIMALS = _names_of(Kind.DECIMAL)
_TEXTS = _names_of(Kind.VARCHAR)
_CHARS = _names_of(Kind.CHAR)
_STRUCTS = _names_of(Kind.STRUCT)
TYPE_NAMES = frozenset((*_PLAIN, *_DECIMALS, *_TEXTS, *_CHARS, *_STRUCTS, Kind.ARRAY, Kind.MAP))


def parse_type(text: str) -> DataType:
    """The type that a text spells, or `TypeSyntaxError`. Case does not matter; synonyms become the canonical type."""
    if len(text) > MAX_TYPE_TEXT:
        raise TypeSyntaxError(f"a type is at most {MAX_TYPE_TEXT:,} characters long, not {len(text):,}", 0)
    return _TypeParser(_pieces(text), len(text)).parse()


def _pieces(text: str) -> list[_Piece]:
    pieces: list[_Piece] = []
    position = 0
    while position < len(text):
        match = _PIECE.match(text, position)
        if match is None:
            raise TypeSyntaxError(f"{quoted(text[position])} cannot be part of a type", position)
        what = match.lastgroup or ""
        if what != "skip":
            pieces.append(_Piece(what, match.group(), position))
        position = match.end()
    return pieces


class _TypeParser:
    """Recursive descent; the depth is bounded by MAX_TYPE_DEPTH."""

    def __init__(self, pieces: list[_Piece], end: int) -> None:
        self._pieces = pieces
        self._index = 0
        self._end = end
        self._depth = 0

    def parse(self) -> DataType:
        type_ = self._type()
        if self._index < len(self._pieces):
            piece = self._pieces[self._index]
            raise TypeSyntaxError(f"unexpected {quoted(piece.text)} after the type {type_}", piece.offset)
        return type_

    @property
    def _offset(self) -> int:
        return self._pieces[self._index].offset if self._index < len(self._pieces) else self._end

    def _peek(self) -> str:
        """The next sign or word in capitals; empty at the end and for quoted names."""
        if self._index == len(self._pieces) or self._pieces[self._index].what == "quoted":
            return ""
        return self._pieces[self._index].text.upper()

    def _accept(self, *words: str) -> bool:
        saved = self._index
        for word in words:
            if self._peek() != word:
                self._index = saved
                return False
            self._index += 1
        return True

    def _expect(self, sign: str, where: str) -> None:
        if not self._accept(sign):
            found = quoted(self._pieces[self._index].text) if self._index < len(self._pieces) else "the end"
            raise TypeSyntaxError(f"expected `{sign}` {where}, found {found}", self._offset)

    def _type(self) -> DataType:
        self._depth += 1
        if self._depth > MAX_TYPE_DEPTH:
            raise TypeSyntaxError(f"types nest at most {MAX_TYPE_DEPTH} deep", self._offset)
        offset = self._offset
        type_ = self._checked(offset, self._named_type)
        while self._accept("[", "]"):
            type_ = model.array(type_)
        self._depth -= 1
        return type_

    def _checked(self, offset: int, make: Callable[[], DataType]) -> DataType:
        """Turns a refusal of the model into an error with a place."""
        try:
            return make()
        except TypeSyntaxError:
            raise
        except ValueError as error:
            raise TypeSyntaxError(str(error), offset) from None

    def _named_type(self) -> DataType:
        offset = self._offset
        name = self._peek()
        if self._index == len(self._pieces):
            raise TypeSyntaxError("expected a type", offset)
        if name not in TYPE_NAMES:
            self._refuse(name, offset)
        self._index += 1
        if name in _DECIMALS:
            parameters = self._parameters(name, 2)
            return model.decimal(*parameters) if parameters else model.decimal(10, 0)
        if name in _CHARS or name in _TEXTS:
            varying = name in _TEXTS or self._accept("VARYING")
            parameters = self._parameters(name, 1)
            if varying:
                return model.varchar(*parameters)
            return model.char(*(parameters or [1]))
        if name == Kind.ARRAY:
            return model.array(self._wrapped(name, self._type))
        if name == Kind.MAP:
            return self._wrapped(name, self._map)
        if name in _STRUCTS:
            return self._wrapped(name, self._struct)
        return self._plain_type(name)

    def _plain_type(self, name: str) -> DataType:
        type_ = _PLAIN[name]
        if name == "DOUBLE":
            self._accept("PRECISION")
        if type_.kind is Kind.TIMESTAMP:
            offset = self._offset
            if self._accept("WITHOUT"):
                raise TypeSyntaxError("a TIMESTAMP is an instant in UTC", offset, "write TIMESTAMP")
            if self._accept("WITH") and not (self._accept("TIME", "ZONE") or self._accept("LOCAL", "TIME", "ZONE")):
                raise TypeSyntaxError("expected TIME ZONE after TIMESTAMP WITH", self._offset)
        if self._peek() == "(":
            suggestion = "microseconds are always kept" if type_.kind is Kind.TIMESTAMP else ""
            raise TypeSyntaxError(f"{type_} takes no parameters", self._offset, suggestion)
        return type_

    def _refuse(self, name: str, offset: int) -> None:
        text = self._pieces[self._index].text
        elsewhere = _ELSEWHERE.get(name)
        suggestion = f"write {elsewhere}" if elsewhere else did_you_mean(text, TYPE_NAMES)
        raise TypeSyntaxError(f"there is no type {quoted(text)}", offset, suggestion)

    def _parameters(self, name: str, most: int) -> list[int]:
        if not self._accept("("):
            return []
        numbers: list[int] = []
        while True:
            offset = self._offset
            if self._index == len(self._pieces) or self._pieces[self._index].what != "number":
                raise TypeSyntaxError(f"expected a whole number as parameter of {name}", offset)
            digits = self._pieces[self._index].text
            if len(digits) > 9:
                raise TypeSyntaxError(f"{quoted(digits)} is too large a parameter of {name}", offset)
            numbers.append(int(digits))
            self._index += 1
            if not self._accept(","):
                break
            if len(numbers) == most:
                raise TypeSyntaxError(f"{name} takes at most {most} parameter{'s' if most > 1 else ''}", self._offset)
        self._expect(")", f"after the parameters of {name}")
        if 0 in numbers[:1]:
            raise TypeSyntaxError(f"the first parameter of {name} is at least 1", offset)
        return numbers

    def _wrapped(self, name: str, inner: Callable[[], DataType]) -> DataType:
        closing = {"<": ">", "(": ")"}.get(self._peek())
        if closing is None:
            raise TypeSyntaxError(f"expected `<` after {name}", self._offset)
        self._index += 1
        type_ = inner()
        self._expect(closing, f"to close {name}")
        return type_

    def _map(self) -> DataType:
        key = self._type()
        self._expect(",", "between key and value of MAP")
        return model.map_of(key, self._type())

    def _struct(self) -> DataType:
        fields = [self._field()]
        while self._accept(","):
            fields.append(self._field())
        return model.struct(*fields)

    def _field(self) -> StructField:
        piece = self._pieces[self._index] if self._index < len(self._pieces) else None
        if piece is None or piece.what not in ("word", "quoted"):
            raise TypeSyntaxError("expected the name of a field of the STRUCT", self._offset)
        self._index += 1
        name = piece.text
        if piece.what == "quoted":
            mark = name[0]
            name = name[1:-1].replace(mark * 2, mark)
        if not name or not name.isprintable():
            raise TypeSyntaxError("the name of a field is empty or has a control character", piece.offset)
        self._accept(":")
        type_ = self._type()
        not_null = self._accept("NOT", "NULL")
        if not not_null:
            self._accept("NULL")
        return StructField(name, type_, not_null)
