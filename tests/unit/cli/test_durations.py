"""Durations as people write them."""

from __future__ import annotations

import pytest
import typer

from headgate_cli.durations import seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90), ("90s", 90), ("1.5m", 90), ("1h30m", 5400), ("250ms", 0.25), ("1d", 86400), (" 2 ", 2), ("5M", 300)],
)
def test_a_duration_is_read(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "soon", "5 m", "-3s", "3s!", "s3"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        seconds(text)
