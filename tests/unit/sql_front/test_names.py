"""One rule for names, quick and quiet on hostile input."""

from __future__ import annotations

import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate_common.errors import HeadgateError
from headgate_coordinator.errors import INVALID_NAME
from headgate_coordinator.sql.names import MAX_NAME, fold

FIRST = string.ascii_letters + "_"
REST = FIRST + string.digits + "-"


@settings(deadline=None)
@given(st.text(FIRST, min_size=1, max_size=1), st.text(REST, max_size=MAX_NAME - 1))
def test_names_within_the_rule_fold_to_lower_case(first: str, rest: str) -> None:
    assert fold(first + rest) == (first + rest).lower()


@settings(deadline=None)
@given(st.text(max_size=200))
def test_any_text_is_folded_by_the_rule_or_refused(text: str) -> None:
    within = 1 <= len(text) <= MAX_NAME and text[0] in FIRST and all(c in REST for c in text)
    if within:
        assert fold(text) == text.lower()
        return
    with pytest.raises(HeadgateError) as refused:
        fold(text)
    assert refused.value.reason is INVALID_NAME


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("a" * 64, id="long"),
        pytest.param("1a", id="digit_first"),
        pytest.param("-a", id="dash_first"),
        pytest.param("a b", id="space"),
        pytest.param("a.b", id="dot"),
        pytest.param("a\0", id="nul"),
        pytest.param("a\n", id="newline"),
        pytest.param("\u017fource", id="long_s"),
        pytest.param("\ufb01le", id="ligature"),
        pytest.param("\u212a", id="kelvin_sign_whose_lower_case_is_k"),
        pytest.param("\u0430", id="cyrillic"),
        pytest.param("x" * 10_000_000, id="ten_megabytes"),
        pytest.param("\0" * 10_000_000, id="ten_megabytes_of_nul"),
        pytest.param("\ud800", id="lone_surrogate"),
    ],
)
def test_hostile_names_are_refused_with_a_short_printable_message(name: str) -> None:
    with pytest.raises(HeadgateError) as refused:
        fold(name, "name of the sink")
    assert refused.value.reason is INVALID_NAME
    assert len(refused.value.message) < 300
    assert refused.value.message.isprintable() and refused.value.message.encode()
    assert refused.value.message.startswith("the name of the sink")
