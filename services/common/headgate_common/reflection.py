"""Server reflection under both of its names, so that old and new tools find the API.

grpcio-reflection knows `grpc.reflection.v1alpha` only. `v1` has the same messages, so the same servicer answers for
it, and its description is made from the other's. Symbols are looked up in everything this process has loaded; the types
that travel in error details are loaded here, so that tools can print them whichever service answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool
from google.rpc import error_details_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from headgate.catalog.v1 import statement_service_pb2

_OLD, _NEW = "grpc.reflection.v1alpha", "grpc.reflection.v1"
NAMES = (f"{_NEW}.ServerReflection", f"{_OLD}.ServerReflection")
DETAIL_TYPES = (
    error_details_pb2.ErrorInfo,
    error_details_pb2.BadRequest,
    error_details_pb2.RetryInfo,
    statement_service_pb2.StatementProblem,
)


def reflection_handlers(services: Iterable[str]) -> list[grpc.GenericRpcHandler]:
    """Handlers that describe the services of these names, and reflection itself."""
    _describe_new()
    servicer: Any = reflection.aio.ReflectionServicer([*services, *NAMES])
    method = grpc.stream_stream_rpc_method_handler(
        servicer.ServerReflectionInfo,
        request_deserializer=reflection_pb2.ServerReflectionRequest.FromString,
        response_serializer=reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": method}) for name in NAMES]


def _describe_new() -> None:
    """Adds the v1 file to the pool, once: the v1alpha file with the other package name."""
    pool = descriptor_pool.Default()
    name = "grpc/reflection/v1/reflection.proto"
    try:
        pool.FindFileByName(name)
        return
    except KeyError:
        pass
    file = descriptor_pb2.FileDescriptorProto()
    reflection_pb2.DESCRIPTOR.CopyToProto(file)
    file.name, file.package = name, _NEW
    for message in file.message_type:
        for field in message.field:
            if field.type_name:
                field.type_name = field.type_name.replace(f".{_OLD}.", f".{_NEW}.")
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(f".{_OLD}.", f".{_NEW}.")
            method.output_type = method.output_type.replace(f".{_OLD}.", f".{_NEW}.")
    pool.AddSerializedFile(file.SerializeToString())
