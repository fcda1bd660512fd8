"""What an agent's answer to a call means: it worked, it may work later, it never will, or the agent lost the fragment.

The reason decides where it is known; otherwise the gRPC code does, so that a new reason of an agent needs no change
here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from grpc import StatusCode

from headgate_common.errors import HeadgateError
from headgate_coordinator.query.views import Call

Outcome = Literal["TRANSIENT", "REFUSED", "LOST"]

# Worth another try, after a while.
TRANSIENT: Outcome = "TRANSIENT"
# The agent will never do it.
REFUSED: Outcome = "REFUSED"
# The agent does not know this run, or knows a later one: another epoch is needed.
LOST: Outcome = "LOST"

_LOST = frozenset({"FRAGMENT_NOT_REGISTERED", "STALE_EPOCH"})
# Typed refusals that pass: another coordinator leads, or the agent's process is another one than was thought.
_PASSING = frozenset({"STALE_TERM", "WRONG_INCARNATION"})
_FINAL = frozenset(
    {
        StatusCode.INVALID_ARGUMENT,
        StatusCode.FAILED_PRECONDITION,
        StatusCode.UNIMPLEMENTED,
        StatusCode.OUT_OF_RANGE,
        StatusCode.PERMISSION_DENIED,
        StatusCode.UNAUTHENTICATED,
        StatusCode.ALREADY_EXISTS,
        StatusCode.NOT_FOUND,
        StatusCode.RESOURCE_EXHAUSTED,
        StatusCode.DATA_LOSS,
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call about a run ended; `error` is None if it worked."""

    call: Call
    fragment: str
    epoch: int
    agent_uid: str
    incarnation: str
    error: HeadgateError | None


def classify(error: HeadgateError) -> Outcome:
    if error.reason.name in _LOST:
        return LOST
    if error.reason.name in _PASSING:
        return TRANSIENT
    return REFUSED if error.reason.code in _FINAL else TRANSIENT
