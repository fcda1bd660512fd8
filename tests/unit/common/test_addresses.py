"""Which addresses a server may listen on, and which it tells others."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate_common.config import ConfigError
from headgate_common.settings import TlsConfig
from headgate_common.tls import (
    advertised,
    channel_credentials,
    check_listen,
    http_context,
    join_address,
    server_credentials,
    split_address,
)

TLS = TlsConfig(certificate=Path("c.pem"), key=Path("k.pem"))
LOOPBACK = ["127.0.0.1:7400", "127.8.9.10:1", "[::1]:7400", "localhost:0"]
OTHER = ["0.0.0.0:7400", "[::]:7400", ":7400", "192.168.1.1:7400", "example.org:1", "[2001:db8::1]:1"]


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_needs_nothing(address: str) -> None:
    check_listen(address, TlsConfig(), insecure=False)


@pytest.mark.parametrize("address", OTHER)
def test_other_addresses_need_tls_or_an_explicit_word(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_listen(address, TlsConfig(), insecure=False)
    (problem,) = caught.value.problems
    assert address in problem
    assert "--tls-certificate" in problem and "--insecure" in problem
    check_listen(address, TlsConfig(), insecure=True)
    check_listen(address, TLS, insecure=False)


@pytest.mark.parametrize("address", ["", "7400", "host", "host:port", "host:70000", "::1:7400", "host:-1", "host:²"])
def test_what_is_no_address_is_refused_with_an_example(address: str) -> None:
    with pytest.raises(ConfigError, match=r"expected host:port"):
        split_address(address)


@pytest.mark.parametrize("address", ["127.0.0.1:7400", "[::1]:7400", "host.name:1"])
def test_addresses_are_split_and_joined(address: str) -> None:
    assert join_address(*split_address(address)) == address


def test_others_are_told_what_was_said_or_what_was_bound() -> None:
    assert advertised("", "127.0.0.1:7400") == "127.0.0.1:7400"
    assert advertised("agent-1.example:7410", "0.0.0.0:7410") == "agent-1.example:7410"
    assert advertised("agent-1.example:0", "0.0.0.0:40000") == "agent-1.example:40000"


@pytest.mark.parametrize("bound", ["0.0.0.0:7400", "[::]:7400", ":7400"])
def test_every_address_is_no_address_to_tell(bound: str) -> None:
    with pytest.raises(ConfigError, match="--advertise"):
        advertised("", bound)


def test_missing_files_are_named(tmp_path: Path) -> None:
    missing = TlsConfig(certificate=tmp_path / "c.pem", key=tmp_path / "k.pem", ca=tmp_path / "ca.pem")
    for make in (server_credentials, channel_credentials, http_context):
        with pytest.raises(ConfigError, match=r"\.pem"):
            make(missing)


def test_without_tls_there_are_no_credentials() -> None:
    assert server_credentials(TlsConfig()) is None
    assert channel_credentials(TlsConfig()) is None
    assert http_context(TlsConfig()) is None
