"""What refers to a resource that someone wants to drop, told so that a person knows what to drop first.

The list in an error is bounded; the count is not. Each reference is a `PreconditionFailure` violation too, for
programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from google.rpc import error_details_pb2
from sqlalchemy import Select, func, select

from headgate_common.errors import HeadgateError, Reason
from headgate_coordinator.catalog.tx import Tx

# How many references of one kind an error names.
NAMED = 20


@dataclass(frozen=True, slots=True)
class References:
    """References of one kind: the first few by name, each with its state where it has one, and how many there are."""

    kind: str
    named: tuple[tuple[str, str], ...]
    count: int

    def sentence(self) -> str:
        listed = ", ".join(f"{name} ({state})" if state else name for name, state in self.named)
        more = self.count - len(self.named)
        rest = f" and {more} more" if more else ""
        noun = self.kind if self.count == 1 else _PLURALS.get(self.kind, self.kind + "s")
        return f"{self.count} {noun}: {listed}{rest}"


_PLURALS = {"query": "queries"}


def find(tx: Tx, kind: str, statement: Select[str, str]) -> References | None:
    """Runs a select of (name, state) pairs; None where it finds nothing."""
    rows = tx.connection.execute(statement.order_by(statement.selected_columns[0]).limit(NAMED + 1)).all()
    if not rows:
        return None
    count = len(rows)
    if count > NAMED:
        count = tx.connection.execute(
            select(func.count()).select_from(statement.order_by(None).subquery())
        ).scalar_one()
    return References(kind, tuple((name, state) for name, state in rows[:NAMED]), count)


def in_use(reason: Reason, what: str, references: Sequence[References]) -> HeadgateError:
    """The error that refuses a drop: `what` is in use by `references`, of which there is at least one."""
    failure = error_details_pb2.PreconditionFailure()
    for group in references:
        for name, state in group.named:
            failure.violations.add(type=group.kind, subject=name, description=state)
    message = f"{what} is in use by " + "; by ".join(group.sentence() for group in references)
    return HeadgateError(
        reason,
        message,
        metadata={"count": str(sum(group.count for group in references))},
        details=[failure],
    )
