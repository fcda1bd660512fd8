"""How runs are doing, as their agents last told the leader: kept in memory, never written, gone with the term.

Of a fragment the last report of its highest epoch is kept; a report of a lower one comes from a run that was replaced,
and counts for nothing. What is kept of one that has ended is how it had done then. It goes when the catalog shows that
the fragment is gone or has a higher epoch, and beyond a bound the report that was heard longest ago: agents tell again
what has changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.changes import Revision
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.errors import REVISION_COMPACTED, WATCHER_TOO_SLOW


class Progress:
    def __init__(self, store: Store, *, limit: int) -> None:
        """Keeps reports of `limit` fragments at most."""
        self._store = store
        self._limit = limit
        # By uid, the one heard longest ago first.
        self._last: dict[str, cluster.FragmentReport] = {}

    async def run(self, term: int) -> None:
        """Follows the catalog until it is cancelled. What was heard in an earlier term is forgotten."""
        self._last.clear()
        try:
            while True:
                with self._store.changes.subscribe() as changes:
                    try:
                        async for revision in changes:
                            self._changed(revision)
                    except HeadgateError as error:
                        if error.reason not in (WATCHER_TOO_SLOW, REVISION_COMPACTED):
                            raise
                        # It is not known who has ended meanwhile: whoever still runs tells again.
                        self._last.clear()
        finally:
            self._last.clear()

    def report(self, reports: Iterable[cluster.FragmentReport]) -> None:
        """What an agent says of its runs."""
        for report in reports:
            known = self._last.get(report.uid)
            if known is not None and (known.epoch, _at(known)) > (report.epoch, _at(report)):
                continue
            self._last.pop(report.uid, None)
            self._last[report.uid] = report
        while len(self._last) > self._limit:
            del self._last[next(iter(self._last))]

    def of(self, fragment_uid: str, epoch: int) -> catalog.FragmentProgress | None:
        """How this run is doing; None if nobody has told."""
        known = self._last.get(fragment_uid)
        return known.progress if known is not None and known.epoch == epoch else None

    def _changed(self, revision: Revision) -> None:
        for change in revision.changes:
            if change.kind != "FRAGMENT":
                continue
            after = cast(catalog.Fragment | None, change.after)
            known = self._last.get(change.uid)
            if known is not None and (after is None or after.epoch > known.epoch):
                del self._last[change.uid]


def _at(report: cluster.FragmentReport) -> tuple[int, int]:
    """When it was, by the clock of its agent: what was sent first may come last."""
    time = report.progress.time
    return time.seconds, time.nanos
