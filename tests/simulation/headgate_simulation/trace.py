"""What happened in a run, in order, with a running hash of every byte of it.

Contract: `note` appends one event; two runs of one seed give the same bytes and so the same `digest`. Events name the
entities they concern, so that a failure can be told as the story of those entities alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from hashlib import blake2b

FOLD = 512


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `about` are the names and uids of the entities concerned."""

    time: float
    where: str
    what: str
    about: tuple[str, ...]
    detail: str

    def __str__(self) -> str:
        about = " ".join(self.about)
        return (
            f"{self.time:12.6f}  {self.where:<12} {self.what:<22} {about}{'  ' if about else ''}{self.detail}".rstrip()
        )


class Trace:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._events: list[tuple[float, str, str, tuple[str, ...], str]] = []
        self._folded = 0
        self._hash = blake2b(digest_size=16)

    def note(self, where: str, what: str, *about: str, detail: str = "") -> None:
        self._events.append((self._now(), where, what, about, detail))
        if len(self._events) - self._folded >= FOLD:
            self._fold()

    def _pending(self) -> bytes:
        """Numbers and texts have one `repr`, in every process."""
        return repr(self._events[self._folded :]).encode()

    def _fold(self) -> None:
        self._hash.update(self._pending())
        self._folded = len(self._events)

    @property
    def digest(self) -> str:
        total = self._hash.copy()
        total.update(self._pending())
        return total.hexdigest()

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[Event]:
        return (Event(*event) for event in self._events)

    def story(self, about: Collection[str], last: int = 60) -> list[Event]:
        """The last events that concern any of the given names or uids; all events where none is given."""
        wanted = set(about)
        chosen = [Event(*e) for e in self._events if not wanted or e[1] in wanted or not wanted.isdisjoint(e[3])]
        return chosen[-last:]
