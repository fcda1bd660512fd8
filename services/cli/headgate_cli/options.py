"""Options that many commands share, and the settings they make."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from headgate_cli.durations import seconds
from headgate_cli.output import Output
from headgate_common.config import ConfigError
from headgate_common.settings import TlsConfig
from headgate_common.tls import split_address

DEFAULT_COORDINATOR = "127.0.0.1:7400"
DEFAULT_RPC_TIMEOUT = 30.0

CoordinatorOption = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        metavar="HOST:PORT",
        help=f"Where the coordinator answers. [default: $HEADGATE_COORDINATOR, or {DEFAULT_COORDINATOR}]",
        show_default=False,
    ),
]
OutputOption = Annotated[
    Output, typer.Option("-o", "--output", help="A table for people, or JSON for programs: one array, or one a line.")
]
TimeoutOption = Annotated[
    str, typer.Option("--timeout", metavar="DURATION", help="How long to wait, such as 90s or 5m; then exit code 4.")
]


@dataclass(frozen=True, slots=True)
class Options:
    """What a command needs to reach the coordinator and to write its result."""

    coordinator: str = DEFAULT_COORDINATOR
    output: Output = Output.TABLE
    rpc_timeout: float = DEFAULT_RPC_TIMEOUT
    tls: TlsConfig = field(default_factory=TlsConfig)


@dataclass(frozen=True, slots=True)
class RootOptions:
    """What was said before the name of the command."""

    coordinator: str | None = None
    rpc_timeout: float = DEFAULT_RPC_TIMEOUT
    tls: TlsConfig = field(default_factory=TlsConfig)


def gather(context: typer.Context, coordinator: str | None, output: Output = Output.TABLE) -> Options:
    """The options of a command: its own first, then those before its name, then the defaults."""
    root = context.find_object(RootOptions) or RootOptions()
    # The environment comes after both places of the option: what is written in a command wins.
    written = coordinator or root.coordinator
    return Options(
        coordinator=(
            _checked(written, "--coordinator")
            if written
            else _checked(os.environ.get("HEADGATE_COORDINATOR") or DEFAULT_COORDINATOR, "HEADGATE_COORDINATOR")
        ),
        output=output,
        rpc_timeout=root.rpc_timeout,
        tls=root.tls,
    )


def _checked(address: str, said_by: str) -> str:
    """The address as it is; a usage error where nobody could be called there."""
    try:
        host, port = split_address(address)
    except ConfigError as error:
        raise typer.BadParameter(f"{said_by}: {error}") from error
    if not host or not port:
        raise typer.BadParameter(f"{said_by}: {address!r} names no {'port' if host else 'host'} to call")
    return address


def root_options(
    coordinator: str | None, rpc_timeout: str, ca: Path | None, certificate: Path | None, key: Path | None
) -> RootOptions:
    try:
        tls = TlsConfig(certificate=certificate, key=key, ca=ca)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    timeout = seconds(rpc_timeout)
    if not timeout:
        raise typer.BadParameter("--rpc-timeout: a call takes some time; write more than 0, such as 30s")
    return RootOptions(coordinator=coordinator, rpc_timeout=timeout, tls=tls)
