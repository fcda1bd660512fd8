"""Which values of a column may be to blame for a block that a reader refused, found without looking at each.

What is found is only suspected: whoever asks judges those rows one by one, and reads the others again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headgate_agent.fragments.formats.rows import outside
from headgate_agent.fragments.types import Column

Rows = npt.NDArray[np.int64]
NOBODY: Rows = np.empty(0, np.int64)

# What is checked at once.
_AT_ONCE = 512
# Where more than one value in so many is refused, it is not worth while to look for them this way.
_ONE_IN = 8
# Where pyarrow's messages say which text it is. Only a hint: what is not found this way is found by halving.
_TEXT = re.compile(r"Failed to parse string: '(.*)' as a scalar of type", re.DOTALL)


def failing(array: pa.Array, check: Callable[[pa.Array], object]) -> Rows:
    """Where the values are that `check` refuses with an ArrowInvalid, the first of them in a part of the array that it
    is given; nobody if they are too many."""
    found: list[int] = []
    most = len(array) // _ONE_IN + _AT_ONCE // _ONE_IN
    stack = [(at, min(at + _AT_ONCE, len(array))) for at in range(0, len(array), _AT_ONCE)]
    while stack:
        low, high = stack.pop()
        part = array.slice(low, high - low)
        try:
            check(part)
        except pa.ArrowInvalid as error:
            at = low if high - low == 1 else low + _told(error, part)
            if at < low:
                middle = (low + high) // 2
                stack += [(middle, high), (low, middle)]
                continue
            found.append(at)
            if len(found) > most:
                return NOBODY
            if at + 1 < high:
                stack.append((at + 1, high))
    return np.array(sorted(found), np.int64)


def _told(error: pa.ArrowInvalid, texts: pa.Array) -> int:
    """Where the text is that the message speaks of; -1 if it speaks of none."""
    text = _TEXT.search(str(error)) if pa.types.is_string(texts.type) else None
    return -1 if text is None else int(pc.index(texts, text.group(1)).as_py())


def unreadable(texts: pa.Array, kind: pa.DataType) -> Rows:
    """Texts, as bytes, that are no values of an Arrow type; those that are not UTF-8 first."""
    try:
        text = texts.cast(pa.string())
    except pa.ArrowInvalid:
        return failing(texts, lambda part: part.cast(pa.string()))
    found = failing(text, lambda part: part.cast(kind))
    if len(found):
        return found
    # Readers leave blanks around a value out.
    return failing(pc.ascii_trim_whitespace(text), lambda part: part.cast(kind))


def breaking(array: pa.Array, column: Column) -> Rows:
    """Values that break a rule of their column; see `broken_rule`."""
    type_ = column.type
    if column.not_null and array.null_count:
        return _where(pc.is_null(array))
    match type_.kind:
        case "VARCHAR" | "CHAR" if type_.length:
            return _where(pc.greater(pc.utf8_length(array), type_.length))
        case "DECIMAL":
            return failing(array, lambda part: part.validate(full=True))
        case "DATE" | "TIMESTAMP":
            return _where(outside(array, type_.kind))
        case _:
            return NOBODY


def _where(truth: Any) -> Rows:
    found: Rows = np.flatnonzero(pc.fill_null(truth, False).to_numpy(zero_copy_only=False)).astype(np.int64)
    return found
