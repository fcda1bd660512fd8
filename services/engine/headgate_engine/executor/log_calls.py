"""Calls of `headgate.log.v1.LogService` that reading a native topic needs, for tasks and for the driver alike."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import grpc

from headgate_engine.executor.batches import headers
from headgate_engine.executor.channels import (
    CALL_SECONDS,
    PATIENCE_SECONDS,
    Certificates,
    GivenUp,
    Patience,
    answer_to,
    channel_to,
    error_of,
    never,
)
from headgate_engine.executor.wire import EdgeError, put, put_item, take

_SERVICE = "/headgate.log.v1.LogService/"
_FETCH_BYTES = 4 * 2**20
# What says only that the agent which was asked does not lead: nothing of a reader has epochs.
_ELSEWHERE = ("NOT_LEADER", "STALE_EPOCH")


@dataclass(frozen=True, slots=True)
class TopicAccess:
    """A native topic and how its agents are called. Travels in the options of a data source as JSON."""

    topic: str
    topic_uid: str
    addresses: tuple[str, ...]
    ca: str = ""
    certificate: str = ""
    key: str = ""
    patience: float = PATIENCE_SECONDS

    def to_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def of_json(cls, text: str) -> TopicAccess:
        fields = json.loads(text)
        return cls(**{**fields, "addresses": tuple(fields["addresses"])})

    @property
    def certificates(self) -> Certificates:
        return Certificates(self.ca, self.certificate, self.key)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What ListOffsets says of one partition; `at_time` is -1 where nothing is at or after the time asked for."""

    partition: int
    log_start: int
    high_watermark: int
    at_time: int


# Where partitions were found, by uid of the topic and partition.
_leaders: dict[tuple[str, int], str] = {}


class LogClient:
    """Calls are repeated, at another agent, while their failure may pass; EdgeError is raised otherwise."""

    def __init__(self, access: TopicAccess, given_up: GivenUp = never) -> None:
        self._access = access
        self._given_up = given_up
        self._turn = 0

    def offsets(self, time_us: int | None = None) -> list[Bounds]:
        """Of all partitions, in order. Any agent answers, and asks the leaders itself."""
        request = put(1, self._access.topic)
        if time_us is not None:
            seconds, rest = divmod(time_us, 1_000_000)
            request += put_item(3, put(1, seconds) + put(2, rest * 1000))
        patience = Patience(self._access.patience, self._given_up)
        while True:
            address = self._next_agent()
            try:
                raw = answer_to(self._channel(address), f"{_SERVICE}ListOffsets", request, self._given_up)
                return _bounds(raw)
            except grpc.RpcError as raised:
                error = _passing(error_of(raised, f"ListOffsets at {address}"))
            self._turn += 1
            patience.wait(error)

    def batches(self, partition: int, start: int, until: int) -> Iterator[bytes | memoryview]:
        """Record batches from the one with `start` on, until all before `until` are there. The next part is asked for
        before this one is looked at."""
        patience = Patience(self._access.patience, self._given_up)
        at = start
        asked = self._fetch(partition, at, _FETCH_BYTES)
        while at < until:
            try:
                found, watermark = self._fetched(asked, partition)
            except EdgeError as error:
                patience.wait(error)
                asked = self._fetch(partition, at, _FETCH_BYTES)
                continue
            following = max((one.next_offset for one in headers(found)), default=at)
            if following <= at:
                if watermark < until:
                    # A new leader that does not know yet how far its predecessor was.
                    patience.wait(
                        EdgeError("NOT_LEADER", f"{self._what(partition)} ends at {watermark}, before {until}")
                    )
                    asked = self._fetch(partition, at, _FETCH_BYTES)
                    continue
                # Offsets that no record has: they were reserved by a leader that is gone.
                return
            at = following
            patience = Patience(self._access.patience, self._given_up)
            if at < until:
                asked = self._fetch(partition, at, _FETCH_BYTES)
            yield found

    def sample(self, partition: int, offset: int, size: int) -> bytes | memoryview:
        """A few batches, with at least one where there is one."""
        patience = Patience(self._access.patience, self._given_up)
        while True:
            try:
                return self._fetched(self._fetch(partition, offset, size), partition)[0]
            except EdgeError as error:
                patience.wait(error)

    def _fetch(self, partition: int, offset: int, size: int) -> tuple[str, Any]:
        """Asks; answers whom, and the answer to come."""
        address = _leaders.get((self._access.topic_uid, partition)) or self._next_agent()
        part = put(1, self._access.topic_uid) + put(2, partition) + put(3, offset) + put(4, size)
        call: Any = self._channel(address).unary_unary(f"{_SERVICE}Fetch")
        return address, call.future(put_item(1, part) + put(4, size), timeout=CALL_SECONDS)

    def _fetched(self, asked: tuple[str, Any], partition: int) -> tuple[bytes | memoryview, int]:
        """(batches, high watermark), or EdgeError; remembers who leads."""
        address, answer = asked
        key = (self._access.topic_uid, partition)
        try:
            raw = _wait(answer, self._given_up)
        except grpc.RpcError as raised:
            _leaders.pop(key, None)
            self._turn += 1
            raise _passing(error_of(raised, f"{self._what(partition)} at {address}")) from raised
        part = next(value for number, value in take(raw) if number == 1)
        fields = dict(take(part))
        reason = bytes(fields.get(4, b"")).decode()
        if not reason:
            _leaders[key] = address
            return fields.get(1, b""), int(fields.get(2, 0))
        leader = bytes(fields.get(7, b"")).decode()
        if leader:
            _leaders[key] = leader
        else:
            _leaders.pop(key, None)
            self._turn += 1
        message = bytes(fields.get(5, b"")).decode()
        raise _passing(EdgeError(reason, f"{self._what(partition)} at {address}: {message}", leader))

    def _what(self, partition: int) -> str:
        return f"partition {partition} of topic {self._access.topic}"

    def _next_agent(self) -> str:
        return self._access.addresses[self._turn % len(self._access.addresses)]

    def _channel(self, address: str) -> grpc.Channel:
        return channel_to(address, self._access.certificates)


def _wait(answer: Future[Any] | Any, given_up: GivenUp) -> bytes:
    while True:
        try:
            return answer.result(timeout=0.1)  # type: ignore[no-any-return]
        except grpc.FutureTimeoutError:
            if given_up():
                answer.cancel()
                raise EdgeError("CANCELLED", "given up") from None


def _passing(error: EdgeError) -> EdgeError:
    if error.reason in _ELSEWHERE:
        return EdgeError("NOT_LEADER", error.message, error.leader_address)
    return error


def _bounds(raw: bytes) -> list[Bounds]:
    found = []
    for number, value in take(raw):
        if number == 1:
            fields = dict(take(value))
            found.append(Bounds(*(int(fields.get(field, 0)) for field in (1, 2, 3, 4))))
    return sorted(found, key=lambda one: one.partition)


def first_offsets(bounds: Sequence[Bounds], start: str) -> dict[str, int]:
    """Where reading begins in each partition: at the beginning, the end, or the time that `offsets` was asked for."""
    if start == "earliest":
        return {str(one.partition): one.log_start for one in bounds}
    if start == "latest":
        return {str(one.partition): one.high_watermark for one in bounds}
    return {str(one.partition): one.at_time if one.at_time >= 0 else one.high_watermark for one in bounds}
