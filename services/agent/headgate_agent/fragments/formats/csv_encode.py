"""Rows as CSV, column by column: what the CSV parser with the same options reads back as the same rows."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headgate_agent.fragments.formats.text_values import as_text, joined_lines

# Delimiters that no number, time, truth value or base64 has in it.
_APART = frozenset(",;|\t \"'")


@dataclass(frozen=True, slots=True)
class CsvEncoder:
    """Values are wrapped in double quotes only where they must be: with a delimiter, a quote or a line break in them,
    or where they would be taken for NULL."""

    delimiter: str = ","
    null: str = ""

    def header(self, names: Sequence[str]) -> bytes:
        quoted = self._quoted(pa.array(list(names), pa.string()))
        return self.delimiter.join(quoted.to_pylist()).encode() + b"\n"

    def encode(self, batch: pa.RecordBatch) -> bytes:
        if not batch.num_rows:
            return b""
        columns = [self._column(batch.column(index)) for index in range(batch.num_columns)]
        rows = pc.binary_join_element_wise(
            *columns, self.delimiter, null_handling="replace", null_replacement=self.null
        )
        return joined_lines(rows)

    def _column(self, array: pa.Array) -> pa.Array:
        text = as_text(array)
        is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
        if is_text or self.null or not _APART.issuperset(self.delimiter):
            return self._quoted(text)
        return text

    def _quoted(self, text: pa.Array) -> pa.Array:
        # Any character of a delimiter: a value that ends in a part of it would run into it.
        risky = "|".join((r'["\r\n]', *(re.escape(sign) for sign in self.delimiter)))
        needed = pc.or_(
            pc.match_substring_regex(text, pattern=risky), pc.equal(text, pa.scalar(self.null, pa.string()))
        )
        if pc.any(needed, skip_nulls=True).as_py() is not True:
            return text
        doubled = pc.replace_substring(text, pattern='"', replacement='""')
        wrapped = pc.binary_join_element_wise('"', doubled, '"', "")
        return pc.if_else(needed, wrapped, text)
