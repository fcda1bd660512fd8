"""How values of rows become values of messages: times in microseconds, enums by their short names, JSON objects."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from sqlalchemy import Row

from headgate.catalog import v1 as catalog
from headgate.log import v1 as log

# A row of any select; its columns are attributes.
AnyRow = Row[*tuple[Any, ...]]

# Rows and messages of SQL say `ACTIVE` where the proto says `AGENT_STATE_ACTIVE`.
_PREFIXES = {
    catalog.AgentState: "AGENT_STATE_",
    catalog.AgentRole: "AGENT_ROLE_",
    catalog.SourceType: "SOURCE_TYPE_",
    catalog.SinkType: "SINK_TYPE_",
    catalog.QueryState: "QUERY_STATE_",
    catalog.DesiredState: "DESIRED_STATE_",
    catalog.StopMode: "STOP_MODE_",
    catalog.QueryMode: "QUERY_MODE_",
    catalog.WaitingReason: "WAITING_REASON_",
    catalog.FragmentKind: "FRAGMENT_KIND_",
    catalog.FragmentState: "FRAGMENT_STATE_",
    catalog.ResourceKind: "RESOURCE_KIND_",
    log.PartitionEvent: "PARTITION_EVENT_",
    log.Durability: "DURABILITY_",
    log.TopicFormat: "TOPIC_FORMAT_",
    log.TransferState: "TRANSFER_STATE_",
}


def timestamp(microseconds: int) -> Timestamp:
    seconds, rest = divmod(microseconds, 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def duration(microseconds: int) -> Duration:
    """A length that is not negative."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return Duration(seconds=seconds, nanos=rest * 1000)


def microseconds(length: Duration) -> int:
    return length.seconds * 1_000_000 + length.nanos // 1000


@functools.lru_cache(maxsize=1024)
def short(enum: Any, value: int) -> str:
    """`ACTIVE` for AGENT_STATE_ACTIVE; empty for UNSPECIFIED and for numbers that the proto does not have."""
    if value == 0 or value not in enum.DESCRIPTOR.values_by_number:
        return ""
    name: str = enum.Name(value)
    return name.removeprefix(_PREFIXES[enum])


@functools.lru_cache(maxsize=1024)
def number(enum: Any, name: str) -> Any:
    """The value of an enum by its short name; UNSPECIFIED for an empty one."""
    return enum.Value(_PREFIXES[enum] + (name or "UNSPECIFIED"))


def json_object(values: Mapping[str, str]) -> str:
    """As stored: keys in order, so that equal options are equal text."""
    return json.dumps(dict(values), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def json_array(values: Sequence[str]) -> str:
    return json.dumps(list(values), separators=(",", ":"), ensure_ascii=False)


def from_json_object(text: str) -> dict[str, str]:
    loaded: dict[str, str] = json.loads(text)
    return loaded
