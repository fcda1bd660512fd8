"""The legal transitions of a transfer: the one table that code, database triggers and docs are made from."""

from __future__ import annotations

TRANSFER_STATES = ("PENDING", "ACCEPTED", "COMPLETED", "REJECTED", "FAILED")
TRANSFER_OPEN = ("PENDING", "ACCEPTED")
TRANSFER_ENDED = ("COMPLETED", "REJECTED", "FAILED")

# From, to, and when. A transfer begins PENDING, and at most one of a partition is open.
TRANSFER_TRANSITIONS: dict[tuple[str, str], str] = {
    ("PENDING", "ACCEPTED"): "the other agent will lead",
    ("PENDING", "REJECTED"): "the other agent does not want to",
    ("PENDING", "FAILED"): "the leader gives it up, one of the two is gone, or it took too long",
    ("ACCEPTED", "COMPLETED"): "the leader has flushed, and its grant has passed on with a new epoch",
    ("ACCEPTED", "REJECTED"): "the other agent has changed its mind",
    ("ACCEPTED", "FAILED"): "the leader gives it up, one of the two is gone, or it took too long",
}


def may_become(state: str, following: str) -> bool:
    return (state, following) in TRANSFER_TRANSITIONS
