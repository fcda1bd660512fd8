"""Nodes that the dialect adds to sqlglot's tree, and how to find out where a node was written.

**Windows.** A windowed SELECT carries a `StreamWindow` under the key `stream_window`:

- `WINDOW TUMBLING(ts, SIZE 5 SEC)` and `GROUP BY window(ts, '5 seconds')` hang it on the `exp.Select`; the call of
  `window` or `session_window` is then no longer among the expressions of GROUP BY (with nothing left there, `group` is
  absent). `select.args["stream_window"]`, or `window_of(select)`.
- The table functions `TUMBLE`, `HOP` and `SESSION` hang it on the `exp.Table` or `exp.Subquery` that they read, whose
  alias is that of the call. `window_of(table)`.

`start`, `end` of a window are ordinary columns in the tree (`start`, `end`, `window.start`, `window_start`, ...): the
binder decides what they mean, because a source may have columns of those names.

sqlglot's optimiser walks through args it does not know, so the time column of a window is qualified with the rest.
"""

from __future__ import annotations

from enum import StrEnum

from sqlglot import exp


class WindowKind(StrEnum):
    """Shapes of windows."""

    TUMBLING = "TUMBLING"
    SLIDING = "SLIDING"
    SESSION = "SESSION"


class WindowSpelling(StrEnum):
    """How a window was written, which decides under which names its bounds are known."""

    # WINDOW ...: start, end (and window_start, window_end).
    CLAUSE = "CLAUSE"
    # GROUP BY window(...): window.start, window.end, window.
    FUNCTION = "FUNCTION"
    # FROM TUMBLE(...): window_start, window_end.
    TABLE = "TABLE"


class StreamWindow(exp.Expression):
    """A window over time.

    Args: `this`: the time column, absent for processing time. `kind`: a WindowKind. `spelling`: a WindowSpelling.
    `size`, `advance`, `gap`, `lateness`, `offset`: microseconds as int, where they apply: TUMBLING has `size`, SLIDING
    `size` and `advance`, SESSION `gap`. `lateness` and `offset` are absent where not stated. `unit`: a TimeUnit where
    the time column is an integer that counts so.
    """

    arg_types = {  # noqa: RUF012
        "this": False,
        "kind": True,
        "spelling": True,
        "size": False,
        "advance": False,
        "gap": False,
        "lateness": False,
        "offset": False,
        "unit": False,
    }

    @property
    def window_kind(self) -> WindowKind:
        return WindowKind(self.args["kind"])

    @property
    def spelling(self) -> WindowSpelling:
        return WindowSpelling(self.args["spelling"])

    @property
    def time_column(self) -> exp.Column | None:
        column = self.args.get("this")
        return column if isinstance(column, exp.Column) else None

    @property
    def size_us(self) -> int | None:
        return self._duration("size")

    @property
    def advance_us(self) -> int | None:
        return self._duration("advance")

    @property
    def gap_us(self) -> int | None:
        return self._duration("gap")

    @property
    def lateness_us(self) -> int | None:
        return self._duration("lateness")

    @property
    def offset_us(self) -> int | None:
        return self._duration("offset")

    @property
    def unit(self) -> TimeUnit | None:
        unit = self.args.get("unit")
        return TimeUnit(unit) if unit else None

    def _duration(self, key: str) -> int | None:
        value = self.args.get(key)
        return value if isinstance(value, int) else None


class TimeUnit(StrEnum):
    """What an integer event-time column counts, since 1970-01-01 00:00:00 UTC."""

    SECONDS = "SECONDS"
    MILLISECONDS = "MILLISECONDS"
    MICROSECONDS = "MICROSECONDS"
    NANOSECONDS = "NANOSECONDS"


def window_of(node: exp.Expr) -> StreamWindow | None:
    """The window that hangs on a select, table or sub-select."""
    window = node.args.get("stream_window")
    return window if isinstance(window, StreamWindow) else None


def offset_of(node: exp.Expr | None) -> int | None:
    """Where a node was written: the offset of its own token, else the first of those below it, else of those above.

    None only for nodes that no text stands behind.
    """
    if node is None:
        return None
    own = _own_offset(node)
    if own is not None:
        return own
    below = [start for child in node.walk() if (start := _own_offset(child)) is not None]
    if below:
        return min(below)
    above = node.parent
    while above is not None:
        start = _own_offset(above)
        if start is not None:
            return start
        above = above.parent
    return None


def _own_offset(node: exp.Expr) -> int | None:
    start = node.meta.get("start")
    return start if isinstance(start, int) else None
