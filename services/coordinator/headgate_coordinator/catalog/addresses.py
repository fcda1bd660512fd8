"""The rule for addresses: `host:port` or `[v6]:port`."""

from __future__ import annotations

import ipaddress
import re

from headgate_common.errors import HeadgateError
from headgate_coordinator.errors import INVALID_ADDRESS

_HOST = re.compile(r"(?=.{1,253}\Z)(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?", re.ASCII)
_DOTTED = re.compile(r"[0-9.]+", re.ASCII)


def check_address(address: str) -> str:
    """The address in the one spelling that is stored, so that one place is one text; else INVALID_ADDRESS."""
    host, separator, port = address.rpartition(":")
    if not separator or not port.isascii() or not port.isdigit() or len(port) > 5 or not 1 <= int(port) <= 65535:
        raise _invalid(address, "it needs a port from 1 to 65535 after the last colon")
    if host.startswith("[") and host.endswith("]"):
        try:
            return f"[{ipaddress.IPv6Address(host[1:-1])}]:{int(port)}"
        except ValueError:
            raise _invalid(address, "there is no IPv6 address between the brackets") from None
    if ":" in host:
        raise _invalid(address, "an IPv6 address goes between brackets")
    if _DOTTED.fullmatch(host):
        try:
            return f"{ipaddress.IPv4Address(host)}:{int(port)}"
        except ValueError:
            raise _invalid(address, "there is no IPv4 address before the port") from None
    if not _HOST.fullmatch(host):
        raise _invalid(address, "there is no host name before the port")
    return f"{host.lower()}:{int(port)}"


def _invalid(address: str, why: str) -> HeadgateError:
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in address[:80])
    return HeadgateError(
        INVALID_ADDRESS, f"`{shown}` is not host:port or [v6]:port: {why}", metadata={"field": "address"}
    )
