"""Blocks of segments in memory, so that consumers which follow each other cost one read of the object store.

A block that is asked for once stays on probation; one that is asked for again is kept. So a consumer that reads a long
history, each block once, evicts its own blocks and not those that others come back to.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import NamedTuple


class BlockKey(NamedTuple):
    object_key: str
    position: int


# What probation may take of the whole: room for a burst of readers one behind the other.
_PROBATION_SHARE = 0.3


@dataclass(slots=True)
class BlockCache:
    capacity: int
    hits: int = 0
    misses: int = 0
    _probation: OrderedDict[BlockKey, bytes] = field(default_factory=OrderedDict)
    _kept: OrderedDict[BlockKey, bytes] = field(default_factory=OrderedDict)
    _probation_bytes: int = 0
    _kept_bytes: int = 0

    @property
    def size(self) -> int:
        return self._probation_bytes + self._kept_bytes

    def get(self, key: BlockKey) -> bytes | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            self.hits += 1
            return found
        found = self._probation.pop(key, None)
        if found is None:
            self.misses += 1
            return None
        self.hits += 1
        self._probation_bytes -= len(found)
        self._kept[key] = found
        self._kept_bytes += len(found)
        self._shrink()
        return found

    def put(self, key: BlockKey, data: bytes) -> None:
        if key in self._kept or key in self._probation or len(data) > self.capacity:
            return
        self._probation[key] = data
        self._probation_bytes += len(data)
        self._shrink()

    def _shrink(self) -> None:
        while self.size > self.capacity:
            if self._probation and (self._probation_bytes > self.capacity * _PROBATION_SHARE or not self._kept):
                self._probation_bytes -= len(self._probation.popitem(last=False)[1])
            else:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1])
