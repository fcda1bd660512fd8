"""Which addresses TCP sources of this agent may connect to.

An entry of the allow-list is `host:port`. The host is a name (`*` stands for any part of it), an address, or a network;
the port is a number or `*`. Names are matched as the source spells them; networks and addresses against what the name
resolves to, and it is that very address which is connected to, so that a name cannot lead elsewhere in between.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Target:
    """One entry: a network, or a pattern of names; and a port, or None for any."""

    network: Network | None
    names: re.Pattern[str] | None
    port: int | None

    def allows(self, host: str, port: int, address: Address) -> bool:
        if self.port is not None and self.port != port:
            return False
        if self.network is not None:
            return address.version == self.network.version and address in self.network
        return self.names is not None and self.names.fullmatch(host.lower()) is not None


class Targets:
    """The allow-list. A ValueError where an entry cannot be read."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._targets = tuple(_target(entry) for entry in entries)

    def allows(self, host: str, port: int, address: str) -> bool:
        """Whether a source that names this host and port may connect to this address of it."""
        found = _plain(ipaddress.ip_address(address.partition("%")[0]))
        return any(target.allows(host, port, found) for target in self._targets)


def _target(entry: str) -> Target:
    host, colon, port_text = entry.strip().rpartition(":")
    if not colon or not host:
        raise ValueError(f"{entry!r} is not host:port")
    if port_text != "*" and not (port_text.isdecimal() and 0 < int(port_text) < 65_536):
        raise ValueError(f"{entry!r}: a port is a number up to 65,535, or `*`")
    port = None if port_text == "*" else int(port_text)
    try:
        return Target(ipaddress.ip_network(host.strip("[]"), strict=False), None, port)
    except ValueError:
        parts = (re.escape(part) for part in host.lower().split("*"))
        return Target(None, re.compile(".*".join(parts)), port)


def _plain(address: Address) -> Address:
    """An IPv4 address in IPv6 clothes is the IPv4 address: else it would slip through its network's rule."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
