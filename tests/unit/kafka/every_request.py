"""Any version of any request that kio has a schema for, of random values, with the places of its counts and lengths.
Written from the schemas by itself: neither kio nor the code under test says what is right.

As a script it decodes requests that lie about one count or length, each in turn; see test_walk.py.
"""

from __future__ import annotations

import dataclasses
import random
import resource
import struct
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, get_args, get_origin

from kio.schema.index import api_key_map, schema_name_map
from kio.static.constants import EntityType

from headgate_agent.kafka.codec import read_header, schema
from headgate_agent.kafka.walk import Items, Malformed, uvarint

FIXED = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "float64": 8,
}
# Of each kind of count and length, what it may claim to be.
LIES = {
    "compact": [uvarint(value) for value in (2**32 - 1, 2**31, 2**31 - 1, 2**24)] + [b"\xff\xff\xff\xff\x7f"],
    "tags": [uvarint(value) for value in (2**32 - 1, 2**31, 2**24)],
    "int": [struct.pack(">i", value) for value in (2**31 - 1, 2**30, 2**24)],
    "short": [struct.pack(">h", 2**15 - 1)],
}
ADDRESS_SPACE = 2 << 30


@dataclass
class Made:
    """A request's bytes without its header, and of each count or length its place and kind; its items are counted. With
    `unknown`, each section of tagged fields has one that no schema has."""

    unknown: bool
    body: bytearray = field(default_factory=bytearray)
    lengths: list[tuple[int, int, str]] = field(default_factory=list)
    items: int = 0

    def length(self, value: int, kind: str) -> None:
        packed = {
            "compact": lambda: uvarint(value + 1),
            "tags": lambda: uvarint(value),
            "int": lambda: struct.pack(">i", value),
            "short": lambda: struct.pack(">h", value),
        }[kind]()
        self.lengths.append((len(self.body), len(packed), kind))
        self.body += packed


def requests() -> Iterator[tuple[int, int]]:
    """The key and the version of each."""
    for key, name in api_key_map.items():
        for version, types in schema_name_map[name].items():
            if EntityType.request in types:
                yield key, version


def make(entity_type: type[Any], source: random.Random, *, unknown: bool = False) -> Made:
    made = Made(unknown)
    _put_entity(made, entity_type, source)
    return made


def _put_entity(made: Made, entity_type: type[Any], source: random.Random) -> None:
    tagged: list[dataclasses.Field[Any]] = []
    for one in dataclasses.fields(entity_type):
        if "tag" in one.metadata:
            tagged.append(one)
        else:
            _put(made, one, entity_type.__flexible__, source, tag=False)
    if entity_type.__flexible__:
        _put_tags(made, tagged, source)


def _put_tags(made: Made, tagged: list[dataclasses.Field[Any]], source: random.Random) -> None:
    """All tagged fields that the schema has."""
    count = len(tagged) + (1 if made.unknown else 0)
    made.length(count, "tags")
    made.items += count
    for one in sorted(tagged, key=lambda each: int(each.metadata["tag"])):
        inner = Made(made.unknown)
        _put(inner, one, True, source, tag=True)
        made.body += uvarint(int(one.metadata["tag"]))
        made.length(len(inner.body), "tags")
        start = len(made.body)
        made.lengths += [(start + place, size, kind) for place, size, kind in inner.lengths]
        made.body += inner.body
        made.items += inner.items
    if made.unknown:
        made.body += uvarint(9000)
        made.length(3, "tags")
        made.body += b"any"


def _put(made: Made, one: dataclasses.Field[Any], flexible: bool, source: random.Random, *, tag: bool) -> None:
    kind, optional = _plain(one.type)
    if get_origin(kind) is tuple:
        count = source.randrange(1, 4)
        made.length(count, "compact" if flexible else "int")
        made.items += count
        item, _ = _plain(get_args(kind)[0])
        for _ in range(count):
            _put_value(made, item, one, flexible, source)
        return
    if dataclasses.is_dataclass(kind) and optional and not tag:
        made.body += b"\x01"
    _put_value(made, kind, one, flexible, source)


def _put_value(made: Made, kind: Any, one: dataclasses.Field[Any], flexible: bool, source: random.Random) -> None:
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        _put_entity(made, kind, source)
        return
    name = one.metadata["kafka_type"]
    if name == "uuid":
        made.body += uuid.UUID(int=source.getrandbits(128) | 1).bytes
    elif name in FIXED:
        made.body += source.randrange(2).to_bytes(FIXED[name], "big")
    else:
        value = source.choice((b"", b"abc", b"x" * 200))
        made.length(len(value), "compact" if flexible else "short" if name == "string" else "int")
        made.body += value


def _plain(annotation: Any) -> tuple[Any, bool]:
    options = get_args(annotation)
    if NoneType not in options:
        return annotation, False
    return next(each for each in options if each is not NoneType), True


def framed(key: int, version: int, body: bytes) -> memoryview:
    tags = b"\0" if schema(key, version).flexible_header else b""
    return memoryview(struct.pack(">hhih", key, version, 1, -1) + tags + body)


def decode_lies() -> None:
    """Ends the process if one of them is believed, and says at the end how many there were."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    source, told = random.Random(1), 0
    for key, version in requests():
        made = make(schema(key, version).request_type, source, unknown=True)
        for place, size, kind in made.lengths:
            for lie in LIES[kind]:
                body = bytes(made.body[:place]) + lie + bytes(made.body[place + size :])
                frame = framed(key, version, body)
                where = f"api {key} version {version}, {kind} at {place}: {lie!r}"
                sys.stderr.write(where + "\n")
                told += 1
                try:
                    schema(key, version).decode(frame, read_header(frame), Items(10**6))
                except Malformed:
                    continue
                raise AssertionError(f"believed: {where}")
    sys.stdout.write(f"{told} lies\n")


if __name__ == "__main__":
    decode_lies()
