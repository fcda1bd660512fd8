"""Numbers that an enum does not have are refused in every request of every service, by the path of their field."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import message_factory, struct_pb2
from google.protobuf.descriptor import Descriptor, MethodDescriptor
from google.protobuf.message import Message

import headgate
from headgate.catalog import v1 as catalog
from headgate.cluster import v1 as cluster
from headgate_common.dispatch import check
from headgate_common.enums import undefined_enums
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError

NONSENSE = 999


def methods() -> Iterator[MethodDescriptor]:
    for folder in headgate.__path__:
        for path in sorted(Path(folder).rglob("*_service_pb2.py")):
            name = ".".join(("headgate", *path.relative_to(folder).with_suffix("").parts))
            file: Any = importlib.import_module(name).DESCRIPTOR
            for service in file.services_by_name.values():
                yield from service.methods


def spoiled(descriptor: Descriptor, above: tuple[str, ...] = ()) -> Iterator[tuple[str, Message]]:
    """A message of the type for each enum that it has at any depth, with nonsense there, and the path of that."""
    make = message_factory.GetMessageClass(descriptor)
    for field in descriptor.fields:
        if field.enum_type is not None:
            message = make()
            if field.is_repeated:
                getattr(message, field.name).append(NONSENSE)
            else:
                setattr(message, field.name, NONSENSE)
            yield (f"{field.name}[0]" if field.is_repeated else field.name), message
        elif field.message_type is not None and field.message_type.full_name not in above:
            if field.message_type.GetOptions().map_entry:
                continue
            for path, inner in spoiled(field.message_type, (*above, descriptor.full_name)):
                message = make()
                if field.is_repeated:
                    getattr(message, field.name).append(inner)
                else:
                    getattr(message, field.name).CopyFrom(inner)
                yield f"{field.name}{'[0]' if field.is_repeated else ''}.{path}", message


CASES = {
    f"{method.containing_service.name}.{method.name}:{path}": (path, message)
    for method in methods()
    for path, message in spoiled(method.input_type)
}


def test_there_is_something_to_refuse() -> None:
    assert len(CASES) > 30 and "QueryService.ListQueries:state" in CASES


@pytest.mark.parametrize("case", sorted(CASES))
def test_nonsense_is_refused_by_its_path(case: str) -> None:
    path, message = CASES[case]
    with pytest.raises(HeadgateError) as refused:
        check(message)
    assert refused.value.reason is INVALID_ARGUMENT
    (bad,) = refused.value.details
    named = {violation.field: violation.description for violation in bad.field_violations}  # type: ignore[attr-defined]
    assert named[path].startswith(f"{NONSENSE} is no value of "), named


def test_what_is_wrong_with_the_only_field_is_the_message() -> None:
    with pytest.raises(HeadgateError) as refused:
        check(catalog.ListQueriesRequest(state=NONSENSE))  # type: ignore[arg-type]
    assert refused.value.message == "state: 999 is no value of QueryState"
    assert refused.value.metadata == {"field": "state"}


def test_all_that_an_enum_has_passes() -> None:
    for value in catalog.QueryState.values():
        check(catalog.ListQueriesRequest(state=value))
    roles = list(catalog.AgentRole.values())
    asked = cluster.RegisterAgentRequest(name="a", address="a:1", incarnation="p", protocol_version=1, roles=roles)
    check(asked)


def test_types_that_contain_themselves_and_maps_are_walked_to_their_end() -> None:
    value = struct_pb2.Value()
    inner = value.struct_value.fields["a"].list_value.values.add()
    inner.null_value = NONSENSE  # type: ignore[assignment]
    assert list(undefined_enums(value)) == [
        ('struct_value.fields["a"].list_value.values[0].null_value', "999 is no value of NullValue")
    ]
