"""Calls of `headgate.log.v1.EdgeService`, for tasks and for the driver alike."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from headgate_engine.executor.channels import (
    PATIENCE_SECONDS,
    Certificates,
    GivenUp,
    Patience,
    answer_to,
    channel_to,
    error_of,
    never,
)
from headgate_engine.executor.wire import (
    EdgeError,
    Partition,
    put,
    put_item,
    put_packed,
    read_partition,
    take,
    writer_ref,
)

STAGE_BYTES = 4 * 2**20
_SERVICE = "/headgate.log.v1.EdgeService/"
# A range that takes longer is gone on with by another call.
_READ_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Access:
    """An edge, who works on it, and how its agent is called. Travels in the options of a data source as JSON."""

    address: str
    topic_uid: str
    partitions: int
    fragment_uid: str
    epoch: int
    # PEM texts, as in Certificates.
    ca: str = ""
    certificate: str = ""
    key: str = ""
    # How long a call is repeated whose failure may pass, in seconds.
    patience: float = PATIENCE_SECONDS

    def to_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @property
    def ref(self) -> bytes:
        return writer_ref(self.fragment_uid, self.epoch)

    @property
    def certificates(self) -> Certificates:
        return Certificates(self.ca, self.certificate, self.key)


def told_by(file: str) -> GivenUp:
    """Gives up once the driver has made this file; never where there is none to look at."""
    if not file:
        return never
    path = Path(file)
    return path.exists


# Where edges were found, by uid of the topic, after the agent that was named did not lead them any more.
_moved: dict[str, str] = {}


class EdgeClient:
    """The calls of EdgeService. Each is repeated while its failure may pass; EdgeError is raised otherwise."""

    def __init__(self, access: Access, patience: float | None = None, given_up: GivenUp = never) -> None:
        """`patience` is that of the access where it is not given. `given_up` is asked while a call takes its time."""
        self._access = access
        self._patience = access.patience if patience is None else patience
        self._given_up = given_up

    def open_writer(self, topic_uids: Sequence[str]) -> int:
        """The last batch that was committed; -1 if none was."""
        request = put_item(1, self._access.ref) + b"".join(put_item(2, uid.encode()) for uid in topic_uids)
        return int(dict(take(self._call("OpenWriter", request))).get(1, 0))

    def stage(self, topic_uid: str, partition: int, records: Sequence[bytes]) -> str:
        """Makes records durable and invisible; answers the id under which a commit names them."""

        def attempt() -> str:
            # An attempt that may have happened is never named: the next one has an id of its own.
            stage_id = uuid.uuid4().hex
            self._once("Stage", self._stage_request(stage_id, topic_uid, partition, records))
            return stage_id

        return str(self._patiently(attempt, "Stage"))

    def _stage_request(self, stage_id: str, topic_uid: str, partition: int, records: Sequence[bytes]) -> bytes:
        head = put_item(1, self._access.ref) + put(2, stage_id) + put(3, topic_uid) + put(4, partition)
        return b"".join((head, *(put_item(5, record) for record in records)))

    def commit(self, batch_id: int, stage_ids: Sequence[str], *, end: bool = False) -> bool:
        """Makes stages visible; says whether the batch had been committed before."""
        request = put_item(1, self._access.ref) + put(2, batch_id)
        request += b"".join(put_item(3, stage.encode()) for stage in stage_ids) + put(4, int(end))
        return bool(dict(take(self._call("CommitBatch", request))).get(1, 0))

    def get(self) -> list[Partition]:
        raw = self._call("GetEdge", put(1, self._access.topic_uid))
        return [read_partition(value) for number, value in take(raw) if number == 1]

    def trim(self, log_starts: Sequence[int]) -> None:
        request = put(1, self._access.topic_uid) + put_item(2, self._access.ref) + put_packed(3, log_starts)
        self._call("TrimEdge", request)

    def read(self, partition: int, start: int, until: int) -> Iterator[tuple[bytes | memoryview, bool]]:
        """Every record from `start` on, before `until`, with whether it is the end of the partition."""
        at = start
        attempt_from = -1
        patience = Patience(self._patience, self._given_up)
        while at < until:
            if at != attempt_from:
                attempt_from, patience = at, Patience(self._patience, self._given_up)
            what = f"reading partition {partition} at {self.address}"
            request = put(1, self._access.topic_uid) + put(2, partition) + put(3, at) + put(4, until)
            call: Any = self._channel().unary_stream(f"{_SERVICE}ReadEdge")
            try:
                for answer in call(request, timeout=_READ_SECONDS):
                    ended, records = False, []
                    offset = at
                    for number, value in take(answer):
                        if number == 1:
                            offset = value
                        elif number == 2:
                            records.append(value)
                        elif number == 3:
                            ended = bool(value)
                    if offset != at:
                        raise EdgeError("DATA_LOSS", f"{what}: asked for offset {at}, got {offset}")
                    for index, record in enumerate(records):
                        yield record, ended and index == len(records) - 1
                    at += len(records)
                if at < until and at == attempt_from:
                    raise EdgeError("DATA_LOSS", f"{what}: offsets {at} to {until} are not there")
            except grpc.RpcError as raised:
                error = error_of(raised, what)
                self._follow(error)
                patience.wait(error)

    @property
    def address(self) -> str:
        """Where the edge is, as far as is known."""
        return _moved.get(self._access.topic_uid, self._access.address)

    def _channel(self) -> grpc.Channel:
        return channel_to(self.address, self._access.certificates)

    def _follow(self, error: EdgeError) -> None:
        """Goes to the leader that an answer names; back to the one of the plan when that is of no use."""
        if error.reason == "NOT_LEADER" and error.leader_address:
            _moved[self._access.topic_uid] = error.leader_address
        else:
            _moved.pop(self._access.topic_uid, None)

    def _call(self, method: str, request: bytes) -> bytes:
        return bytes(self._patiently(lambda: self._once(method, request), method))

    def _once(self, method: str, request: bytes) -> bytes:
        return answer_to(self._channel(), _SERVICE + method, request, self._given_up)

    def _patiently(self, call: Callable[[], Any], method: str) -> Any:
        patience = Patience(self._patience, self._given_up)
        while True:
            try:
                return call()
            except grpc.RpcError as raised:
                error = error_of(raised, f"{method} at {self.address}")
            self._follow(error)
            patience.wait(error)
