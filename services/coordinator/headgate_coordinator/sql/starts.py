"""Where a topic is read from: `earliest`, `latest` or a moment."""

from __future__ import annotations

from datetime import UTC, datetime

from headgate_coordinator.sql.errors import quoted

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_start(value: str) -> str:
    """`earliest`, `latest`, or the microseconds since 1970 of a timestamp such as 2026-01-31T12:00:00Z, as digits.

    Those microseconds are taken too, so that what was answered may be given. A ValueError says what is wrong.
    """
    text = value.strip()
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if text.isascii() and text.isdigit() and 8 < len(text) <= 18:
        return str(int(text))
    try:
        moment = datetime.fromisoformat(text) if len(text) <= 64 else None
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(f"expected earliest, latest or a timestamp, not {quoted(value)}")
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    microseconds = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
    if microseconds < 0:
        raise ValueError("it is before 1970")
    return str(microseconds)
