"""All clients of an agent, and its session, share one event loop: a request of many items lets the others have their
turn now and then, and a long answer is written beside the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

USUAL = 500


class Turns:
    """Counted, not timed, so that what happens does not depend on how fast the machine is."""

    __slots__ = ("_items", "_left")

    def __init__(self, items: int = USUAL) -> None:
        self._items = self._left = items

    async def pass_on(self, items: int = 1) -> None:
        """To be awaited before each item, or before one that counts for several."""
        self._left -= items
        if self._left < 0:
            self._left = self._items
            await asyncio.sleep(0)


def is_long(values: Any, items: int) -> bool:
    """Whether an answer has more than so many items. Looks at no more of it than it must to say so."""
    return _count(values, items) < 0


def _count(value: Any, left: int) -> int:
    inner = value.values() if isinstance(value, Mapping) else value
    for one in inner:
        if left < 0:
            break
        if isinstance(one, Mapping | list | tuple):
            left = _count(one, left if isinstance(value, Mapping) else left - 1)
        elif not isinstance(value, Mapping):
            left -= 1
    return left
