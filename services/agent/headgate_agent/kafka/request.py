"""A decoded request, as the families of requests get it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headgate_agent.kafka.codec import Header, milliseconds

# Clients that ask for less mean replicas, which there are none of.
_LEAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """`body` is kio's dataclass of the request's version."""

    header: Header
    body: Any
    host: str

    @property
    def version(self) -> int:
        return self.header.version

    def get(self, name: str, default: Any) -> Any:
        """A field that not every version has."""
        return getattr(self.body, name, default)

    def within(self, most: float) -> float:
        """Seconds that it may take: as its client asks, a second at least, and never more than `most`."""
        return min(max(milliseconds(self.body.timeout) / 1000, _LEAST_SECONDS), most)
