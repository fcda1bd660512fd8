"""The legal transitions of queries and fragments: the one table that code, database triggers and docs are made from."""

from __future__ import annotations

from dataclasses import dataclass

QUERY_STATES = ("PENDING", "DEPLOYING", "RUNNING", "STOPPING", "STOPPED", "TERMINATED", "FAILED")
QUERY_ENDED = ("STOPPED", "TERMINATED", "FAILED")
DESIRED_STATES = ("RUNNING", "STOPPED", "DROPPED")
FRAGMENT_STATES = (
    "PENDING",
    "REGISTERED",
    "STARTED",
    "RUNNING",
    "STOPPED",
    "TERMINATED",
    "FAILED",
)
FRAGMENT_ENDED = ("STOPPED", "TERMINATED", "FAILED")

# From, to, and when. A query is deleted only from an ended state.
QUERY_TRANSITIONS: dict[tuple[str, str], str] = {
    ("PENDING", "DEPLOYING"): "the reconciler takes it up",
    ("PENDING", "STOPPING"): "it is stopped, dropped or past its deadline before it was taken up",
    ("DEPLOYING", "RUNNING"): "every fragment is confirmed running, or has ended by itself, complete",
    ("DEPLOYING", "STOPPING"): "it is stopped or dropped, has failed for good, or has ended by itself",
    ("RUNNING", "DEPLOYING"): "an agent became unreachable or restarted, or a fragment must start again",
    ("RUNNING", "STOPPING"): "it is stopped or dropped, has failed for good, or has ended by itself",
    ("STOPPING", "STOPPED"): "every fragment is gone, as was asked for",
    ("STOPPING", "TERMINATED"): "every fragment ended by itself and is gone",
    ("STOPPING", "FAILED"): "every fragment is gone, after a failure",
}

# A change to PENDING is a new epoch. Everything else happens within one.
FRAGMENT_TRANSITIONS: dict[tuple[str, str], str] = {
    ("PENDING", "REGISTERED"): "the agent has the plan",
    ("REGISTERED", "STARTED"): "the agent accepted the start",
    ("REGISTERED", "RUNNING"): "the agent reports it running, though the answer to the start was lost",
    ("STARTED", "RUNNING"): "the agent reports it running",
    ("RUNNING", "STARTED"): "its agent restarted with it, and it is not up again yet",
    ("REGISTERED", "TERMINATED"): "it ended by itself, complete, before the answer to the start was seen",
    ("STARTED", "TERMINATED"): "it ended by itself, complete",
    ("RUNNING", "TERMINATED"): "it ended by itself, complete",
    ("PENDING", "FAILED"): "the agent refused the plan for good",
    ("REGISTERED", "FAILED"): "the agent refused the start for good, or reports it broken",
    ("STARTED", "FAILED"): "the agent reports it broken",
    ("RUNNING", "FAILED"): "the agent reports it broken",
    ("PENDING", "STOPPED"): "it was stopped, or its agent is gone for good",
    ("REGISTERED", "STOPPED"): "it was stopped, or its agent is gone for good",
    ("STARTED", "STOPPED"): "it was stopped, or its agent is gone for good",
    ("RUNNING", "STOPPED"): "it was stopped, or its agent is gone for good",
    ("REGISTERED", "PENDING"): "its agent restarted without it, or it moves: new epoch",
    ("STARTED", "PENDING"): "its agent restarted without it, or it moves: new epoch",
    ("RUNNING", "PENDING"): "its agent restarted without it, or it moves: new epoch",
    ("STOPPED", "PENDING"): "its agent is gone for good, or stopped it unasked: new epoch",
    ("FAILED", "PENDING"): "the failure may pass: new epoch",
}


@dataclass(frozen=True, slots=True)
class WaitingRow:
    """What a waiting reason means, for the docs."""

    while_in: str
    meaning: str
    also_known_as: str = ""


# As WaitingReason names them.
WAITING_REASONS: dict[str, WaitingRow] = {
    "ACCEPTED": WaitingRow("PENDING", "accepted; the reconciler has not looked yet"),
    "FRAGMENTS_STARTING": WaitingRow("DEPLOYING", "some fragments are not running yet", "PARTIALLY_DEPLOYED"),
    "AGENT_UNREACHABLE": WaitingRow("DEPLOYING", "an agent does not answer, and a fragment waits for it"),
    "RETRYING": WaitingRow("DEPLOYING, STOPPING", "a call or a run failed; the next try waits for its back-off"),
    "NO_CAPACITY": WaitingRow("DEPLOYING, STOPPING", "a fragment must move, and no agent has room for it"),
    "DRAINING": WaitingRow("STOPPING", "what is in flight is being emitted"),
    "FRAGMENTS_STOPPING": WaitingRow("STOPPING", "fragments are being stopped", "TERMINATING"),
    "STOP_BLOCKED": WaitingRow(
        "STOPPING", "a fragment cannot be stopped, because its agent does not answer", "STOPPING_STUCK"
    ),
}
