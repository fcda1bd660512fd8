"""TLS on real sockets, with certificates made for the test."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from headgate_common.config import ConfigError
from headgate_common.errors import UNREACHABLE
from headgate_common.http import HttpServer, standard_routes
from headgate_common.settings import TlsConfig
from headgate_common.tls import channel_credentials, http_context, server_credentials
from headgate_common.transport import GrpcTransport
from tests.integration.common.serving import serving
from tests.servers.certificates import Pair, authority, signed
from tests.unit.common.transport_contract import STATUS, ToyFragments, failure, status_request

TIMEOUT = 20.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def ours(folder: Path) -> Pair:
    return authority(folder, "ours")


@pytest.fixture(scope="module")
def theirs(folder: Path) -> Pair:
    return authority(folder, "theirs")


@pytest.fixture(scope="module")
def server(folder: Path, ours: Pair) -> Pair:
    return signed(folder, "server", ours)


def calls(tls: TlsConfig) -> GrpcTransport:
    return GrpcTransport(credentials=channel_credentials(tls))


async def test_a_call_over_tls_is_answered(server: Pair, ours: Pair) -> None:
    tls = TlsConfig(certificate=server.certificate, key=server.key, ca=ours.certificate)
    async with serving([ToyFragments()], tls=tls) as served, calls(tls) as transport:
        answer: Any = await transport.call(served.address, STATUS, status_request(3), timeout=TIMEOUT)
        assert answer.version == 3


async def test_a_server_of_another_authority_is_not_believed(server: Pair, theirs: Pair) -> None:
    tls = TlsConfig(certificate=server.certificate, key=server.key)
    async with serving([ToyFragments()], tls=tls) as served, calls(TlsConfig(ca=theirs.certificate)) as transport:
        error = await failure(transport.call(served.address, STATUS, status_request(3), timeout=TIMEOUT))
        assert error.reason is UNREACHABLE


async def test_plain_text_gets_nothing_from_a_tls_server(server: Pair) -> None:
    tls = TlsConfig(certificate=server.certificate, key=server.key)
    async with serving([ToyFragments()], tls=tls) as served, GrpcTransport() as transport:
        error = await failure(transport.call(served.address, STATUS, status_request(3), timeout=TIMEOUT))
        assert error.reason is UNREACHABLE


async def test_with_mtls_only_callers_of_the_authority_are_answered(
    folder: Path, server: Pair, ours: Pair, theirs: Pair
) -> None:
    tls = TlsConfig(certificate=server.certificate, key=server.key, client_ca=ours.certificate)
    friend, stranger = signed(folder, "friend", ours), signed(folder, "stranger", theirs)
    async with serving([ToyFragments()], tls=tls) as served:
        shown = TlsConfig(ca=ours.certificate, certificate=friend.certificate, key=friend.key)
        async with calls(shown) as transport:
            await transport.call(served.address, STATUS, status_request(3), timeout=TIMEOUT)
        for config in (
            TlsConfig(ca=ours.certificate),
            TlsConfig(ca=ours.certificate, certificate=stranger.certificate, key=stranger.key),
        ):
            async with calls(config) as transport:
                error = await failure(transport.call(served.address, STATUS, status_request(3), timeout=TIMEOUT))
                assert error.reason is UNREACHABLE


async def test_a_renewed_certificate_is_used_without_a_restart(
    folder: Path, server: Pair, ours: Pair, theirs: Pair
) -> None:
    files = Pair(folder / "renewed.pem", folder / "renewed.key")
    replacement = signed(folder, "replacement", theirs)

    def install(pair: Pair) -> None:
        shutil.copyfile(pair.certificate, files.certificate)
        shutil.copyfile(pair.key, files.key)

    install(server)
    async with serving([ToyFragments()], tls=TlsConfig(certificate=files.certificate, key=files.key)) as served:
        old, new = TlsConfig(ca=ours.certificate), TlsConfig(ca=theirs.certificate)
        async with calls(old) as transport:
            await transport.call(served.address, STATUS, status_request(3), timeout=TIMEOUT)
        # Half a replacement is not used: the old pair stays.
        shutil.copyfile(replacement.certificate, files.certificate)
        async with calls(old) as transport:
            await transport.call(served.address, STATUS, status_request(3), timeout=TIMEOUT)
        install(replacement)
        async with calls(new) as transport:
            await transport.call(served.address, STATUS, status_request(3), timeout=TIMEOUT)
        async with calls(old) as transport:
            error = await failure(transport.call(served.address, STATUS, status_request(3), timeout=TIMEOUT))
            assert error.reason is UNREACHABLE


async def test_a_certificate_that_cannot_be_used_is_one_clear_line(folder: Path, server: Pair, theirs: Pair) -> None:
    mixed = TlsConfig(certificate=server.certificate, key=theirs.key)
    with pytest.raises(ConfigError, match="cannot be used"):
        http_context(mixed)
    broken = folder / "broken.pem"
    broken.write_text("nothing")
    with pytest.raises(ConfigError, match="certificate"):
        server_credentials(TlsConfig(certificate=broken, key=server.key))
    with pytest.raises(ConfigError, match="certificate"):
        server_credentials(mixed)
    with pytest.raises(ConfigError, match="authorities"):
        server_credentials(TlsConfig(certificate=server.certificate, key=server.key, client_ca=broken))
    with pytest.raises(ConfigError, match="authorities"):
        channel_credentials(TlsConfig(ca=broken))


async def test_the_http_port_speaks_tls_too(server: Pair, ours: Pair) -> None:
    pages = HttpServer(standard_routes(CollectorRegistry(), list))
    address = await pages.start("127.0.0.1:0", http_context(TlsConfig(certificate=server.certificate, key=server.key)))
    context = ssl.create_default_context(cafile=str(ours.certificate))
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rpartition(":")[2]), ssl=context)
    writer.write(b"GET /health HTTP/1.1\r\n\r\n")
    assert (await reader.read()).startswith(b"HTTP/1.1 200 OK")
    writer.close()
    await pages.close()
