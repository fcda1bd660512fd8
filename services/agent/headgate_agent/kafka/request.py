"""A decoded request, as the families of requests get it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from headgate_agent.kafka.codec import Header, milliseconds
from headgate_agent.kafka.config import KafkaLimits
from headgate_agent.kafka.errors import KafkaError
from headgate_agent.kafka.turns import USUAL, Turns


@dataclass(frozen=True, slots=True)
class Deadline:
    """When the time of a request is up, by the event loop's clock. What a request asks for one after the other shares
    it: its client waits for all of it."""

    at: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        return cls(asyncio.get_running_loop().time() + seconds)

    def left(self) -> float:
        """Seconds; REQUEST_TIMED_OUT if there are none."""
        left = self.at - asyncio.get_running_loop().time()
        if left <= 0:
            raise KafkaError(ErrorCode.request_timed_out, "the request's time was up before this was begun")
        return left


@dataclass(frozen=True, slots=True)
class Request:
    """`body` is kio's dataclass of the request's version."""

    header: Header
    body: Any
    host: str
    # After so many items others have their turn.
    turn_items: int = USUAL

    def turns(self) -> Turns:
        return Turns(self.turn_items)

    @property
    def version(self) -> int:
        return self.header.version

    def get(self, name: str, default: Any) -> Any:
        """A field that not every version has."""
        return getattr(self.body, name, default)

    def within(self, limits: KafkaLimits) -> float:
        """Seconds that an administrative request may take: as its client asks, within the limits."""
        return min(max(milliseconds(self.body.timeout) / 1000, limits.timeout_min), limits.admin_timeout)

    def deadline(self, limits: KafkaLimits) -> Deadline:
        """When the time of an administrative request is up."""
        return Deadline.after(self.within(limits))
