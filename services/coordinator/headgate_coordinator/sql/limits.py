"""What the coordinator accepts of a statement before it looks at what it means."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from headgate_coordinator.sql.types.schema import SchemaLimits


@dataclass(frozen=True, slots=True)
class StatementLimits:
    """Bounds on one text of statements. They keep time and memory bounded whatever is sent."""

    # Characters of the whole text.
    max_length: int = 1_048_576
    # Words, signs and literals of the whole text.
    max_tokens: int = 50_000
    # Statements in one text.
    max_statements: int = 1_000
    # Nesting of brackets, sub-selects and CASE, and height of an expression's tree.
    max_depth: int = 64
    # Terms of one chain of AND, OR, +, UNION ALL and the like.
    max_chain: int = 400
    schema: SchemaLimits = field(default_factory=SchemaLimits)
    # Of KAFKA sources and sinks that name none, which are refused without.
    kafka_brokers: str = ""


# sqlglot descends some 25 calls for each level of nesting, later steps fewer. Calls between Python functions take no C
# stack, so the interpreter's own limit may be raised. It is never lowered again: other threads may rely on it.
_RECURSION_LIMIT = 10_000


def make_room_for_recursion() -> None:
    """Lets the interpreter descend as far as a statement within the limits needs."""
    if sys.getrecursionlimit() < _RECURSION_LIMIT:
        sys.setrecursionlimit(_RECURSION_LIMIT)
