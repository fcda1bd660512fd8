"""Where fragments begin to read topics that they read from their end.

Found by the agent of the first run, and kept before that run reads anything, so that every run on any agent begins
there. The first one that is kept stays: a later caller, who found another end meanwhile, is told the first.
"""

from __future__ import annotations

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_coordinator.catalog import fragments
from headgate_coordinator.catalog.fragments import Changes
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import STALE_RUN


def keep_starts(tx: Tx, request: cluster.KeepStartsRequest) -> cluster.KeepStartsResponse:
    """Keeps them unless some are kept; answers those that are. STALE_RUN for a run that is not the current one."""
    fragment = fragments.by_uid(tx, [request.uid]).get(request.uid)
    if fragment is None or fragment.epoch != request.epoch or fragment.ended:
        now = f"epoch {fragment.epoch} is {fragment.state}" if fragment is not None else "there is no such fragment"
        raise HeadgateError(STALE_RUN, f"epoch {request.epoch} of fragment {request.uid} does not begin now: {now}")
    if fragment.kind != "COMPUTE":
        raise HeadgateError(INVALID_ARGUMENT, f"fragment {request.uid} is a {fragment.kind}, and reads no topics")
    if fragment.starts is None:
        kept = catalog.Fragment(starts=request.starts).SerializeToString(deterministic=True)
        changes = Changes(tx)
        changes.set(fragment, f"it begins to read at {_told(request)}", starts=kept)
        changes.flush()
    return cluster.KeepStartsResponse(starts=fragment.message().starts)


# Partitions that are told of one topic, and topics; the resource itself has all.
_MOST = 16


def _told(request: cluster.KeepStartsRequest) -> str:
    """For the story."""
    topics = [f"{one.physical_source} {_offsets(one)}" for one in request.starts[:_MOST]]
    more = len(request.starts) - len(topics)
    return ", ".join(topics) + (f" and {more} more" if more else "")


def _offsets(start: catalog.TopicStart) -> str:
    shown = " ".join(f"{index}:{offset}" for index, offset in enumerate(start.offsets[:_MOST]))
    more = len(start.offsets) - _MOST
    return f"{shown} and {more} more" if more > 0 else shown
