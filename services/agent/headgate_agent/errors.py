"""Every reason that an agent answers with, beyond the common ones."""

from __future__ import annotations

from grpc import StatusCode

from headgate_common.errors import COMMON, ReasonTable

REASONS = ReasonTable(COMMON)
_r = REASONS.declare

STALE_TERM = _r(
    "STALE_TERM",
    StatusCode.ABORTED,
    "The command comes from a coordinator that no longer leads: the agent has obeyed a higher term.",
)
STALE_EPOCH = _r("STALE_EPOCH", StatusCode.ABORTED, "The agent knows a later run, or has forgotten this one.")
WRONG_INCARNATION = _r(
    "WRONG_INCARNATION", StatusCode.ABORTED, "The command is for another process than the one that answers."
)
FRAGMENT_NOT_REGISTERED = _r(
    "FRAGMENT_NOT_REGISTERED", StatusCode.NOT_FOUND, "The agent does not have the plan of that run."
)
PLAN_UNSUPPORTED = _r(
    "PLAN_UNSUPPORTED", StatusCode.FAILED_PRECONDITION, "The agent has nothing that could run the fragment."
)
JOURNAL_UNAVAILABLE = _r(
    "JOURNAL_UNAVAILABLE",
    StatusCode.UNAVAILABLE,
    "The agent could not write down what it was told, so it did not do it.",
    "Free space on the agent's data volume; the coordinator tries again.",
)
JOURNAL_CORRUPT = _r(
    "JOURNAL_CORRUPT",
    StatusCode.DATA_LOSS,
    "The agent's journal is damaged in the middle, so what it was told to run is not known.",
    "Move the file away: the agent then starts empty, and the coordinator gives it its fragments again.",
)
DATA_IN_USE = _r(
    "DATA_IN_USE",
    StatusCode.FAILED_PRECONDITION,
    "Another process uses the agent's data folder.",
    "Give each agent its own.",
)
