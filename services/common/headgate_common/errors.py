"""One error type for everything that a caller may see, and its form on the wire.

A `Reason` is declared once, where it belongs, and gathered in a `ReasonTable` from which the docs are generated. A
`HeadgateError` is raised where the problem is known; it becomes a gRPC status with `ErrorInfo` in one place
(`to_status`) and comes back as a `HeadgateError` in one place (`from_status`), over gRPC and in the simulator alike.

A status travels in HTTP/2 headers, which clients limit to 8 KiB by default and answer an excess with a broken call.
So `to_status` shortens what is too long: texts end in "...", lists lose their tail. Reason and code are always whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from google.protobuf import any_pb2, descriptor_pool, duration_pb2, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.rpc import error_details_pb2, status_pb2

DOMAIN = "headgate"


@dataclass(frozen=True, slots=True)
class Reason:
    """A condition that callers may rely on. `name` and `code` never change once released."""

    name: str
    code: grpc.StatusCode
    meaning: str
    advice: str = ""
    synonyms: tuple[str, ...] = ()


class ReasonTable:
    """The reasons of one service, by name; declaring a name twice is a programming error."""

    def __init__(self, *inherited: ReasonTable) -> None:
        self._reasons: dict[str, Reason] = {}
        for table in inherited:
            self._reasons.update(table._reasons)

    def declare(
        self,
        name: str,
        code: grpc.StatusCode,
        meaning: str,
        advice: str = "",
        synonyms: tuple[str, ...] = (),
    ) -> Reason:
        if name in self._reasons:
            raise ValueError(f"reason {name} is declared twice")
        reason = Reason(name, code, meaning, advice, synonyms)
        self._reasons[name] = reason
        return reason

    def __iter__(self) -> Iterator[Reason]:
        return iter(self._reasons.values())

    def get(self, name: str) -> Reason | None:
        return self._reasons.get(name)


class HeadgateError(Exception):
    """Something that the caller should know, with the reason it may rely on.

    `metadata` goes into `ErrorInfo`; `details` are further messages for the status, such as positions in a statement.
    `retry_after` is in seconds, for overload only.
    """

    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        details: Iterable[Message] = (),
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.details = tuple(details)
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.reason.name}: {self.message}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.reason, self.message, self.metadata, self.details, self.retry_after)


def _rebuild(
    reason: Reason,
    message: str,
    metadata: dict[str, str],
    details: tuple[Message, ...],
    retry_after: float | None,
) -> HeadgateError:
    return HeadgateError(reason, message, metadata=metadata, details=details, retry_after=retry_after)


COMMON = ReasonTable()
INVALID_ARGUMENT = COMMON.declare(
    "INVALID_ARGUMENT",
    grpc.StatusCode.INVALID_ARGUMENT,
    "A field of the request breaks a rule of the API.",
    "The details name each field and the rule.",
)
INTERNAL = COMMON.declare(
    "INTERNAL",
    grpc.StatusCode.INTERNAL,
    "A defect of the server. The message carries an id that its log has too.",
    "Report it with that id.",
)
UNIMPLEMENTED = COMMON.declare("UNIMPLEMENTED", grpc.StatusCode.UNIMPLEMENTED, "The server has no such method.")
OVERLOADED = COMMON.declare(
    "OVERLOADED",
    grpc.StatusCode.UNAVAILABLE,
    "The server has more to do than it will queue; nothing was done.",
    "Try again after the delay in RetryInfo.",
)
SHUTTING_DOWN = COMMON.declare(
    "SHUTTING_DOWN",
    grpc.StatusCode.UNAVAILABLE,
    "The server is draining; the call was not begun. Of a stream that it ends so, what was not answered may have been "
    "done.",
    "Try again, elsewhere or a little later.",
)
UNREACHABLE = COMMON.declare(
    "UNREACHABLE",
    grpc.StatusCode.UNAVAILABLE,
    "The other side could not be reached, or the connection broke: the call may or may not have happened.",
    "Try again with the same request_id.",
)
DEADLINE_EXCEEDED = COMMON.declare(
    "DEADLINE_EXCEEDED",
    grpc.StatusCode.DEADLINE_EXCEEDED,
    "No answer came in time: the call may or may not have happened.",
    "Try again with the same request_id and more time.",
)
CANCELLED = COMMON.declare("CANCELLED", grpc.StatusCode.CANCELLED, "The caller gave up.")
MESSAGE_TOO_LARGE = COMMON.declare(
    "MESSAGE_TOO_LARGE",
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    "A message is larger than the server accepts.",
    "Split the request, or raise the server's limit.",
)

# Statuses without a reason of ours were made on the way. After those of _BROKEN the call may or may not have happened.
_BY_CODE = {
    grpc.StatusCode.DEADLINE_EXCEEDED: DEADLINE_EXCEEDED,
    grpc.StatusCode.UNIMPLEMENTED: UNIMPLEMENTED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: MESSAGE_TOO_LARGE,
    grpc.StatusCode.INVALID_ARGUMENT: INVALID_ARGUMENT,
}
_BROKEN = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
}
_CODES = {code.value[0]: code for code in grpc.StatusCode}

# Status and message both travel, in base64 and percent-encoding, beside other headers.
_MAX_STATUS = 3600
_MAX_MESSAGE = 800
# (longest text, longest list) that details keep, tried in turn until the status fits.
_SHORTENING = ((1000, 64), (400, 16), (120, 8), (40, 3))


def to_status(error: HeadgateError) -> status_pb2.Status:
    """The error as it goes over the wire, small enough to arrive."""
    status = _status(error, error.details, error.metadata, error.message)
    if status.ByteSize() <= _MAX_STATUS and len(error.message.encode()) <= _MAX_MESSAGE:
        return status
    message = _shorten_text(error.message, _MAX_MESSAGE)
    for text, items in _SHORTENING:
        details = [_shorten(detail, text, items) for detail in error.details]
        metadata = {key: _shorten_text(value, text) for key, value in sorted(error.metadata.items())[:items]}
        status = _status(error, details, metadata, message)
        if status.ByteSize() <= _MAX_STATUS:
            return status
    return _status(error, (), metadata, message)


def _status(
    error: HeadgateError, extra: Iterable[Message], metadata: Mapping[str, str], message: str
) -> status_pb2.Status:
    info = error_details_pb2.ErrorInfo(reason=error.reason.name, domain=DOMAIN, metadata=metadata)
    details: list[Message] = [info, *extra]
    if error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(int(error.retry_after * 1e9))
        details.append(error_details_pb2.RetryInfo(retry_delay=delay))
    status = status_pb2.Status(code=error.reason.code.value[0], message=message)
    for detail in details:
        status.details.add().Pack(detail)
    return status


def _shorten_text(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8."""
    encoded = text.encode()
    if len(encoded) <= limit:
        return text
    return encoded[: limit - 3].decode(errors="ignore") + "..."


def _shorten(message: Message, text: int, items: int) -> Message:
    short = type(message)()
    short.CopyFrom(message)
    _shorten_in_place(short, text, items)
    return short


def _shorten_in_place(message: Message, text: int, items: int) -> None:
    for field, value in message.ListFields():
        if field.is_repeated:
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                continue
            del value[items:]
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for one in value if field.is_repeated else (value,):
                _shorten_in_place(one, text, items)
        elif field.type == FieldDescriptor.TYPE_STRING:
            if field.is_repeated:
                value[:] = [_shorten_text(one, text) for one in value]
            else:
                setattr(message, field.name, _shorten_text(value, text))


def from_status(status: status_pb2.Status, reasons: ReasonTable = COMMON) -> HeadgateError:
    """The error that a status carries. A reason unknown here keeps its name and code."""
    code = _CODES.get(status.code, grpc.StatusCode.UNKNOWN)
    info = error_details_pb2.ErrorInfo()
    found = False
    retry_after: float | None = None
    details: list[Message] = []
    for packed in status.details:
        if packed.Is(error_details_pb2.ErrorInfo.DESCRIPTOR):
            packed.Unpack(info)
            found = True
        elif packed.Is(error_details_pb2.RetryInfo.DESCRIPTOR):
            retry = error_details_pb2.RetryInfo()
            packed.Unpack(retry)
            retry_after = retry.retry_delay.ToNanoseconds() / 1e9
        else:
            detail = _unpack(packed)
            if detail is not None:
                details.append(detail)
    if not found or info.domain != DOMAIN:
        return from_code(code, status.message)
    reason = reasons.get(info.reason) or Reason(info.reason, code, "")
    return HeadgateError(
        reason,
        status.message,
        metadata=info.metadata,
        details=details,
        retry_after=retry_after,
    )


def from_code(code: grpc.StatusCode, message: str) -> HeadgateError:
    """The error for a status that carries no reason: made by a transport, not by a service of ours."""
    reason = UNREACHABLE if code in _BROKEN else _BY_CODE.get(code) or Reason(code.name, code, "")
    return HeadgateError(reason, message or code.name)


def _unpack(packed: any_pb2.Any) -> Message | None:
    """The detail, or None for a type that this process does not know."""
    try:
        descriptor = descriptor_pool.Default().FindMessageTypeByName(packed.type_url.rsplit("/", 1)[-1])
        message: Message = message_factory.GetMessageClass(descriptor)()
        packed.Unpack(message)
    except (KeyError, DecodeError):
        return None
    return message
