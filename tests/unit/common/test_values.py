"""How settings are written."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate_common.values import Bytes, Seconds, kind_of, read_duration, read_size, show_duration, show_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("6s", 6.0),
        ("1.5s", 1.5),
        ("24h", 86400.0),
        ("2m", 120.0),
        ("1d", 86400.0),
        ("10us", 0.00001),
        ("7", 7.0),
        (" 3 s ", 3.0),
        (0.5, 0.5),
        (2, 2.0),
        ("0s", 0.0),
    ],
)
def test_durations_are_read_exactly(text: Any, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "6 parsecs", "-1s", "1e3s", "6S", "6s6s", True, None, [], "nan", "inf"])
def test_what_is_no_duration_is_refused(text: Any) -> None:
    with pytest.raises(ValueError):
        read_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("64MiB", 64 * 2**20), ("1GB", 10**9), ("512KiB", 2**19), ("7", 7), ("7B", 7), (4096, 4096), ("1.5KiB", 1536)],
)
def test_sizes_are_read_exactly(text: Any, size: int) -> None:
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "64 mib", "0.5B", "-1", "1.3B", "9XB", True])
def test_what_is_no_size_is_refused(text: Any) -> None:
    with pytest.raises(ValueError):
        read_size(text)


@given(st.integers(min_value=0, max_value=10**12))
def test_a_duration_shown_is_read_back_the_same(microseconds: int) -> None:
    seconds = microseconds / 1_000_000
    assert read_duration(show_duration(seconds)) == seconds


@given(st.integers(min_value=0, max_value=2**50))
def test_a_size_shown_is_read_back_the_same(size: int) -> None:
    assert read_size(show_size(size)) == size


@pytest.mark.parametrize(
    ("hint", "raw", "value"),
    [
        (bool, "yes", True),
        (bool, "off", False),
        (bool, True, True),
        (int, "1_000", 1000),
        (int, 5, 5),
        (float, "0.25", 0.25),
        (float, 3, 3.0),
        (str, "a=b", "a=b"),
        (Path, "/x/y", Path("/x/y")),
        (int | None, "none", None),
        (int | None, "", None),
        (int | None, "4", 4),
        (Path | None, "/x", Path("/x")),
        (Seconds, "2s", 2.0),
        (Seconds | None, "2s", 2.0),
        (Bytes, "1KiB", 1024),
        (tuple[str, ...], "a, b ,c", ("a", "b", "c")),
        (tuple[str, ...], ["a", "b"], ("a", "b")),
        (tuple[int, ...], "", ()),
        (tuple[Seconds, ...], "1s,250ms", (1.0, 0.25)),
        (Literal["text", "json"], "json", "json"),
        (Mapping[str, str], {"zone": "eu"}, {"zone": "eu"}),
    ],
)
def test_each_kind_reads_text_and_typed_values(hint: Any, raw: Any, value: Any) -> None:
    assert kind_of(hint).read(raw) == value


@pytest.mark.parametrize(
    ("hint", "raw"),
    [
        (bool, "maybe"),
        (bool, 1),
        (int, "1.5"),
        (int, True),
        (int, 1.0),
        (float, True),
        (float, "nan"),
        (str, 5),
        (Path, ""),
        (tuple[int, ...], "1,x"),
        (Literal["text", "json"], "xml"),
        (Mapping[str, str], "zone=eu"),
        (Mapping[str, int], {"a": "b"}),
    ],
)
def test_each_kind_refuses_what_it_is_not(hint: Any, raw: Any) -> None:
    with pytest.raises(ValueError):
        kind_of(hint).read(raw)


@pytest.mark.parametrize("hint", [dict, list[str], int | str, tuple[int, str], Mapping[int, str], object])
def test_a_field_of_another_type_is_a_programming_error(hint: Any) -> None:
    with pytest.raises(TypeError):
        kind_of(hint)


def test_values_are_shown_as_they_are_written() -> None:
    assert kind_of(Seconds | None).show(None) == "none"
    assert kind_of(tuple[Seconds, ...]).show((0.25, 3600.0)) == "250ms,1h"
    assert kind_of(bool).show(True) == "true"
    assert kind_of(Mapping[str, str]).show({"b": "2", "a": "1"}) == "a=1,b=2"
