"""What the runs of fragments told of their work, added up for each query, and as text.

Counts and rates of a query are those of its ends: rows come in where a fragment reads from outside, and go out where
one delivers. What is still to be read has a unit of its own in each kind of fragment, so that it is never added up
across kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headgate.catalog import v1 as catalog
from headgate_cli.kinds import short

_UNITS = ("", "k", "M", "G", "T", "P")
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The work of one query. What no fragment has told is None."""

    rows_in_per_second: float | None = None
    rows_out_per_second: float | None = None
    rows_in: int | None = None
    rows_out: int | None = None
    # What is there and not read yet, by kind of fragment: bytes of files, batches of edges, records of topics.
    lag: dict[str, int] = field(default_factory=dict)
    rows_late: int | None = None
    bad_records: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    watermark: datetime | None = None
    waiting: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "rows_in_per_second": self.rows_in_per_second,
            "rows_out_per_second": self.rows_out_per_second,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "lag": self.lag,
            "rows_late": self.rows_late,
            "bad_records": self.bad_records,
            "state_rows": self.state_rows,
            "state_bytes": self.state_bytes,
            "watermark": self.watermark.isoformat() if self.watermark else None,
            "waiting": self.waiting,
        }


def of_query(fragments: Iterable[catalog.Fragment]) -> QueryProgress:
    """Adds up what the fragments of one query have told."""
    told = [fragment for fragment in fragments if fragment.HasField("progress")]
    if not told:
        return QueryProgress()
    first = _ends(told, (catalog.FRAGMENT_KIND_SOURCE, catalog.FRAGMENT_KIND_COMPUTE))
    last = _ends(told, (catalog.FRAGMENT_KIND_SINK, catalog.FRAGMENT_KIND_COMPUTE))
    every = [fragment.progress for fragment in told]
    lag: dict[str, int] = {}
    for fragment in told:
        kind = short(catalog.FragmentKind, fragment.kind).lower()
        lag[kind] = lag.get(kind, 0) + fragment.progress.lag
    marks = [each.watermark.ToDatetime(tzinfo=UTC) for each in every if each.HasField("watermark")]
    return QueryProgress(
        rows_in_per_second=sum(each.rows_in_per_second for each in first),
        rows_out_per_second=sum(each.rows_out_per_second for each in last),
        rows_in=sum(each.rows_in for each in first),
        rows_out=sum(each.rows_out for each in last),
        lag=lag,
        rows_late=sum(each.rows_late for each in every),
        bad_records=sum(each.bad_records for each in every),
        state_rows=sum(each.state_rows for each in every),
        state_bytes=sum(each.state_bytes for each in every),
        watermark=min(marks, default=None),
        waiting="; ".join(dict.fromkeys(each.waiting for each in every if each.waiting)),
    )


def _ends(told: Sequence[catalog.Fragment], kinds: Sequence[int]) -> list[catalog.FragmentProgress]:
    """Of the kinds that could be at this end of a query, those that are."""
    for kind in kinds:
        found = [fragment.progress for fragment in told if fragment.kind == kind]
        if found:
            return found
    return []


def number(value: float | None) -> str:
    """A count or a rate with three digits or so: 980, 12.3k, 4.51M; a dash where it is not known."""
    if value is None:
        return "-"
    return _scaled(float(value), 1000.0, _UNITS, "")


def size(value: int | None) -> str:
    """Bytes in a unit in which they are short."""
    return "-" if value is None else _scaled(float(value), 1024.0, _SIZES, " ")


def _scaled(value: float, step: float, units: Sequence[str], gap: str) -> str:
    index = 0
    while value >= step * 0.9995 and index < len(units) - 1:
        value /= step
        index += 1
    if index == 0:
        text = f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
    else:
        text = f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return f"{text}{gap if units[index] else ''}{units[index]}"


def lag_text(lag: dict[str, int]) -> str:
    """What is still to be read, each kind with its unit; a dash where nothing is known, 0 where nothing is left."""
    if not lag:
        return "-"
    parts = [
        f"{size(left)} of files"
        if kind == "source"
        else f"{number(left)} to {'compute' if kind == 'compute' else kind}"
        for kind, left in lag.items()
        if left
    ]
    return ", ".join(parts) or "0"


def watermark_text(mark: datetime | None) -> str:
    return mark.strftime("%Y-%m-%d %H:%M:%S") if mark else "-"


FRAGMENT_TITLES = ("#", "KIND", "IN/S", "OUT/S", "IN", "OUT", "LAG", "LATE", "BAD", "STATE", "WATERMARK", "ENGINE")


def fragment_row(fragment: catalog.Fragment) -> list[str]:
    """What one fragment has told, under FRAGMENT_TITLES."""
    told = fragment.progress
    mark = told.watermark.ToDatetime(tzinfo=UTC) if told.HasField("watermark") else None
    reads_files = fragment.kind == catalog.FRAGMENT_KIND_SOURCE
    return [
        str(fragment.ordinal),
        short(catalog.FragmentKind, fragment.kind),
        number(told.rows_in_per_second),
        number(told.rows_out_per_second),
        number(told.rows_in),
        number(told.rows_out),
        size(told.lag) if reads_files else number(told.lag),
        number(told.rows_late),
        number(told.bad_records),
        size(told.state_bytes) if told.state_rows or told.state_bytes else "-",
        watermark_text(mark),
        told.engine,
    ]
