"""Options to reach an Apache Kafka cluster, shared by its source and sink."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headgate_coordinator.catalog.descriptors.options import Fault, Option, OptionType
from headgate_coordinator.sql.names import topic_fault

_SERVER = re.compile(r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253}):([0-9]{1,5})")


def servers_fault(value: str) -> str:
    """What is wrong with a list of host:port; empty if nothing."""
    for server in value.split(","):
        match = _SERVER.fullmatch(server.strip())
        if match is None or not 1 <= int(match.group(1)) <= 65_535:
            return f"{server.strip()[:60]!r} is not host:port"
    return ""


BOOTSTRAP_SERVERS = Option(
    "bootstrap_servers",
    OptionType.TEXT,
    "brokers to begin with, as host:port,host:port",
    required=True,
    synonyms=("bootstrap.servers", "bootstrap", "brokers"),
    check=servers_fault,
)
KAFKA_TOPIC = Option("topic", OptionType.TEXT, "the topic", required=True, check=topic_fault)
SECURITY = (
    Option(
        "security_protocol",
        OptionType.CHOICE,
        "how brokers are talked to",
        default="PLAINTEXT",
        synonyms=("security.protocol",),
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    Option(
        "sasl_mechanism",
        OptionType.CHOICE,
        "how the client proves who it is",
        synonyms=("sasl.mechanism", "sasl.mechanisms"),
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
    ),
    Option("sasl_username", OptionType.TEXT, "the user", synonyms=("sasl.username",)),
    Option("sasl_password", OptionType.TEXT, "the user's password", secret=True, synonyms=("sasl.password",)),
    Option(
        "ssl_ca_location",
        OptionType.TEXT,
        "PEM file with the certificates to trust, where the client runs; without it, those that its system trusts",
        synonyms=("ssl.ca.location",),
    ),
    Option(
        "ssl_certificate_location",
        OptionType.TEXT,
        "PEM file with the client's certificate",
        synonyms=("ssl.certificate.location",),
    ),
    Option(
        "ssl_key_location", OptionType.TEXT, "PEM file with the client's key (PKCS #8)", synonyms=("ssl.key.location",)
    ),
    Option(
        "ssl_key_password", OptionType.TEXT, "the password of that key", secret=True, synonyms=("ssl.key.password",)
    ),
)


# What an option cannot do without.
_NEEDS = {
    "ssl_certificate_location": "ssl_key_location",
    "ssl_key_location": "ssl_certificate_location",
    "ssl_key_password": "ssl_key_location",
}


def security_faults(scope: str, options: Mapping[str, str]) -> list[Fault]:
    """What does not fit together among the options of `SECURITY`."""
    protocol = options.get("security_protocol", "PLAINTEXT")
    faults: list[Fault] = []
    if protocol.startswith("SASL"):
        faults += [
            Fault(scope, name, f"security_protocol {protocol} needs it")
            for name in ("sasl_mechanism", "sasl_username", "sasl_password")
            if name not in options
        ]
    else:
        faults += [
            Fault(scope, name, f"it has no effect with security_protocol {protocol}; use SASL_SSL or SASL_PLAINTEXT")
            for name in ("sasl_mechanism", "sasl_username", "sasl_password")
            if name in options
        ]
    if not protocol.endswith("SSL"):
        faults += [
            Fault(scope, name, f"it has no effect with security_protocol {protocol}; use SSL or SASL_SSL")
            for name in ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location", "ssl_key_password")
            if name in options
        ]
    else:
        faults += [
            Fault(scope, needed, f"{name} needs it")
            for name, needed in _NEEDS.items()
            if name in options and needed not in options
        ]
    return faults
