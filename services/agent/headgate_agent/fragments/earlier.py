"""What this process remembers of runs of a fragment that are over, for the next one."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.catalog import v1 as catalog


@dataclass(frozen=True, slots=True)
class Losses:
    """Rows that a query did not count, which a user adds up over runs."""

    rows_late: int = 0
    bad_records: int = 0


class EarlierRuns:
    """By uid of the fragment. Contract: `has_ended` is true only where no run of that epoch or an earlier one can still
    write anything; of what happened elsewhere, or before this process, it knows nothing."""

    def __init__(self) -> None:
        self._ended: dict[str, int] = {}
        self._losses: dict[str, Losses] = {}

    def ended(self, uid: str, epoch: int) -> None:
        self._ended[uid] = max(epoch, self._ended.get(uid, 0))

    def has_ended(self, uid: str, epoch: int) -> bool:
        return epoch <= self._ended.get(uid, 0)

    def losses(self, uid: str) -> Losses:
        """Those of all runs that are over."""
        return self._losses.get(uid, Losses())

    def keep(self, uid: str, last: catalog.FragmentProgress) -> None:
        """Takes the last progress of a run, which has the losses of those before it in it."""
        self._losses[uid] = Losses(last.rows_late, last.bad_records)

    def forget(self, uid: str) -> None:
        self._ended.pop(uid, None)
        self._losses.pop(uid, None)
