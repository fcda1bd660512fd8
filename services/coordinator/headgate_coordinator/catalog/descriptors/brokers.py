"""The Kafka brokers of sources and sinks that name none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.descriptors.kafka import BOOTSTRAP_SERVERS

Request = TypeVar("Request", catalog.CreatePhysicalSourceRequest, catalog.CreateSinkRequest)


def missing_brokers(options: Mapping[str, str], brokers: str) -> dict[str, str]:
    """What the options of a KAFKA source or sink lack: these brokers, where they name none."""
    if not brokers or any(key.lower() in BOOTSTRAP_SERVERS.names for key in options):
        return {}
    return {BOOTSTRAP_SERVERS.name: brokers}


def with_brokers(request: Request, brokers: str) -> Request:
    """The request with these brokers, where it is for Kafka and names none; otherwise as it is."""
    is_source = isinstance(request, catalog.CreatePhysicalSourceRequest)
    if request.type != (catalog.SOURCE_TYPE_KAFKA if is_source else catalog.SINK_TYPE_KAFKA):
        return request
    missing = missing_brokers(request.options, brokers)
    if not missing:
        return request
    filled = type(request)()
    filled.CopyFrom(request)
    filled.options.update(missing)
    return filled
