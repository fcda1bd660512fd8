"""Rows of every type and conditions over them, for tests of pushed-down filters."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

from hypothesis import strategies as st

from tests.unit.planner.kit import CATALOG, MemoryView

VIEW = MemoryView(CATALOG).apply("CREATE SINK out(must INT32 NOT NULL, s VARCHAR) TYPE PRINT ON edge")


def _integers(low: int, high: int) -> st.SearchStrategy[int | None]:
    edges = [edge for edge in (low, low + 1, -1, 0, 1, 7, 100, high - 1, high) if low <= edge <= high]
    return st.one_of(st.none(), st.sampled_from(edges), st.integers(low, high))


def _floats(width: int) -> st.SearchStrategy[float | None]:
    edges = (0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 7.0, 100.0, 2.0**24)
    return st.one_of(st.none(), st.sampled_from(edges), st.floats(width=width))  # type: ignore[arg-type]


_TEXT = st.one_of(
    st.none(),
    st.sampled_from(("", "a", "A", "b", "é", "e\u0301", "ß", "z", "😀", "\ue000", "a ", " a", "m", "x%", "\n", "'")),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=4),
)
_DAYS = st.one_of(
    st.none(), st.sampled_from((date(1, 1, 1), date(1970, 1, 1), date(2026, 1, 1), date(9999, 12, 31))), st.dates()
)
_MOMENTS = st.one_of(
    st.none(),
    st.sampled_from((datetime(1970, 1, 1), datetime(2026, 1, 1), datetime(2026, 1, 1, 0, 0, 0, 1))),
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),
).map(lambda moment: None if moment is None else moment.replace(tzinfo=UTC))


def _decimals(places: int, digits: int) -> st.SearchStrategy[Decimal | None]:
    most = 10**digits - 1
    whole = st.one_of(st.sampled_from((0, 1, 125 * 10 ** (places - 2), most, -most)), st.integers(-most, most))
    # From digits, so that no context rounds.
    return st.one_of(st.none(), whole.map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -places))))


ROWS = st.fixed_dictionaries(
    {
        "b": st.sampled_from((None, True, False)),
        "i8": _integers(-128, 127),
        "i16": _integers(-(2**15), 2**15 - 1),
        "i32": _integers(-(2**31), 2**31 - 1),
        "i64": _integers(-(2**63), 2**63 - 1),
        "u8": _integers(0, 255),
        "u16": _integers(0, 2**16 - 1),
        "u32": _integers(0, 2**32 - 1),
        "u64": _integers(0, 2**64 - 1).map(lambda value: None if value is None else Decimal(value)),
        "f32": _floats(32),
        "f64": _floats(64),
        "d10": _decimals(2, 10),
        "d38": _decimals(10, 38),
        "s": _TEXT,
        "c": _TEXT,
        "day": _DAYS,
        "ts": _MOMENTS,
    }
)

_NUMBERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "d10", "d38", "must")
_LITERALS = ("0", "1", "-1", "7", "100", "1.25", "1.5", "0.0", "1e0", "1e300", "-5000000000", "18446744073709551615")
_OPS = ("=", "<>", "<", "<=", ">", ">=", "<=>")
_TEXTS = ("''", "'a'", "'m'", "'é'", "'😀'", "'a '", "'x%'")


def _leaves() -> st.SearchStrategy[str]:
    numbers, texts = st.sampled_from(_NUMBERS), st.sampled_from(("s", "c"))
    op, literal = st.sampled_from(_OPS), st.sampled_from(_LITERALS)
    return st.one_of(
        st.builds("{} {} {}".format, numbers, op, literal),
        st.builds("{} {} {}".format, literal, op, numbers),
        st.builds("{} {} {}".format, numbers, op, numbers),
        st.builds("{} IN ({}, {}, {})".format, numbers, literal, literal, literal),
        st.builds("{} BETWEEN {} AND {}".format, numbers, literal, literal),
        st.builds("{} {} {}".format, texts, op, st.sampled_from(_TEXTS)),
        st.builds("s {} c".format, op),
        st.builds("{} IN ({}, {})".format, texts, st.sampled_from(_TEXTS), st.sampled_from(_TEXTS)),
        st.builds("day {} '2026-01-01'".format, op),
        st.builds("ts {} '2026-01-01 00:00:00'".format, op),
        st.builds("{} IS NULL".format, st.sampled_from((*_NUMBERS, "s", "b", "ts", "day"))),
        st.builds("{} IS NOT NULL".format, st.sampled_from((*_NUMBERS, "s", "b", "ts"))),
        st.sampled_from(("b", "NOT b", "b IS TRUE", "b = (i8 > 3)", "s LIKE 'a%'", "length(s) > 1", "upper(s) = 'A'")),
    )


def predicates() -> st.SearchStrategy[str]:
    return st.recursive(
        _leaves(),
        lambda inner: st.one_of(
            st.builds("({} AND {})".format, inner, inner),
            st.builds("({} OR {})".format, inner, inner),
            st.builds("NOT ({})".format, inner),
        ),
        max_leaves=6,
    )
