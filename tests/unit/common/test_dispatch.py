"""From a method's name to its answer, without a server."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, struct_pb2
from google.rpc import error_details_pb2

from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.dispatch import MAX_VIOLATIONS, Call, Dispatcher, check, method_of, methods, snake_case
from headgate_common.errors import INTERNAL, INVALID_ARGUMENT, UNIMPLEMENTED, HeadgateError
from headgate_common.ids import RandomIds
from headgate_common.nul import find_nul
from tests.unit.common.transport_contract import (
    FRAGMENTS,
    REFUSED,
    START,
    WATCH,
    WATCHING,
    ToyFragments,
    ToyWatch,
    start_request,
)


@pytest.mark.parametrize(
    ("name", "snake"),
    [("GetStatus", "get_status"), ("Watch", "watch"), ("GetStatusV2", "get_status_v2"), ("RunSQL", "run_sql")],
)
def test_methods_are_found_by_their_name_in_snake_case(name: str, snake: str) -> None:
    assert snake_case(name) == snake


async def test_a_request_reaches_its_coroutine_with_its_call() -> None:
    toy, call = ToyFragments(), Call(peer="me")
    answer = await Dispatcher([toy]).unary(START.path, start_request("x"), call)
    assert isinstance(answer, cluster.StartFragmentResponse)
    assert toy.calls == [call]


async def test_a_typed_error_passes_and_a_defect_becomes_internal(caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = Dispatcher([ToyFragments()], RandomIds(random.Random(1)))
    with pytest.raises(HeadgateError) as refused:
        await dispatcher.unary(START.path, start_request("refused"), Call())
    assert refused.value.reason is REFUSED
    with caplog.at_level(logging.ERROR), pytest.raises(HeadgateError) as broken:
        await dispatcher.unary(START.path, start_request("defect"), Call())
    assert broken.value.reason is INTERNAL
    (record,) = caplog.records
    assert vars(record)["incident"] == broken.value.metadata["incident"]
    assert record.exc_info is not None


async def test_cancelling_is_not_a_defect(caplog: pytest.LogCaptureFixture) -> None:
    task = asyncio.ensure_future(Dispatcher([ToyFragments()]).unary(START.path, start_request("slow"), Call()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert caplog.records == []


async def test_closing_a_stream_closes_the_service_generator_at_once() -> None:
    toy = ToyWatch()
    responses = Dispatcher([toy]).stream(WATCHING.path, catalog.WatchRequest(), Call())
    await anext(responses)
    assert toy.closed == 0
    await responses.aclose()
    assert toy.closed == 1


async def test_unknown_methods_are_unimplemented() -> None:
    with pytest.raises(HeadgateError) as caught:
        await Dispatcher([]).unary("/no.Such/Method", start_request("x"), Call())
    assert caught.value.reason is UNIMPLEMENTED


def test_a_service_must_have_every_method_in_the_right_form() -> None:
    class Missing:
        descriptor = FRAGMENTS

    class NotStreaming(ToyWatch):
        async def watch(self, request: Any, call: Call) -> Any:  # type: ignore[override]
            return catalog.WatchResponse()

    class Streaming(ToyFragments):
        async def get_status(self, request: Any, call: Call) -> AsyncGenerator[Any, None]:  # type: ignore[override]
            yield cluster.GetStatusResponse()

    for service, message in (
        (Missing(), "has no register_fragment"),
        (NotStreaming(), "agree"),
        (Streaming(), "agree"),
    ):
        with pytest.raises(TypeError, match=message):
            Dispatcher([service])


def test_a_method_is_served_once() -> None:
    with pytest.raises(TypeError, match="served twice"):
        Dispatcher([ToyWatch(), ToyWatch()])


def test_a_stream_of_requests_with_one_answer_is_refused_when_the_service_is_made() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="toy/streaming.proto", package="toy", syntax="proto3")
    file.message_type.add(name="Empty")
    file.service.add(name="S").method.add(
        name="M", input_type=".toy.Empty", output_type=".toy.Empty", client_streaming=True
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    with pytest.raises(TypeError, match="stream of requests"):
        method_of(pool.FindMethodByName("toy.S.M"))


def test_methods_know_how_they_are_called() -> None:
    assert methods(WATCH)["Watch"].streams
    assert methods(WATCH)["GetSnapshot"].path == "/headgate.catalog.v1.WatchService/GetSnapshot"


def test_violations_name_nested_and_repeated_fields() -> None:
    request = catalog.ApplyBundleRequest(items=[catalog.BundleItem(statement="x"), catalog.BundleItem()])
    with pytest.raises(HeadgateError) as caught:
        check(request)
    assert caught.value.reason is INVALID_ARGUMENT
    assert caught.value.metadata["field"] == "items[1].item"
    assert caught.value.message.startswith("items[1].item: ")


@pytest.mark.parametrize(
    ("request_message", "field"),
    [
        (cluster.LeaveClusterRequest(name="a\0b", incarnation="x"), "name"),
        (
            catalog.ApplyBundleRequest(items=[catalog.BundleItem(statement="a"), catalog.BundleItem(statement="\0")]),
            "items[1].statement",
        ),
        (catalog.WatchRequest(columns=["a", "b\0"]), "columns[1]"),
        (cluster.RegisterAgentRequest(name="a", address="b", incarnation="c", labels={"zone": "\0"}), 'labels["zone"]'),
        (cluster.RegisterAgentRequest(name="a", address="b", incarnation="c", labels={"\0": "x"}), "labels"),
    ],
)
def test_a_nul_character_in_any_text_is_refused_by_field(request_message: Any, field: str) -> None:
    with pytest.raises(HeadgateError) as caught:
        check(request_message)
    assert caught.value.reason is INVALID_ARGUMENT
    assert caught.value.metadata["field"] == field
    assert "NUL" in caught.value.message
    (bad,) = caught.value.details
    assert isinstance(bad, error_details_pb2.BadRequest)
    assert bad.field_violations[0].field == field


def test_a_zero_byte_that_belongs_to_a_number_is_not_a_nul() -> None:
    number = struct_pb2.Value(number_value=1.0)
    assert b"\0" in number.SerializeToString()
    assert find_nul(number) is None


@pytest.mark.slow
def test_thousands_of_violations_make_a_short_error() -> None:
    request = catalog.WatchRequest(kinds=[catalog.RESOURCE_KIND_UNSPECIFIED] * 10_000)
    with pytest.raises(HeadgateError) as caught:
        check(request)
    (bad,) = caught.value.details
    assert isinstance(bad, error_details_pb2.BadRequest)
    assert len(bad.field_violations) == MAX_VIOLATIONS
    assert "more)" in caught.value.message
