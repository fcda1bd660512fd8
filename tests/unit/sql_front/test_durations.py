"""Lengths of time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_common.durations import MAX_DURATION_US, parse_duration, show_duration
from headgate_coordinator.sql.starts import parse_start


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("5s", 5_000_000),
        ("5 SEC", 5_000_000),
        (" 1.5 hours ", 5_400_000_000),
        ("1m", 60_000_000),
        ("250ms", 250_000),
        ("7us", 7),
        ("2 weeks", 1_209_600_000_000),
        ("0 s", 0),
    ],
)
def test_durations_are_read(text: str, microseconds: int) -> None:
    assert parse_duration(text) == microseconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "s",
        "-5 s",
        "5 months",
        "1 year",
        "5 fortnights",
        "1e3 s",
        "0.5 us",
        "9999999999999 weeks",
        "5 s 3 m",
        "9" * 10_000_000,
    ],
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_duration(text)


@settings(deadline=None)
@given(st.integers(0, MAX_DURATION_US))
def test_shown_durations_are_read_back(microseconds: int) -> None:
    assert parse_duration(show_duration(microseconds)) == microseconds


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("Earliest", "earliest"),
        ("latest", "latest"),
        ("1970-01-01", "0"),
        ("1970-01-01T00:00:01.5Z", "1500000"),
        ("1970-01-01T02:00:00+02:00", "0"),
        ("1769817600000000", "1769817600000000"),
    ],
)
def test_starts_are_read(text: str, start: str) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["", "yesterday", "1969-12-31", "12345", "9" * 1000, "２０２６-01-01"])
def test_what_is_no_start_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_start(text)


@settings(deadline=None)
@given(st.text(max_size=30))
def test_reading_a_start_is_idempotent(text: str) -> None:
    try:
        start = parse_start(text)
    except ValueError:
        return
    if len(start) > 8:
        assert parse_start(start) == start
