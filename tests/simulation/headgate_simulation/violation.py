"""How a broken invariant is told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

from headgate_simulation.loop import SimulationError


class Violation(SimulationError):
    """An invariant is broken. `about` are the names and uids whose story is worth telling."""

    def __init__(self, invariant: str, message: str, about: Iterable[str] = ()) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.about = tuple(about)


def fail(invariant: str, message: str, about: Iterable[str] = ()) -> NoReturn:
    raise Violation(invariant, message, about)
