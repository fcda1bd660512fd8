"""Calls of `headgate.log.v1.EdgeService`, for tasks and for the driver alike."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import grpc

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
_CALL_SECONDS = 20.0
_PATIENCE_SECONDS = 30.0
_RETRY_CAP_SECONDS = 1.0
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)


@dataclass(frozen=True, slots=True)
class Access:
    """An edge, who works on it, and how its agent is called. Travels in the options of a data source as JSON."""

    address: str
    topic_uid: str
    partitions: int
    fragment_uid: str
    epoch: int
    # PEM texts; empty for none. TLS is used where `ca` or a certificate is there.
    ca: str = ""
    certificate: str = ""
    key: str = ""

    def to_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @property
    def ref(self) -> bytes:
        return writer_ref(self.fragment_uid, self.epoch)


_channels: dict[tuple[str, str, str, str], grpc.Channel] = {}


def channel_to(access: Access) -> grpc.Channel:
    """One channel for each agent in a worker process, which runs many tasks."""
    key = (access.address, access.ca, access.certificate, access.key)
    if key not in _channels:
        if access.ca or access.certificate:
            parts = [text.encode() or None for text in (access.ca, access.key, access.certificate)]
            credentials = grpc.ssl_channel_credentials(*parts)
            _channels[key] = grpc.secure_channel(access.address, credentials, options=_OPTIONS)
        else:
            _channels[key] = grpc.insecure_channel(access.address, options=_OPTIONS)
    return _channels[key]


def edge_error(error: Any, what: str) -> EdgeError:
    """The reason out of google.rpc.Status, which holds google.rpc.ErrorInfo in its details."""
    code = error.code().name
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        for number, detail in take(value):
            if number != 3:
                continue
            fields = dict(take(detail))
            if bytes(fields.get(1, b"")).endswith(b"/google.rpc.ErrorInfo"):
                info = dict(take(fields.get(2, b"")))
                return EdgeError(bytes(info.get(1, b"")).decode() or code, error.details() or code)
    reason = "UNREACHABLE" if code in ("UNAVAILABLE", "CANCELLED", "UNKNOWN", "INTERNAL") else code
    return EdgeError(reason, f"{what}: {error.details() or code}")


# Nothing was done, or it may be done again: every call here is safe to repeat.
_PASSING = frozenset({"UNREACHABLE", "OVERLOADED", "SHUTTING_DOWN", "DEADLINE_EXCEEDED"})


class Patience:
    """How long a call whose failure may pass is repeated, with jitter and a cap."""

    def __init__(self, seconds: float, given_up: Callable[[], bool]) -> None:
        self._deadline = time.monotonic() + seconds
        self._given_up = given_up
        self._ceiling = 0.05

    def wait(self, error: EdgeError) -> None:
        """Returns when it is time to try again, or raises the error."""
        if error.reason not in _PASSING or time.monotonic() >= self._deadline or self._given_up():
            raise error
        time.sleep(random.uniform(0.0, self._ceiling))
        self._ceiling = min(self._ceiling * 2, _RETRY_CAP_SECONDS)


def never() -> bool:
    return False


class EdgeClient:
    """The calls of EdgeService. Each is repeated while its failure may pass; EdgeError is raised otherwise."""

    def __init__(
        self, access: Access, patience: float = _PATIENCE_SECONDS, given_up: Callable[[], bool] = never
    ) -> None:
        """`given_up` is asked before a call is repeated."""
        self._access = access
        self._channel = channel_to(access)
        self._patience = patience
        self._given_up = given_up

    def open_writer(self, topic_uids: Sequence[str]) -> int:
        """The last batch that was committed; -1 if none was."""
        request = put_item(1, self._access.ref) + b"".join(put_item(2, uid.encode()) for uid in topic_uids)
        return int(dict(take(self._call("OpenWriter", request))).get(1, 0))

    def stage(self, topic_uid: str, partition: int, records: Sequence[bytes]) -> str:
        """Makes records durable and invisible; answers the id under which a commit names them."""
        call: Any = self._channel.unary_unary(f"{_SERVICE}Stage")

        def attempt() -> str:
            # An attempt that may have happened is never named: the next one has an id of its own.
            stage_id = uuid.uuid4().hex
            call(self._stage_request(stage_id, topic_uid, partition, records), timeout=_CALL_SECONDS)
            return stage_id

        return str(self._patiently(attempt, f"staging at {self._access.address}"))

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
        call: Any = self._channel.unary_stream(f"{_SERVICE}ReadEdge")
        what = f"reading partition {partition} at {self._access.address}"
        at = start
        attempt_from = -1
        patience = Patience(self._patience, self._given_up)
        while at < until:
            if at != attempt_from:
                attempt_from, patience = at, Patience(self._patience, self._given_up)
            request = put(1, self._access.topic_uid) + put(2, partition) + put(3, at) + put(4, until)
            try:
                for answer in call(request):
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
                patience.wait(edge_error(raised, what))

    def _call(self, method: str, request: bytes) -> bytes:
        call: Any = self._channel.unary_unary(_SERVICE + method)
        what = f"{method} at {self._access.address}"
        return bytes(self._patiently(lambda: call(request, timeout=_CALL_SECONDS), what))

    def _patiently(self, call: Callable[[], Any], what: str) -> Any:
        patience = Patience(self._patience, self._given_up)
        while True:
            try:
                return call()
            except grpc.RpcError as raised:
                error = edge_error(raised, what)
            patience.wait(error)
