"""Errors on the wire."""

from __future__ import annotations

import pickle

import grpc
import pytest
from google.rpc import code_pb2, error_details_pb2, status_pb2
from hypothesis import given
from hypothesis import strategies as st

from headgate.catalog import v1 as catalog
from headgate_common.errors import (
    COMMON,
    DEADLINE_EXCEEDED,
    INVALID_ARGUMENT,
    MESSAGE_TOO_LARGE,
    OVERLOADED,
    UNIMPLEMENTED,
    UNREACHABLE,
    HeadgateError,
    ReasonTable,
    from_code,
    from_status,
    to_status,
)

# What a client accepts of headers, unless it is told otherwise.
HEADER_LIMIT = 8 * 1024


def wire_size(status: status_pb2.Status) -> int:
    """Percent-encoding triples a byte at worst, base64 adds a third."""
    return int(3 * len(status.message.encode()) + status.ByteSize() * 4 // 3 + 300)


def test_an_error_goes_there_and_back_unchanged() -> None:
    problem = catalog.StatementProblem(step="BIND", line=1, column=2, message="no such column")
    error = HeadgateError(OVERLOADED, "later", metadata={"a": "b"}, details=[problem], retry_after=0.25)
    back = from_status(to_status(error))
    assert back.reason is OVERLOADED
    assert (back.message, back.metadata, back.retry_after, back.details) == ("later", {"a": "b"}, 0.25, (problem,))


def test_the_status_has_code_and_error_info_first() -> None:
    status = to_status(HeadgateError(INVALID_ARGUMENT, "bad"))
    assert status.code == code_pb2.INVALID_ARGUMENT
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    assert (info.reason, info.domain) == ("INVALID_ARGUMENT", "headgate")


def test_a_reason_of_another_domain_is_not_ours() -> None:
    status = status_pb2.Status(code=code_pb2.UNAVAILABLE, message="proxy")
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason="OVERLOADED", domain="elsewhere"))
    assert from_status(status).reason is UNREACHABLE


def test_details_of_unknown_or_broken_types_are_left_out() -> None:
    status = to_status(HeadgateError(INVALID_ARGUMENT, "bad"))
    status.details.add(type_url="type.googleapis.com/no.such.Type", value=b"x")
    status.details.add(type_url="type.googleapis.com/google.rpc.BadRequest", value=b"\xff\xff")
    assert from_status(status).details == ()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, UNREACHABLE),
        (grpc.StatusCode.CANCELLED, UNREACHABLE),
        (grpc.StatusCode.UNKNOWN, UNREACHABLE),
        (grpc.StatusCode.INTERNAL, UNREACHABLE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, DEADLINE_EXCEEDED),
        (grpc.StatusCode.UNIMPLEMENTED, UNIMPLEMENTED),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, MESSAGE_TOO_LARGE),
    ],
)
def test_a_status_made_on_the_way_says_what_may_have_happened(code: grpc.StatusCode, reason: object) -> None:
    assert from_code(code, "broken").reason is reason


def test_another_code_keeps_its_name() -> None:
    assert from_code(grpc.StatusCode.PERMISSION_DENIED, "no").reason.name == "PERMISSION_DENIED"


@given(
    message=st.text(max_size=5000),
    metadata=st.dictionaries(st.text(max_size=20), st.text(max_size=5000), max_size=20),
    texts=st.lists(st.text(max_size=2000), max_size=60),
)
@pytest.mark.slow
def test_no_status_is_too_large_for_a_clients_headers(message: str, metadata: dict[str, str], texts: list[str]) -> None:
    bad = error_details_pb2.BadRequest()
    for text in texts:
        bad.field_violations.add(field=text, description=text)
    problem = catalog.StatementProblem(excerpt="\n".join(texts))
    status = to_status(HeadgateError(INVALID_ARGUMENT, message, metadata=metadata, details=[bad, problem]))
    assert wire_size(status) <= HEADER_LIMIT
    assert from_status(status).reason is INVALID_ARGUMENT


def test_shortening_keeps_the_error_itself_whole() -> None:
    error = HeadgateError(INVALID_ARGUMENT, "x" * 5000, metadata={"a": "y" * 5000})
    back = from_status(to_status(error))
    assert back.message == "x" * 797 + "..."
    assert back.metadata["a"].startswith("yyy")
    assert (len(error.message), len(error.metadata["a"])) == (5000, 5000)


def test_an_error_survives_being_pickled() -> None:
    error = HeadgateError(OVERLOADED, "later", metadata={"a": "b"}, retry_after=1.0)
    back = pickle.loads(pickle.dumps(error))
    assert str(back) == str(error) == "OVERLOADED: later"
    assert back.retry_after == 1.0


def test_a_reason_is_declared_once() -> None:
    table = ReasonTable(COMMON)
    with pytest.raises(ValueError, match="OVERLOADED is declared twice"):
        table.declare("OVERLOADED", grpc.StatusCode.UNAVAILABLE, "again")
    assert table.get("OVERLOADED") is OVERLOADED
    assert COMMON.get("NOT_HERE") is None


def test_only_what_sdks_may_retry_is_unavailable() -> None:
    names = {reason.name for reason in COMMON if reason.code is grpc.StatusCode.UNAVAILABLE}
    assert names == {"OVERLOADED", "SHUTTING_DOWN", "UNREACHABLE"}
