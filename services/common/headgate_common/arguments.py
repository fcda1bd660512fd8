"""The command line that every server has. A flag is a shorter way to write `--set key=value`, nothing more."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headgate_common.config import Key, Loaded, environment_name, keys, load

C = TypeVar("C")

_WIDTH = 110


@dataclass(frozen=True, slots=True)
class Flag:
    """`name VALUE` sets `key`; without a metavar it is a switch that sets it to true."""

    name: str
    key: str
    metavar: str | None
    help: str


STANDARD = (
    Flag("--listen", "server.listen", "HOST:PORT", "address for gRPC"),
    Flag("--http-listen", "server.http_listen", "HOST:PORT", "address for /health, /ready and /metrics"),
    Flag("--advertise", "server.advertise", "HOST:PORT", "address that other processes are told"),
    Flag("--insecure", "server.insecure", None, "allow other addresses than loopback without TLS"),
    Flag("--tls-certificate", "server.tls.certificate", "FILE", "certificate chain of this server; turns TLS on"),
    Flag("--tls-key", "server.tls.key", "FILE", "private key of the certificate"),
    Flag("--tls-client-ca", "server.tls.client_ca", "FILE", "authorities of callers; they must show a certificate"),
    Flag("--tls-ca", "server.tls.ca", "FILE", "authorities of the servers that this one calls"),
    Flag("--log-format", "server.log_format", "text|json", "form of the log"),
    Flag("--log-level", "server.log_level", "LEVEL", "debug, info, warning or error"),
)


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the command line said: the settings in force, and whether only to show them."""

    loaded: Loaded[Any]
    show_config: bool


def parse(
    config_type: type[C],
    *,
    service: str,
    version: str,
    summary: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    flags: Sequence[Flag] = (),
    profiles: Mapping[str, Mapping[str, Any]] | None = None,
) -> Arguments:
    """Reads command line, environment and file. Exits on `--help` and `--version`; raises ConfigError."""
    known = {key.name: key for key in keys(config_type)}
    offered = [*flags, *(flag for flag in STANDARD if flag.key in known)]
    parser = argparse.ArgumentParser(
        prog=f"headgate-{service}",
        description=summary,
        epilog=_epilog(service, list(known.values()), sorted(profiles or {})),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=32, width=_WIDTH),
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"headgate-{service} {version}")
    parser.add_argument("--config", metavar="FILE", type=Path, help="settings in TOML")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="any setting; may be repeated")
    if profiles:
        parser.add_argument("--profile", metavar="NAME", help=f"a named set of settings: {', '.join(sorted(profiles))}")
    parser.add_argument("--show-config", action="store_true", help="print the settings in force and stop")
    for flag in offered:
        if flag.metavar is None:
            parser.add_argument(flag.name, dest=flag.name, action="store_true", help=flag.help)
        else:
            parser.add_argument(flag.name, dest=flag.name, metavar=flag.metavar, help=flag.help)
    given = vars(parser.parse_args(argv))
    pairs = []
    if given.get("profile"):
        pairs.append(f"profile={given['profile']}")
    for flag in offered:
        value = given[flag.name]
        if value is True:
            pairs.append(f"{flag.key}=true")
        elif value not in (None, False):
            pairs.append(f"{flag.key}={value}")
    loaded = load(
        config_type,
        service=service,
        file=given["config"],
        environment=environment,
        flags=[*pairs, *given["set"]],
        profiles=profiles,
    )
    return Arguments(loaded, given["show_config"])


def _epilog(service: str, known: Sequence[Key], profiles: Sequence[str]) -> str:
    example = known[0].name
    lines = [
        "Settings are read from --config FILE, then from the environment, then from flags; the last one wins.",
        "The same setting, three ways:",
        "",
        f"  in FILE       {_toml(example)}",
        f"  environment   {environment_name(service, example)}=VALUE",
        f"  flag          --set {example}=VALUE",
        "",
        "Durations are written 250ms, 6s, 24h; sizes 512KiB, 64MiB; lists a,b,c.",
    ]
    if profiles:
        lines.append(f'Profiles (--profile NAME, or profile = "NAME" in FILE): {", ".join(profiles)}.')
    lines += ["", "settings:"]
    for key in known:
        default = "required" if key.required else f"default {key.show(key.default) or 'empty'}"
        lines.append(f"  {key.name}  ({key.kind.name}; {default})")
        lines += textwrap.wrap(key.meaning, _WIDTH - 6, initial_indent="      ", subsequent_indent="      ")
    return "\n".join(lines)


def _toml(key: str) -> str:
    group, _, name = key.rpartition(".")
    return f"[{group}] {name} = VALUE" if group else f"{name} = VALUE"
