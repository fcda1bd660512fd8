"""What people are told to do is something that they can do."""

from __future__ import annotations

import pytest

from headgate_cli.failures import report
from headgate_common.errors import DEADLINE_EXCEEDED, OVERLOADED, UNREACHABLE, HeadgateError, Reason
from headgate_coordinator.errors import CATALOG_UNCERTAIN


@pytest.mark.parametrize("reason", [UNREACHABLE, DEADLINE_EXCEEDED, CATALOG_UNCERTAIN], ids=lambda each: each.name)
def test_nobody_is_told_to_use_an_id_that_the_command_line_makes_itself(
    reason: Reason, capsys: pytest.CaptureFixture[str]
) -> None:
    report(HeadgateError(reason, "reset"))
    told = capsys.readouterr().err
    assert "request_id" not in told and "try again" in told
    assert ("--rpc-timeout" in told) is (reason is DEADLINE_EXCEEDED)


def test_other_advice_is_given_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    report(HeadgateError(OVERLOADED, "busy"))
    assert OVERLOADED.advice in capsys.readouterr().err
