"""The settings that every server has: where it listens, how much it takes on, how it is secured and observed.

A service's configuration has these under `server` (`server: ServerConfig = section(ServerConfig, "...")`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from headgate_common.config import section, setting
from headgate_common.values import Bytes, Seconds


@dataclass(frozen=True, slots=True)
class TlsConfig:
    certificate: Path | None = setting(None, "PEM file with this server's certificate chain; turns TLS on.")
    key: Path | None = setting(None, "PEM file with the private key of the certificate.")
    client_ca: Path | None = setting(
        None, "PEM file with the authorities of callers; callers must then show a certificate (mTLS)."
    )
    ca: Path | None = setting(
        None, "PEM file with the authorities of the servers that this process calls; calls then use TLS."
    )

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key must be set together")
        if self.client_ca is not None and self.certificate is None:
            raise ValueError("client_ca needs certificate and key")

    @property
    def serves(self) -> bool:
        return self.certificate is not None


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    in_flight: int = setting(64, "Calls worked on at once.", minimum=1)
    queue: int = setting(256, "Calls that may wait for their turn; the next is answered OVERLOADED.", minimum=0)
    streams: int = setting(1000, "Long-lived streams held at once; the next is answered OVERLOADED.", minimum=1)
    message_size: Bytes = setting(16 * 2**20, "Largest request or answer; beyond it MESSAGE_TOO_LARGE.", minimum=1024)
    deadline: Seconds = setting(30.0, "Time given to a call whose caller sets no deadline.", minimum=0.001)
    retry_after: Seconds = setting(
        0.5, "Delay that OVERLOADED asks callers to wait, on average; each is told another.", minimum=0.001
    )
    drain: Seconds = setting(20.0, "Time that calls in flight have to finish after SIGTERM.", minimum=0.0)
    drain_notice: Seconds = setting(
        0.25,
        "Time after SIGTERM for which new calls are answered SHUTTING_DOWN even if none is in flight.",
        minimum=0.0,
    )


@dataclass(frozen=True, slots=True)
class TracingConfig:
    endpoint: str = setting(
        "", "Address of an OTLP gRPC collector, such as http://localhost:4317; empty: no spans are exported."
    )
    sample: float = setting(1.0, "Share of the traces begun here that are exported.", minimum=0.0, maximum=1.0)


@dataclass(frozen=True, slots=True)
class ServerConfig:
    listen: str = setting("127.0.0.1:0", "Address for gRPC. Port 0 takes any free port.")
    http_listen: str = setting("127.0.0.1:0", "Address for /health, /ready and /metrics; empty: none.")
    advertise: str = setting("", "Address that other processes are told; empty: the one it listens on.")
    insecure: bool = setting(False, "Allow other addresses than loopback without TLS.")
    log_format: Literal["text", "json"] = setting("text", "Form of the log on standard error.")
    log_level: Literal["debug", "info", "warning", "error"] = setting("info", "Least important events logged.")
    limits: LimitsConfig = section(LimitsConfig, "How much it takes on.")
    tls: TlsConfig = section(TlsConfig, "Certificates.")
    tracing: TracingConfig = section(TracingConfig, "OpenTelemetry.")


class HasServer(Protocol):
    """A service's configuration."""

    @property
    def server(self) -> ServerConfig: ...
