"""A transport for tests of what the command line does with answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate_common.dispatch import Method


class Script:
    """A transport that answers what it was told to, in order, and remembers what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, Any]] = []

    async def call(self, address: str, method: Method, request: Message, *, timeout: float) -> Message:
        self.asked.append((address, request))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Message)
        return answer

    async def stream(
        self, address: str, method: Method, request: Message, *, timeout: float | None
    ) -> AsyncIterator[Message]:
        copied = catalog.WatchRequest.FromString(request.SerializeToString())
        self.asked.append((address, copied))
        for answer in self.answers.pop(0):
            if isinstance(answer, Exception):
                raise answer
            yield answer
