"""What an agent remembers of a fragment, and how that is written to and read from its journal.

A record is a letter and a message: R a registration, S a start, D a soft stop, E an end, U what must not come back,
T a term. What a process was told is what its journal says from the first record to the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_agent.fragments.runner import Report, Run

REGISTERED = catalog.FRAGMENT_STATE_REGISTERED
STARTED = catalog.FRAGMENT_STATE_STARTED
ENDED = (catalog.FRAGMENT_STATE_STOPPED, catalog.FRAGMENT_STATE_TERMINATED, catalog.FRAGMENT_STATE_FAILED)


@dataclass(slots=True)
class Held:
    """A registered fragment. `version` is that of its last change."""

    request: cluster.RegisterFragmentRequest
    state: catalog.FragmentState.ValueType
    since: datetime
    version: int
    draining: bool = False
    error: cluster.FragmentError | None = None
    run: Run | None = None
    # How the run ended, while that is not durable yet.
    ending: Report | None = None
    # What it waits for before it can be RUNNING.
    waiting: str = ""
    # How it was doing when the coordinator was last told.
    told: catalog.FragmentProgress | None = None
    # How it had done when its run ended.
    last: catalog.FragmentProgress | None = None

    @property
    def uid(self) -> str:
        return self.request.fragment.uid

    @property
    def epoch(self) -> int:
        return self.request.fragment.epoch

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def status(self) -> cluster.FragmentStatus:
        since = Timestamp()
        since.FromDatetime(self.since)
        return cluster.FragmentStatus(
            fragment=self.request.fragment,
            query_uid=self.request.query_uid,
            state=self.state,
            error=self.error,
            since=since,
            waiting=self.waiting,
            progress=self.last if self.ended else None,
        )


@dataclass(slots=True)
class Restored:
    """What a journal says."""

    term: int = 0
    # Forgotten fragments: the highest epoch that must not come back, and the term in which it was forgotten.
    tombstones: dict[str, tuple[int, int]] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)


def snapshot(term: int, tombstones: Mapping[str, tuple[int, int]], fragments: Iterable[Held]) -> list[bytes]:
    """The shortest journal that says the same."""
    records = [b"T" + cluster.Command(term=term).SerializeToString()]
    for uid, (epoch, forgotten_in) in tombstones.items():
        forgotten = cluster.UnregisterFragmentRequest(
            command=cluster.Command(term=forgotten_in), fragment=cluster.FragmentRef(uid=uid, epoch=epoch)
        )
        records.append(b"U" + forgotten.SerializeToString())
    for held in fragments:
        records.append(b"R" + held.request.SerializeToString())
        if held.state != REGISTERED and not held.ended:
            records.append(b"S" + held.request.fragment.SerializeToString())
        if held.draining:
            records.append(b"D" + held.request.fragment.SerializeToString())
        if held.ended:
            ended = cluster.FragmentStatus(fragment=held.request.fragment, state=held.state, error=held.error)
            records.append(b"E" + ended.SerializeToString())
    return records


def replay(records: Iterable[bytes], now: datetime) -> Restored:
    """What the records say, one after the other; `now` is since when fragments are in their states."""
    restored = Restored()
    for record in records:
        _replay(restored, record[:1], record[1:], now)
    return restored


def _replay(restored: Restored, tag: bytes, body: bytes, now: datetime) -> None:
    if tag == b"T":
        restored.term = max(restored.term, cluster.Command.FromString(body).term)
    elif tag == b"U":
        forgotten = cluster.UnregisterFragmentRequest.FromString(body)
        restored.tombstones[forgotten.fragment.uid] = (forgotten.fragment.epoch, forgotten.command.term)
        restored.held.pop(forgotten.fragment.uid, None)
    elif tag == b"R":
        request = cluster.RegisterFragmentRequest.FromString(body)
        restored.held[request.fragment.uid] = Held(request, REGISTERED, now, 0)
    elif tag == b"E":
        ended = cluster.FragmentStatus.FromString(body)
        held = _of(restored, ended.fragment)
        if held is not None:
            held.state = ended.state
            held.error = ended.error if ended.HasField("error") else None
    elif tag in (b"S", b"D"):
        held = _of(restored, cluster.FragmentRef.FromString(body))
        if held is not None and tag == b"S":
            held.state = STARTED
        elif held is not None:
            held.draining = True
    else:
        raise AssertionError(f"the journal has a record of an unknown kind {tag!r}")


def _of(restored: Restored, ref: cluster.FragmentRef) -> Held | None:
    held = restored.held.get(ref.uid)
    return held if held is not None and held.epoch == ref.epoch else None
