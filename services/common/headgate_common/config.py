"""Configuration: one frozen dataclass per service, filled from a file, the environment and flags, in that order.

A field is declared with `setting(default, "what it means")`, a group of fields with `section(OtherDataclass, "...")`:

    @dataclass(frozen=True, slots=True)
    class Timings:
        poll: Seconds = setting(1.0, "How often an agent is asked for news.", minimum=0.01)

    @dataclass(frozen=True, slots=True)
    class CoordinatorConfig:
        server: ServerConfig = section(ServerConfig, "How it listens.", listen="127.0.0.1:7400")
        timings: Timings = section(Timings, "Every interval and deadline.")

A key is the dotted path of a field. The same key is `[timings] poll = "2s"` in the TOML file,
`HEADGATE_COORDINATOR_TIMINGS__POLL=2s` in the environment and `--set timings.poll=2s` on the command line; the later
wins. A profile is a named set of keys that lies above the defaults and below the file, chosen with the key `profile`.

Contract: `load` returns a complete configuration and where each value came from, or raises one `ConfigError` that lists
every problem: unknown keys with the nearest known one, bad values with what was expected. Nothing is ignored.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from headgate_common.redact import REDACTED, redact_text
from headgate_common.values import Bytes, Kind, Seconds, kind_of

__all__ = [
    "Bytes",
    "ConfigError",
    "Key",
    "Loaded",
    "Seconds",
    "describe",
    "environment_name",
    "keys",
    "load",
    "section",
    "setting",
]

C = TypeVar("C")

PROFILE = "profile"
# Kubernetes puts these into the environment of every pod for a Service of the name headgate-<service>.
_SERVICE_LINKS = re.compile(r"SERVICE_HOST|SERVICE_PORT(_.*)?|PORT|PORT_\d+_(TCP|UDP|SCTP)(_.*)?")


class ConfigError(Exception):
    """A configuration that cannot be used; `problems` are whole sentences, one each."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, slots=True)
class Key:
    """A setting as people know it."""

    name: str
    kind: Kind
    meaning: str
    default: Any
    secret: bool
    minimum: float | None
    maximum: float | None

    @property
    def required(self) -> bool:
        return self.default is dataclasses.MISSING

    def show(self, value: Any) -> str:
        if self.secret and value:
            return REDACTED
        return redact_text(self.kind.show(value))


@dataclass(frozen=True, slots=True)
class Loaded(Generic[C]):
    """A configuration, and for each key that is not at its default, who set it."""

    config: C
    origins: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Layer:
    """Raw values by key, and what to call their source in an error."""

    origin: str
    values: Mapping[str, Any]


def setting(
    default: Any,
    meaning: str,
    *,
    secret: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
) -> Any:
    """A field of a configuration. `default` may be `dataclasses.MISSING` for one that must be given."""
    metadata = {"meaning": meaning, "secret": secret, "minimum": minimum, "maximum": maximum}
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata=metadata)
    if isinstance(default, Mapping):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def section(group: type[Any], meaning: str, **defaults: Any) -> Any:
    """A group of fields; `defaults` replace the group's own defaults here."""
    return dataclasses.field(default_factory=lambda: group(**defaults), metadata={"meaning": meaning})


def keys(config_type: type[Any]) -> list[Key]:
    """Every key of a configuration, in the order of declaration."""
    return list(_keys(config_type, "", None))


def describe(loaded: Loaded[Any]) -> list[tuple[str, str, str]]:
    """(key, value, origin) of every setting in force, secrets hidden."""
    lines = []
    for key in keys(type(loaded.config)):
        value = loaded.config
        for part in key.name.split("."):
            value = getattr(value, part)
        lines.append((key.name, key.show(value), loaded.origins.get(key.name, "default")))
    return lines


def environment_name(service: str, key: str) -> str:
    return f"HEADGATE_{service}_{key.replace('.', '__')}".upper().replace("-", "_")


def load(
    config_type: type[C],
    *,
    service: str,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Sequence[str] = (),
    profiles: Mapping[str, Mapping[str, Any]] | None = None,
) -> Loaded[C]:
    """Reads the layers over the defaults. `flags` are `key=value`, as after `--set`."""
    known = {key.name: key for key in keys(config_type)}
    problems: list[str] = []
    layers = []
    if file is not None:
        layers.append(_from_file(file, known))
    layers.append(_from_environment(service, environment or {}, known))
    layers.append(_from_flags(flags, problems))
    layers = _with_profile(layers, profiles or {}, known, problems)

    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        for name, raw in layer.values.items():
            key, entry = _find(name, known)
            if key is None:
                problems.append(f"{layer.origin}: {_unknown(name, known)}")
                continue
            try:
                value = _read(key, raw if entry is None else {entry: raw})
            except ValueError as error:
                problems.append(f"{layer.origin}: {error}")
                continue
            if key.kind.values is not None:
                value = {**values.get(key.name, key.default or {}), **value}
            values[key.name] = value
            origins[key.name] = layer.origin
    problems.extend(f"{key.name} must be set" for key in known.values() if key.required and key.name not in values)
    if problems:
        raise ConfigError(*problems)
    config = _build(config_type, "", values, None, problems)
    if problems:
        raise ConfigError(*problems)
    return Loaded(config, origins)


def _keys(config_type: type[Any], prefix: str, instance: Any) -> Iterator[Key]:
    hints = typing.get_type_hints(config_type, include_extras=True)
    for field in dataclasses.fields(config_type):
        hint = hints[field.name]
        default = _default(field) if instance is None else getattr(instance, field.name)
        if dataclasses.is_dataclass(hint):
            group = None if default is dataclasses.MISSING else default
            yield from _keys(typing.cast(type[Any], hint), f"{prefix}{field.name}.", group)
            continue
        yield Key(
            name=prefix + field.name,
            kind=kind_of(hint),
            meaning=field.metadata.get("meaning", ""),
            default=default,
            secret=field.metadata.get("secret", False),
            minimum=field.metadata.get("minimum"),
            maximum=field.metadata.get("maximum"),
        )


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _build(config_type: type[C], prefix: str, values: Mapping[str, Any], instance: Any, problems: list[str]) -> C:
    hints = typing.get_type_hints(config_type, include_extras=True)
    arguments: dict[str, Any] = {}
    for field in dataclasses.fields(typing.cast(Any, config_type)):
        name, hint = prefix + field.name, hints[field.name]
        default = _default(field) if instance is None else getattr(instance, field.name)
        if dataclasses.is_dataclass(hint):
            group = None if default is dataclasses.MISSING else default
            arguments[field.name] = _build(typing.cast(type[Any], hint), f"{name}.", values, group, problems)
        else:
            arguments[field.name] = values.get(name, default)
    try:
        return config_type(**arguments)
    except ValueError as error:
        # A rule over several fields, checked by the dataclass itself in __post_init__.
        problems.append(f"{prefix.rstrip('.') or 'configuration'}: {error}")
        return typing.cast(C, None)


def _read(key: Key, raw: Any) -> Any:
    shown = REDACTED if key.secret else repr(redact_text(raw) if isinstance(raw, str) else raw)
    try:
        value = key.kind.read(raw)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{key.name} = {shown}: expected {key.kind.expected}") from error
    for limit, word, breaks in ((key.minimum, "at least", -1), (key.maximum, "at most", 1)):
        if limit is not None and value is not None and (value - limit) * breaks > 0:
            raise ValueError(f"{key.name} = {shown}: expected {word} {key.kind.show(limit)}")
    return value


def _find(name: str, known: Mapping[str, Key]) -> tuple[Key | None, str | None]:
    """The key of that name, or the table that it is an entry of."""
    if name in known:
        return known[name], None
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        key = known.get(".".join(parts[:length]))
        if key is not None and key.kind.values is not None:
            return key, ".".join(parts[length:])
    return None, None


def _unknown(name: str, known: Mapping[str, Key]) -> str:
    sections = {key.rpartition(".")[0] for key in known}
    if name in sections:
        return f"{name} is a group of settings; set one of them, such as {_first_in(name, known)}"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if not near:
        # The right last word in the wrong group is the commonest slip.
        last = name.rpartition(".")[2]
        ends = {key.rpartition(".")[2]: key for key in reversed(list(known))}
        near = [ends[word] for word in difflib.get_close_matches(last, ends, n=1, cutoff=0.75)]
    hint = f"; did you mean {near[0]}?" if near else "; --help lists every setting"
    return f"unknown setting {name}{hint}"


def _first_in(group: str, known: Mapping[str, Key]) -> str:
    return next(key for key in known if key.startswith(f"{group}."))


def _from_file(file: Path, known: Mapping[str, Key]) -> Layer:
    try:
        with file.open("rb") as opened:
            document = tomllib.load(opened)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}") from error
    return Layer(str(file), _flatten(document, known))


def _flatten(table: Mapping[str, Any], known: Mapping[str, Key], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in table.items():
        key = known.get(prefix + name)
        if isinstance(value, Mapping) and (key is None or key.kind.values is None) and value:
            flat.update(_flatten(value, known, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat


def _from_environment(service: str, environment: Mapping[str, str], known: Mapping[str, Key]) -> Layer:
    prefix = environment_name(service, "")
    values = {}
    for variable, text in environment.items():
        if not variable.startswith(prefix):
            continue
        rest = variable.removeprefix(prefix)
        name = rest.lower().replace("__", ".")
        if _SERVICE_LINKS.fullmatch(rest) and name not in known:
            continue
        values[name] = text
    return Layer(f"environment {prefix}*", values)


def _from_flags(flags: Sequence[str], problems: list[str]) -> Layer:
    values = {}
    for flag in flags:
        name, separator, text = flag.partition("=")
        if not separator or not name.strip():
            problems.append(
                f"--set {redact_text(flag)}: expected key=value, such as --set server.listen=127.0.0.1:7400"
            )
            continue
        values[name.strip()] = text
    return Layer("flag", values)


def _with_profile(
    layers: list[Layer],
    profiles: Mapping[str, Mapping[str, Any]],
    known: Mapping[str, Key],
    problems: list[str],
) -> list[Layer]:
    """Puts the chosen profile below the other layers, and takes the key `profile` out of them unless it is a field."""
    chosen = None
    for layer in layers:
        chosen = layer.values.get(PROFILE, chosen)
    if PROFILE not in known:
        layers = [Layer(one.origin, {k: v for k, v in one.values.items() if k != PROFILE}) for one in layers]
    if chosen in (None, ""):
        return layers
    if chosen not in profiles:
        listed = ", ".join(sorted(profiles)) or "none"
        problems.append(f"profile = {chosen!r}: there is no such profile; there is: {listed}")
        return layers
    return [Layer(f"profile {chosen}", _flatten(profiles[chosen], known)), *layers]
