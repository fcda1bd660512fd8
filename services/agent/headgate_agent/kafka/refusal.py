"""An answer to a request that is not carried out, whatever it is: the protocol's own error instead of a closed socket.

The response names what the request named, with the error in every place where its schema has one. Names and indexes
are carried over by their field names, arrays by theirs or else by their order, which are the same on both sides in
nearly all of Kafka's schemas; where they are not, the array stays empty. So does one in which there is no place for an
error, such as that of the brokers: what stands there would be believed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from headgate_agent.kafka.codec import parts

# Fields whose name differs between request and response.
_RENAMED: Mapping[str, tuple[str, ...]] = {
    "partition_index": ("partition",),
    "partition": ("partition_index",),
    "index": ("partition_index",),
    "group_id": ("group",),
    "name": ("topic",),
    "topic": ("name",),
}


def refuse(response_type: type[Any], request: Any, code: ErrorCode, message: str) -> Any:
    """The response in which everything that `request` asks for fails with `code`. `request` may be None."""
    made: dict[str, Any] = {}
    arrays = _arrays(request)
    named = {part.name for part in parts(response_type)}
    others = [array for name, array in arrays.items() if name not in named]
    for part in parts(response_type):
        if part.name == "error_code":
            made[part.name] = code
        elif part.name == "error_message":
            made[part.name] = message or None
        elif part.nested is not None and part.array and _says_errors(part.nested):
            source = arrays[part.name] if part.name in arrays else others.pop(0) if others else ()
            made[part.name] = tuple(refuse(part.nested, one, code, message) for one in source)
        elif part.nested is not None or part.array:
            made[part.name] = part.absent
        else:
            made[part.name] = _carried(part.name, request, part.absent)
    return response_type(**made)


def _arrays(request: Any) -> dict[str, Any]:
    """The arrays of a request that its response may mirror, in order."""
    if request is None or isinstance(request, str | int | bytes):
        return {}
    found = {part.name: getattr(request, part.name) for part in parts(type(request)) if part.array}
    return {name: array for name, array in found.items() if array}


def _says_errors(response_type: type[Any]) -> bool:
    return any(
        part.name == "error_code" or (part.nested is not None and part.array and _says_errors(part.nested))
        for part in parts(response_type)
    )


def _carried(name: str, request: Any, absent: Any) -> Any:
    if isinstance(request, str):
        # An array of names, such as DeleteGroups has: the first text of each result is the name.
        return request if name in ("name", "group_id", "key") else absent
    if isinstance(request, int):
        return request if name in ("partition_index", "partition", "index") else absent
    for candidate in (name, *_RENAMED.get(name, ())):
        value = getattr(request, candidate, None)
        if value is not None and not isinstance(value, tuple):
            return value
    return absent
