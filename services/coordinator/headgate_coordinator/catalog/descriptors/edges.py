"""Options of a query that puts its edges on Kafka: those that reach the cluster, as of a KAFKA source or sink."""

from __future__ import annotations

from collections.abc import Mapping

from headgate_coordinator.catalog.descriptors.kafka import BOOTSTRAP_SERVERS, SECURITY, security_faults
from headgate_coordinator.catalog.descriptors.options import REDACTED, Fault, check_options

EDGE_OPTIONS = (BOOTSTRAP_SERVERS, *SECURITY)
EDGE_OPTION_NAMES = frozenset(name for option in EDGE_OPTIONS for name in option.names)
_SECRETS = frozenset(option.name for option in EDGE_OPTIONS if option.secret)


def check_edges(given: Mapping[str, str]) -> tuple[dict[str, str], list[Fault]]:
    """The options in normal form, and everything that is wrong with them."""
    options, faults = check_options("", "a query with edges on Kafka", EDGE_OPTIONS, given)
    return options, faults or security_faults("", options)


def redact_edges(options: Mapping[str, str]) -> dict[str, str]:
    """The options, in normal form, as they may be shown."""
    return {name: REDACTED if name in _SECRETS else value for name, value in options.items()}


def has_secrets(options: Mapping[str, str]) -> bool:
    return not _SECRETS.isdisjoint(options)
