"""Certificates, and which addresses a server may listen on.

Contract: without TLS a server listens on loopback only, unless its operator says `--insecure`. A server's certificate
files are looked at on every handshake, so that a renewed certificate is used without a restart; a channel reads its
files when it is made.
"""

from __future__ import annotations

import ipaddress
import logging
import ssl
from pathlib import Path

import grpc

from headgate_common.config import ConfigError
from headgate_common.settings import TlsConfig

log = logging.getLogger(__name__)


def split_address(address: str) -> tuple[str, int]:
    """`host:port`, `[::1]:port` or `:port` (every address) as host and port."""
    host, separator, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not separator or not port.isdecimal() or int(port) > 65535 or (":" in host and not bracketed):
        raise ConfigError(f"address {address!r}: expected host:port, such as 127.0.0.1:7400 or [::1]:7400")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_everywhere(host: str) -> bool:
    """Whether a host stands for every address of the machine, which is no address to tell anybody."""
    if not host:
        return True
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def check_listen(address: str, tls: TlsConfig, *, insecure: bool) -> None:
    """Refuses an address that others reach, where nothing would protect what they send."""
    host, _ = split_address(address)
    if is_loopback(host) or tls.serves or insecure:
        return
    raise ConfigError(
        f"refusing to listen on {address} without TLS: give --tls-certificate and --tls-key, "
        "listen on 127.0.0.1, or accept it with --insecure"
    )


def advertised(advertise: str, bound: str) -> str:
    """The address that others are told."""
    if advertise:
        host, port = split_address(advertise)
        return join_address(host, port or split_address(bound)[1])
    host, port = split_address(bound)
    if is_everywhere(host):
        raise ConfigError(f"{bound} stands for every address: say with --advertise HOST:PORT where others reach it")
    return bound


def server_credentials(tls: TlsConfig) -> grpc.ServerCredentials | None:
    """Credentials for a gRPC server, or None without TLS."""
    if not tls.serves:
        return None
    files = _ServerFiles(tls)
    return grpc.dynamic_ssl_server_credentials(
        files.configuration(),
        files.renewed,  # type: ignore[arg-type]  # None keeps the present one; the stub does not say so
        require_client_authentication=tls.client_ca is not None,
    )


def channel_credentials(tls: TlsConfig) -> grpc.ChannelCredentials | None:
    """Credentials for calls, or None for calls without TLS. Shows this server's own certificate where it has one."""
    if tls.ca is None:
        return None
    _check_authorities(tls.ca)
    key = _read(tls.key) if tls.key else None
    chain = _read(tls.certificate) if tls.certificate else None
    return grpc.ssl_channel_credentials(_read(tls.ca), key, chain)


def http_context(tls: TlsConfig) -> ssl.SSLContext | None:
    """TLS for the HTTP port, which asks no certificate of the probes and scrapers that use it."""
    if tls.certificate is None or tls.key is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # A key with a passphrase must fail here instead of asking for it on a terminal.
        context.load_cert_chain(tls.certificate, tls.key, password=lambda: b"")
    except (OSError, ValueError) as error:
        raise ConfigError(f"certificate {tls.certificate} and key {tls.key} cannot be used: {error}") from error
    return context


def _check_files(tls: TlsConfig) -> None:
    """gRPC takes any bytes and fails in every handshake; Python's TLS says at once what is wrong."""
    if http_context(tls) is not None and tls.client_ca is not None:
        _check_authorities(tls.client_ca)


def _check_authorities(path: Path) -> None:
    try:
        ssl.create_default_context(cadata=_read(path).decode(errors="replace"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"authorities {path} cannot be used: {error}") from error


class _ServerFiles:
    """The files of a server, read again when one has changed."""

    def __init__(self, tls: TlsConfig) -> None:
        self._tls = tls
        self._paths = [path for path in (tls.certificate, tls.key, tls.client_ca) if path is not None]
        self._seen = self._stamp()

    def configuration(self) -> grpc.ServerCertificateConfiguration:
        assert self._tls.certificate is not None
        assert self._tls.key is not None
        _check_files(self._tls)
        authorities = _read(self._tls.client_ca) if self._tls.client_ca else None
        return grpc.ssl_server_certificate_configuration(
            [(_read(self._tls.key), _read(self._tls.certificate))], authorities
        )

    def renewed(self) -> grpc.ServerCertificateConfiguration | None:
        """The new configuration, or None to keep the present one. Called by gRPC, from a thread of its own."""
        try:
            stamp = self._stamp()
            if stamp == self._seen:
                return None
            configuration = self.configuration()
        except (ConfigError, OSError) as error:
            # Half-replaced files: the next handshake looks again.
            log.warning("certificate not renewed", extra={"error": str(error)})
            return None
        self._seen = stamp
        log.info("certificate renewed", extra={"certificate": str(self._tls.certificate)})
        return configuration

    def _stamp(self) -> tuple[tuple[int, int], ...]:
        try:
            return tuple((path.stat().st_mtime_ns, path.stat().st_ino) for path in self._paths)
        except OSError as error:
            raise ConfigError(f"{error.filename}: cannot be read: {error.strerror}") from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
