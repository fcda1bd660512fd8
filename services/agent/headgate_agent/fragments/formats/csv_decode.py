"""Rows from CSV.

Whole blocks go through pyarrow's CSV reader. Of a block that it refuses, the records that may be to blame are looked
for column by column, and left out; where that does not help, it is halved until they stand alone. Those records are
split exactly and judged one by one. Values mean the same on every way, because every way ends in the same reader: what
`splitting` has split is written again in one canonical dialect.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from headgate_agent.errors import SOURCE_MISMATCH
from headgate_agent.fragments.formats import suspects
from headgate_agent.fragments.formats.rows import (
    Data,
    Decoded,
    RowFault,
    assemble,
    broken_rule,
    one_array,
    shown,
    type_name,
)
from headgate_agent.fragments.formats.splitting import BYTE_ORDER_MARK, Dialect, Record, Splitter
from headgate_agent.fragments.types import UTC_MICROS, Column, arrow_schema
from headgate_common.errors import HeadgateError

_ZONE = re.compile(rb"(?:[Zz]|[+-]\d\d(?::?\d\d)?)\s*\Z")
_TIME = re.compile(rb"\s*\d{4}-\d\d-\d\d")
_DAY = re.compile(rb"\s*\d{4}-\d\d-\d\d\s*\Z")
# Where pyarrow's messages say which row it is. Only a hint: what it points at is judged like any other record.
_ROW = re.compile(r"Row #(\d+)")
_COLUMN = re.compile(r"In CSV column #(\d+)")
_SHAPE = re.compile(r"Expected \d+ columns, got \d+")
# Below so many records the hint is followed; above, halving finds more of them at once.
_SOME = 1_024
# What a text of a type looks like at least: everything that the reader takes matches.
_WHOLE = re.compile(rb"\s*[-+]?[0-9a-fA-FxX]+\s*\Z")
_NUMBER = re.compile(rb"[\s0-9eE.+-]+\Z")
_LIKELY = {
    **{f"{sign}INT{bits}": _WHOLE for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "DECIMAL": _NUMBER,
    "BOOL": re.compile(rb"\s*(?:true|false|0|1)\s*\Z", re.IGNORECASE),
    "DATE": _TIME,
    "TIMESTAMP": _TIME,
}
# Below so many records, halving costs more than judging each.
_FEW = 3
# What one thread reads of a block: one that is larger is read by several. Blocks are decoded in parallel as they are.
_SHARE = 4 * 2**20
# Where more than one record in so many is suspected (and some more), all are judged.
_ONE_IN = 4
# How often a block may be refused before the rest of it is judged record by record.
_PATIENCE = 100
_CANONICAL = Dialect(b",", b"\n", b'"')
_UNIT = b"\x1f"


class _Refused(Exception):
    """A block in which some record is malformed; `row` is which one it may be, from 1 on, or 0 for any. `rows` are all
    that may be, from 0 on, where that is known; `column` is the place of the column that has them; `shape`: records
    have too many values or too few."""

    def __init__(
        self, row: int = 0, *, column: int | None = None, rows: suspects.Rows = suspects.NOBODY, shape: bool = False
    ) -> None:
        super().__init__()
        self.row = row
        self.column = column
        self.rows = rows
        self.shape = shape


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """What the parser's options say."""

    dialect: Dialect
    null: str
    header: bool

    @classmethod
    def read(cls, options: Mapping[str, str]) -> CsvOptions:
        return cls(
            Dialect(
                options.get("field_delimiter", ",").encode(),
                options.get("tuple_delimiter", "\n").encode(),
                options.get("quote", '"').encode(),
            ),
            options.get("null_string", ""),
            options.get("header") == "true",
        )


class CsvDecoder:
    """A `Decoder` of CSV. `order` names the column of each value of a record; None for a value that no column wants."""

    def __init__(
        self, columns: Sequence[Column], options: CsvOptions, order: Sequence[str | None] | None = None
    ) -> None:
        self._columns = tuple(columns)
        self._options = options
        self._order = tuple(order) if order is not None else tuple(column.name for column in columns)
        self._has_order = order is not None
        self._splitter = Splitter(options.dialect)
        self._null = options.null.encode()
        self._by_name = {column.name: column for column in columns}
        self._times = tuple(column.name for column in columns if column.type.kind == "TIMESTAMP")
        # Which TIMESTAMP columns were last seen with a zone: pyarrow reads a column either way, but not mixed.
        self._zoned: frozenset[str] = frozenset(self._times)

    @property
    def wants_header(self) -> bool:
        return self._options.header and not self._has_order

    def with_header(self, record: bytes) -> CsvDecoder:
        """The decoder for the records below a header. SOURCE_MISMATCH where its names do not fit the columns."""
        found = next(self._splitter.records(record, final=True), None)
        names = [value.decode(errors="replace").lstrip("\ufeff").strip() for value, _ in found.values] if found else []
        folded = {column.name.lower(): column for column in self._columns}
        order = [folded[name.lower()].name if name.lower() in folded else None for name in names]
        known = [name for name in order if name is not None]
        if len(set(known)) < len(known):
            raise HeadgateError(SOURCE_MISMATCH, f"the header names a column twice: {shown(', '.join(names))}")
        missing = [column.name for column in self._columns if column.not_null and column.name not in known]
        if missing or not known:
            what = f"lacks {', '.join(missing)}" if missing else "has none of the source's columns"
            raise HeadgateError(
                SOURCE_MISMATCH, f"the header {shown(', '.join(names))} {what}; is there a header at all?"
            )
        return CsvDecoder(self._columns, self._options, order)

    def first(self, data: Data, final: bool) -> int:
        return self._splitter.first(data, final)

    def whole(self, data: Data, final: bool) -> int:
        return self._splitter.whole(data, final)

    def decode(self, data: Data) -> Decoded:
        if not data:
            return Decoded(assemble(self._columns, []))
        dialect = self._options.dialect
        if self._splitter.is_quick(data):
            try:
                return Decoded(self._quick(data, dialect))
            except _Refused as refused:
                return _Search(self, bytes(data)).run(refused)
        translated = self._translated(data)
        if translated is not None:
            try:
                return Decoded(self._quick(translated, Dialect(_UNIT, b"\n", b"")))
            except _Refused:
                pass
        return self._exact(bytes(data), 0)

    def _quick(self, data: Data, dialect: Dialect) -> pa.RecordBatch:
        if data.startswith(BYTE_ORDER_MARK):
            raise _Refused
        # Blocks are decoded in several threads, of which another may learn of zones meanwhile.
        before = self._zoned
        try:
            return self._convert(data, dialect, before)
        except _Refused:
            zoned = self._seen_zones(data, dialect, before)
            if zoned == before:
                raise
            self._zoned = zoned
            return self._convert(data, dialect, zoned)

    def _translated(self, data: Data) -> Data | None:
        """The block with delimiters of one byte each, where that changes nothing else."""
        dialect = self._options.dialect
        if any(mark in data for mark in (b"\r", _UNIT)) or (dialect.quote and dialect.quote in data):
            return None
        if dialect.record != b"\n" and (
            b"\n" in data or dialect.field in dialect.record or dialect.record in dialect.field
        ):
            return None
        # The record first: where one contains the other, nothing is translated.
        return data.replace(dialect.record, b"\n").replace(dialect.field, _UNIT)

    def _seen_zones(self, data: Data, dialect: Dialect, before: frozenset[str]) -> frozenset[str]:
        if not self._times:
            return before
        record = next(Splitter(dialect).records(data, final=True), None)
        if record is None or len(record.values) != len(self._order):
            return before
        values = {name: value for name, (value, _) in zip(self._order, record.values, strict=True) if name}
        zoned = set(before)
        for name in self._times:
            value = values.get(name, b"")
            # A value that is no time says nothing about the others.
            if _TIME.match(value):
                (zoned.add if _has_zone(value) else zoned.discard)(name)
        return frozenset(zoned)

    def _convert(self, data: Data, dialect: Dialect, zoned: frozenset[str], null: str | None = None) -> pa.RecordBatch:
        """The rows of whole, well-formed records; `_Refused` if one of them is not."""
        table = self._read(data, dialect, zoned, self._options.null if null is None else null)
        arrays = []
        for column in self._columns:
            if column.name not in table.column_names:
                arrays.append(pa.nulls(table.num_rows, column.arrow))
                continue
            array = one_array(table.column(column.name))
            if column.type.kind == "TIMESTAMP":
                array = array.cast(UTC_MICROS)
            elif column.type.kind == "BINARY":
                array = _decoded(array)
            if broken_rule(array, column):
                raise _Refused(rows=suspects.breaking(array, column))
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self._columns))

    def _read(self, data: Data, dialect: Dialect, zoned: frozenset[str], null: str) -> pa.Table:
        wanted = [column for column in self._columns if column.name in self._order]
        return self._table(data, dialect, {column.name: _read_type(column, zoned) for column in wanted}, null)

    def _table(
        self,
        data: Data,
        dialect: Dialect,
        types: Mapping[str, pa.DataType],
        null: str,
    ) -> pa.Table:
        names = [name if name is not None else f"\0{index}" for index, name in enumerate(self._order)]
        quoted = bool(dialect.quote) and dialect.quote in data
        alone = len(data) <= _SHARE
        try:
            return pyarrow.csv.read_csv(
                pa.BufferReader(data),
                read_options=pyarrow.csv.ReadOptions(
                    column_names=names, use_threads=not alone, block_size=max(len(data), 1) + 1 if alone else _SHARE
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=dialect.field.decode(),
                    quote_char=dialect.quote.decode() if dialect.quote else False,
                    newlines_in_values=quoted,
                    ignore_empty_lines=len(names) > 1,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    null_values=[null],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            message = str(error)
            row, column = _ROW.search(message), _COLUMN.search(message)
            raise _Refused(
                int(row.group(1)) if row else 0,
                column=int(column.group(1)) if column else None,
                shape=_SHAPE.search(message) is not None,
            ) from error

    def _blamed(self, data: bytes, refused: _Refused) -> suspects.Rows:
        """The rows of a block, counted without blank lines, that may be why it was refused; none if nobody can tell."""
        if len(refused.rows):
            return refused.rows
        if refused.column is None or refused.column >= len(self._order):
            return suspects.NOBODY
        column = self._by_name.get(self._order[refused.column] or "")
        if column is None:
            return suspects.NOBODY
        table = self._table(data, self._options.dialect, {column.name: pa.binary()}, self._options.null)
        return suspects.unreadable(one_array(table.column(0)), _read_type(column, self._zoned))

    def _exact(self, data: bytes, offset: int) -> Decoded:
        """The same, record by record. `offset` is where `data` begins in the block."""
        good: list[tuple[Record, bytes]] = []
        faults: list[RowFault] = []
        for record in self._splitter.records(data, final=True):
            if record.is_blank and len(self._order) > 1:
                continue
            fault = self._shape_fault(record)
            if fault:
                faults.append(_fault(record, data, offset, fault))
            else:
                good.append((record, self._canonical(record)))
        batches: list[pa.RecordBatch] = []
        stack = [good] if good else []
        while stack:
            part = stack.pop()
            try:
                batches.append(self._convert_canonical(part))
            except _Refused:
                if len(part) == 1:
                    faults.append(_fault(part[0][0], data, offset, self._reason(part[0][0])))
                else:
                    middle = len(part) // 2
                    stack += [part[middle:], part[:middle]]
        return Decoded(assemble(self._columns, batches), tuple(sorted(faults, key=lambda fault: fault.offset)))

    def _convert_canonical(self, part: Sequence[tuple[Record, bytes]]) -> pa.RecordBatch:
        return self._convert(b"".join(line for _, line in part), _CANONICAL, frozenset(self._times), null="")

    def _shape_fault(self, record: Record) -> str:
        if record.unclosed:
            return "a quote is not closed"
        if len(record.values) != len(self._order):
            return f"{len(record.values)} values where there are {len(self._order)} columns"
        for name, (value, quoted) in zip(self._order, record.values, strict=True):
            column = self._by_name.get(name) if name is not None else None
            fault = self._plain_fault(column, value, quoted) if column is not None else ""
            if fault:
                return fault
        return ""

    def _plain_fault(self, column: Column, value: bytes, quoted: bool) -> str:
        """What can be seen to be wrong with a value without reading it; what cannot, the reader refuses. Where many
        rows are malformed, this spares it one call for each."""
        if not quoted and value == self._null:
            return f"column {column.name} is NOT NULL and there is NULL" if column.not_null else ""
        likely = _LIKELY.get(column.type.kind)
        too_long = column.type.length and len(value) > 4 * column.type.length
        if too_long or (likely is not None and likely.match(value) is None):
            return f"column {column.name}: {shown(value.decode(errors='replace'))} is not a {type_name(column.type)}"
        return ""

    def _canonical(self, record: Record) -> bytes:
        """The record in the canonical dialect: NULL is nothing, and every value is quoted."""
        parts = []
        for name, (value, quoted) in zip(self._order, record.values, strict=True):
            if value == self._null and not quoted:
                parts.append(b"")
                continue
            if name in self._times and not _has_zone(value):
                value = value.strip() + (b"T00:00:00Z" if _DAY.match(value) else b"Z")
            parts.append(b'"' + value.replace(b'"', b'""') + b'"')
        # A line with nothing on it would be no record.
        return (b",".join(parts) if len(parts) > 1 or parts[0] else b"") + b"\n"

    def _reason(self, record: Record) -> str:
        """What is wrong with a record that was refused alone: the first column that is refused alone."""
        for name, value in zip(self._order, record.values, strict=True):
            if name is None:
                continue
            column = self._by_name[name]
            alone = CsvDecoder([column], self._options, [name])
            one = replace(record, values=(value,))
            try:
                alone._convert_canonical([(one, alone._canonical(one))])
            except _Refused:
                return f"column {name}: {shown(value[0].decode(errors='replace'))} is not a {type_name(column.type)}"
        return "the row cannot be read"


class _Search:
    """Finds the malformed records of a block."""

    def __init__(self, decoder: CsvDecoder, data: bytes) -> None:
        self._decoder = decoder
        self._data = data
        self._refused = 0
        self._batches: list[pa.RecordBatch] = []
        self._faults: list[RowFault] = []

    def run(self, refused: _Refused) -> Decoded:
        ends = self._decoder._splitter.ends(self._data)
        if ends is None:
            return self._decoder._exact(self._data, 0)
        if not len(ends) or ends[-1] < len(self._data):
            ends = np.append(ends, len(self._data))
        return self._without_suspects(ends, refused) or self._halved([0, *ends.tolist()])

    def _without_suspects(self, ends: npt.NDArray[np.int64], refused: _Refused) -> Decoded | None:
        """Reads all records but those that may be to blame, and judges these; None where that leads to nothing."""
        starts = np.append(0, ends[:-1])
        if len(self._decoder._order) > 1:
            first = np.frombuffer(self._data, np.uint8)[starts]
            real = ~((first == 10) | ((first == 13) & (ends - starts == 2)))
            starts, ends = starts[real], ends[real]
        suspected = np.zeros(len(starts), bool)
        for _ in range(len(self._decoder._columns) + 2):
            others = np.flatnonzero(~suspected)
            try:
                if refused.shape:
                    separators = self._decoder._splitter.separators(self._data, starts[others], ends[others])
                    found = np.flatnonzero(separators != len(self._decoder._order) - 1)
                else:
                    found = self._decoder._blamed(self._others(starts, ends, suspected), refused)
            except _Refused as shape:
                refused = shape
                continue
            if not len(found) or found[-1] >= len(others) or len(found) * _ONE_IN > len(others) + _SOME:
                return None
            suspected[others[found]] = True
            try:
                batch = self._decoder._quick(self._others(starts, ends, suspected), self._decoder._options.dialect)
            except _Refused as again:
                refused = again
                continue
            return self._judged(batch, starts, ends, suspected)
        return None

    def _others(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], suspected: npt.NDArray[np.bool_]
    ) -> bytes:
        """The block without the records that are suspected."""
        pieces, at, whole = [], 0, memoryview(self._data)
        for index in np.flatnonzero(suspected).tolist():
            pieces.append(whole[at : starts[index]])
            at = int(ends[index])
        return b"".join((*pieces, whole[at:])) if pieces else self._data

    def _judged(
        self,
        batch: pa.RecordBatch,
        starts: npt.NDArray[np.int64],
        ends: npt.NDArray[np.int64],
        suspected: npt.NDArray[np.bool_],
    ) -> Decoded | None:
        """All rows in order: those of a batch, and of the records that are suspected those that are rows."""
        chosen = np.flatnonzero(suspected)
        judged = self._decoder._exact(b"".join(self._data[starts[i] : ends[i]] for i in chosen), 0)
        if batch.num_rows + len(chosen) != len(starts) or judged.batch.num_rows + len(judged.faults) != len(chosen):
            return None
        placed = np.append(0, np.cumsum(ends[chosen] - starts[chosen]))[:-1]
        at = np.searchsorted(placed, [fault.offset for fault in judged.faults]).tolist()
        faults = tuple(
            replace(fault, offset=int(starts[chosen[index]])) for fault, index in zip(judged.faults, at, strict=True)
        )
        if not judged.batch.num_rows:
            return Decoded(batch, faults)
        parts, taken = [], 0
        for number, index in enumerate(sorted(set(range(len(chosen))) - set(at))):
            # How many rows stand before it that were not suspected.
            before = int(chosen[index]) - index
            parts += [batch.slice(taken, before - taken), judged.batch.slice(number, 1)]
            taken = before
        return Decoded(assemble(self._decoder._columns, [*parts, batch.slice(taken)]), faults)

    def _halved(self, bounds: list[int]) -> Decoded:
        stack = [(0, len(bounds) - 1)]
        whole = True
        while stack:
            low, high = stack.pop()
            if low == high:
                continue
            part = self._data[bounds[low] : bounds[high]]
            # The whole block was refused before.
            suspect = 0 if whole else self._take(part) if self._refused < _PATIENCE else 0
            whole = False
            if suspect is None:
                continue
            if high - low <= _FEW or self._refused >= _PATIENCE:
                decoded = self._decoder._exact(part, bounds[low])
                self._batches.append(decoded.batch)
                self._faults.extend(decoded.faults)
            elif 0 < suspect <= high - low <= _SOME:
                stack += [(low + suspect, high), (low + suspect - 1, low + suspect), (low, low + suspect - 1)]
            else:
                middle = (low + high) // 2
                stack += [(middle, high), (low, middle)]
        return Decoded(assemble(self._decoder._columns, self._batches), tuple(self._faults))

    def _take(self, part: bytes) -> int | None:
        """None if all of it are rows; otherwise which record may be to blame, or 0."""
        try:
            self._batches.append(self._decoder._quick(part, self._decoder._options.dialect))
        except _Refused as refused:
            self._refused += 1
            return refused.row
        return None


def _fault(record: Record, data: bytes, offset: int, reason: str) -> RowFault:
    return RowFault(offset + record.start, data[record.start : record.end], reason)


def _has_zone(value: bytes) -> bool:
    # The sign of a zone stands after the time; those of the date stand before it.
    return _ZONE.search(value, 10) is not None


def _read_type(column: Column, zoned: frozenset[str]) -> pa.DataType:
    if column.type.kind == "TIMESTAMP" and column.name not in zoned:
        return pa.timestamp("us")
    return pa.string() if column.type.kind == "BINARY" else column.arrow


def _decoded(array: pa.Array) -> pa.Array:
    try:
        return pa.array(
            [None if text is None else binascii.a2b_base64(text, strict_mode=True) for text in array.to_pylist()],
            pa.binary(),
        )
    except (binascii.Error, ValueError) as error:
        raise _Refused from error
