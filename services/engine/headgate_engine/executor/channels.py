"""How agents are called from tasks and from the driver: channels, errors, and what is tried again.

An agent that was restarted does not lead its partitions at once, and one that lost a partition may know who leads it
now. Both pass: a call is repeated, where the answer names another agent there, until it is done or patience is over.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import grpc

from headgate_engine.executor.wire import EdgeError, take

CALL_SECONDS = 20.0
PATIENCE_SECONDS = 30.0
_RETRY_CAP_SECONDS = 1.0
# How soon a caller that is told to give up does.
_SLICE_SECONDS = 0.1
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 5_000),
)
# Nothing was done, or it may be done again: every call of an executor is safe to repeat.
PASSING = frozenset(
    {
        "UNREACHABLE",
        "OVERLOADED",
        "FETCH_MEMORY_EXHAUSTED",
        "SHUTTING_DOWN",
        "DEADLINE_EXCEEDED",
        "NOT_LEADER",
        "LEASE_CONFLICT",
        "UNKNOWN_PARTITION",
        "WAL_UNAVAILABLE",
        "OBJECT_STORE_UNAVAILABLE",
    }
)

GivenUp = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Certificates:
    """PEM texts; empty for none. TLS is used where `ca` or a certificate is there."""

    ca: str = ""
    certificate: str = ""
    key: str = ""


_channels: dict[tuple[str, Certificates], grpc.Channel] = {}


def channel_to(address: str, certificates: Certificates) -> grpc.Channel:
    """One channel for each agent in a worker process, which runs many tasks."""
    key = (address, certificates)
    if key not in _channels:
        if certificates.ca or certificates.certificate:
            texts = (certificates.ca, certificates.key, certificates.certificate)
            credentials = grpc.ssl_channel_credentials(*(text.encode() or None for text in texts))
            _channels[key] = grpc.secure_channel(address, credentials, options=_OPTIONS)
        else:
            _channels[key] = grpc.insecure_channel(address, options=_OPTIONS)
    return _channels[key]


def error_of(error: Any, what: str) -> EdgeError:
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
                return _told(fields.get(2, b""), code, error.details() or code)
    reason = "UNREACHABLE" if code in ("UNAVAILABLE", "CANCELLED", "UNKNOWN", "INTERNAL") else code
    return EdgeError(reason, f"{what}: {error.details() or code}")


def _told(info: bytes, code: str, message: str) -> EdgeError:
    """The error of one ErrorInfo, with the leader that it names."""
    reason, leader, address = code, "", ""
    for number, value in take(info):
        if number == 1:
            reason = bytes(value).decode() or code
        elif number == 3:
            entry = {key: bytes(text).decode() for key, text in take(value)}
            leader = entry.get(2, "") if entry.get(1) == "leader" else leader
            address = entry.get(2, "") if entry.get(1) == "address" else address
    if reason == "STALE_EPOCH" and leader:
        # Not the epoch of this run: that of an agent which does not lead the partition any more.
        reason = "NOT_LEADER"
    return EdgeError(reason, message, address)


def never() -> bool:
    return False


class Patience:
    """How long a call whose failure may pass is repeated, with jitter and a cap."""

    def __init__(self, seconds: float, given_up: GivenUp = never) -> None:
        self._deadline = time.monotonic() + seconds
        self._given_up = given_up
        self._ceiling = 0.05

    def wait(self, error: EdgeError) -> None:
        """Returns when it is time to try again, or raises the error."""
        if error.reason not in PASSING or time.monotonic() >= self._deadline:
            raise error
        until = time.monotonic() + random.uniform(0.0, self._ceiling)
        self._ceiling = min(self._ceiling * 2, _RETRY_CAP_SECONDS)
        while True:
            if self._given_up():
                raise error
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, _SLICE_SECONDS))


def answer_to(
    channel: grpc.Channel, method: str, request: bytes, given_up: GivenUp = never, seconds: float = CALL_SECONDS
) -> bytes:
    """Calls once. A caller that gives up does not wait for the answer of an agent that is silent."""
    call: Any = channel.unary_unary(method)
    if given_up is never:
        return bytes(call(request, timeout=seconds))
    future = call.future(request, timeout=seconds)
    while True:
        try:
            return bytes(future.result(timeout=_SLICE_SECONDS))
        except grpc.FutureTimeoutError:
            if given_up():
                future.cancel()
                raise EdgeError("CANCELLED", f"{method}: given up") from None
