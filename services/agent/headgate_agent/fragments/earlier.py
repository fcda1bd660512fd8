"""What this process remembers of runs of a fragment that are over, for the next one."""

from __future__ import annotations


class EarlierRuns:
    """By uid of the fragment. Contract: `has_ended` is true only where no run of that epoch or an earlier one can still
    write anything; of what happened elsewhere, or before this process, it knows nothing."""

    def __init__(self) -> None:
        self._ended: dict[str, int] = {}

    def ended(self, uid: str, epoch: int) -> None:
        self._ended[uid] = max(epoch, self._ended.get(uid, 0))

    def has_ended(self, uid: str, epoch: int) -> bool:
        return epoch <= self._ended.get(uid, 0)

    def forget(self, uid: str) -> None:
        self._ended.pop(uid, None)
