"""What is NOT NULL in the rows of a record: Spark and Arrow read NULL there without a word.

A path leads from a column inwards: `.name` is a column or a field of a STRUCT, `[]` the elements of an ARRAY, `{}` the
values of a MAP. Where something on the way is NULL there is nothing at its end that could be missing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

ELEMENTS, VALUES = "[]", "{}"
ColumnPath = tuple[str, ...]


def step_to(name: str) -> str:
    """The step to a column, or to a field of a STRUCT."""
    return f".{name}"


def name_of(step: str) -> str:
    return step[1:]


def reason_of(path: ColumnPath) -> str:
    """What is said of a record that has NULL at the end of a path."""
    return f"column {name_of(''.join(path))} is NOT NULL and there is NULL"


def paths_text(paths: Sequence[ColumnPath]) -> str:
    """Paths as an option of a data source."""
    return json.dumps(paths)


def paths_of(text: str) -> tuple[ColumnPath, ...]:
    return tuple(tuple(path) for path in json.loads(text or "[]"))


def missing(batch: pa.RecordBatch, paths: Sequence[ColumnPath]) -> str:
    """Why rows are none: the first path that leads to NULL; empty where none does."""
    for path in paths:
        column, *inward = path
        if _lacks(batch.column(name_of(column)), inward):
            return reason_of(path)
    return ""


def _lacks(array: pa.Array, inward: Sequence[str]) -> bool:
    if not inward:
        return bool(array.null_count)
    step, *rest = inward
    if step == ELEMENTS:
        return _lacks(array.flatten(), rest)
    if step == VALUES:
        # The items of a map array are those of all it was cut from.
        pairs = pa.struct([array.type.key_field, array.type.item_field])
        return _lacks(array.cast(pa.list_(pairs)).flatten().field(1), rest)
    # A field does not know of the NULLs around it.
    return _lacks(array.drop_null().field(name_of(step)), rest)
