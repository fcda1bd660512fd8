"""Configuration from defaults, profile, file, environment and flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headgate_common.config import Bytes, ConfigError, Loaded, Seconds, describe, keys, load, section, setting
from headgate_common.settings import ServerConfig, TlsConfig


@dataclass(frozen=True, slots=True)
class Timings:
    poll: Seconds = setting(1.0, "How often.", minimum=0.01, maximum=60.0)
    session_ttl: Seconds = setting(6.0, "How long.")

    def __post_init__(self) -> None:
        if self.poll >= self.session_ttl:
            raise ValueError("poll must be shorter than session_ttl")


@dataclass(frozen=True, slots=True)
class ToyConfig:
    server: ServerConfig = section(ServerConfig, "Listening.", listen="127.0.0.1:7400")
    timings: Timings = section(Timings, "Intervals.")
    catalog: str = setting("sqlite:///x.db", "Where.")
    token: str = setting("", "Secret.", secret=True)
    segment: Bytes = setting(64 * 2**20, "How large.")
    roles: tuple[str, ...] = setting(("log", "fragments"), "What for.")
    labels: Mapping[str, str] = setting({"a": "1"}, "Free.")
    data: Path | None = setting(None, "Folder.")


@dataclass(frozen=True, slots=True)
class NeedyConfig:
    name: str = setting(dataclasses.MISSING, "Must be given.")


PROFILES: dict[str, dict[str, Any]] = {
    "patient": {"timings": {"session_ttl": "30s", "poll": "10s"}},
    "dotted": {"timings.poll": "3s"},
}


def load_toy(
    toml: str = "",
    environment: Mapping[str, str] | None = None,
    flags: tuple[str, ...] = (),
    folder: Path | None = None,
) -> Loaded[ToyConfig]:
    file = None
    if toml:
        assert folder is not None
        file = folder / "toy.toml"
        file.write_text(toml)
    return load(ToyConfig, service="toy", file=file, environment=environment, flags=flags, profiles=PROFILES)


def problems(**arguments: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_toy(**arguments)
    return list(caught.value.problems)


def test_without_layers_everything_is_at_its_default() -> None:
    loaded = load_toy()
    assert loaded.config == ToyConfig()
    assert loaded.config.server.listen == "127.0.0.1:7400"
    assert loaded.origins == {}


def test_later_layers_win_key_by_key(tmp_path: Path) -> None:
    toml = '[timings]\npoll = "2s"\nsession_ttl = "8s"\n[server]\nlisten = "127.0.0.1:1"\n[server.limits]\nqueue = 5\n'
    environment = {"HEADGATE_TOY_TIMINGS__POLL": "3s", "HEADGATE_TOY_SERVER__LIMITS__QUEUE": "6", "OTHER": "x"}
    loaded = load_toy(toml, environment, ("timings.poll=4s",), tmp_path)
    assert loaded.config.timings == Timings(poll=4.0, session_ttl=8.0)
    assert loaded.config.server.limits.queue == 6
    assert loaded.config.server.listen == "127.0.0.1:1"
    assert loaded.origins["timings.poll"] == "flag"
    assert loaded.origins["server.limits.queue"].startswith("environment")
    assert loaded.origins["server.listen"].endswith("toy.toml")
    assert "timings" not in loaded.origins


def test_all_types_come_from_toml_and_from_text(tmp_path: Path) -> None:
    toml = 'segment = "1MiB"\nroles = ["log"]\ndata = "/data"\nlabels = {zone = "eu"}\n[server]\ninsecure = true\n'
    config = load_toy(toml, folder=tmp_path).config
    assert (config.segment, config.roles, config.data) == (2**20, ("log",), Path("/data"))
    assert config.labels == {"a": "1", "zone": "eu"}
    assert config.server.insecure is True
    flags = ("segment=1MiB", "roles=log", "data=/data", "labels.zone=eu", "server.insecure=true")
    assert load_toy(flags=flags).config == config


def test_a_profile_lies_between_defaults_and_file(tmp_path: Path) -> None:
    toml = 'profile = "patient"\n[timings]\npoll = "5s"\n'
    loaded = load_toy(toml, folder=tmp_path)
    assert loaded.config.timings == Timings(poll=5.0, session_ttl=30.0)
    assert loaded.origins["timings.session_ttl"] == "profile patient"
    assert load_toy(flags=("profile=dotted",)).config.timings.poll == 3.0
    assert load_toy(environment={"HEADGATE_TOY_PROFILE": "patient"}).config.timings.poll == 10.0
    assert load_toy(toml, flags=("profile=dotted",), folder=tmp_path).config.timings.session_ttl == 6.0


def test_an_unknown_profile_is_refused_and_the_known_are_listed() -> None:
    assert problems(flags=("profile=hasty",)) == [
        "profile = 'hasty': there is no such profile; there is: dotted, patient"
    ]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("timings.pol", "timings.poll"),
        ("server.listn", "server.listen"),
        ("poll", "timings.poll"),
        ("server.session_ttl", "timings.session_ttl"),
        ("limits.queue", "server.limits.queue"),
    ],
)
def test_an_unknown_key_is_refused_with_the_one_that_was_meant(key: str, meant: str) -> None:
    (problem,) = problems(flags=(f"{key}=1",))
    assert problem == f"flag: unknown setting {key}; did you mean {meant}?"


def test_unknown_keys_are_refused_in_every_layer(tmp_path: Path) -> None:
    listed = problems(
        toml="[timings]\nxyzzy = 1\n", environment={"HEADGATE_TOY_XYZZY": "1"}, flags=("xyzzy=1",), folder=tmp_path
    )
    assert len(listed) == 3
    assert "timings.xyzzy" in listed[0]
    assert all("unknown setting" in one for one in listed)


def test_a_group_given_a_value_says_so(tmp_path: Path) -> None:
    (problem,) = problems(flags=("timings=3",))
    assert problem == "flag: timings is a group of settings; set one of them, such as timings.poll"
    (problem,) = problems(toml="timings = 3", folder=tmp_path)
    assert "timings is a group of settings" in problem


def test_variables_that_kubernetes_makes_for_a_service_are_not_settings() -> None:
    links = {
        "HEADGATE_TOY_SERVICE_HOST": "10.0.0.1",
        "HEADGATE_TOY_SERVICE_PORT": "7400",
        "HEADGATE_TOY_SERVICE_PORT_GRPC": "7400",
        "HEADGATE_TOY_PORT": "tcp://10.0.0.1:7400",
        "HEADGATE_TOY_PORT_7400_TCP": "tcp://10.0.0.1:7400",
        "HEADGATE_TOY_PORT_7400_TCP_ADDR": "10.0.0.1",
    }
    assert load_toy(environment=links).config == ToyConfig()


def test_a_bad_value_says_key_value_and_what_was_expected() -> None:
    (problem,) = problems(flags=("timings.poll=soon",))
    assert problem == "flag: timings.poll = 'soon': expected a duration such as 250ms, 6s or 24h"
    (problem,) = problems(flags=("timings.poll=1ms",))
    assert problem == "flag: timings.poll = '1ms': expected at least 10ms"
    (problem,) = problems(flags=("timings.poll=2m",))
    assert problem == "flag: timings.poll = '2m': expected at most 1m"


def test_every_problem_is_told_at_once() -> None:
    assert len(problems(flags=("timings.poll=soon", "x=1", "segment=big", "novalue"))) == 4


def test_a_rule_over_several_fields_names_their_group() -> None:
    assert problems(flags=("timings.poll=10s",)) == ["timings: poll must be shorter than session_ttl"]


def test_a_bad_secret_or_password_is_not_shown_in_the_problem() -> None:
    @dataclass(frozen=True, slots=True)
    class Secretive:
        pin: int = setting(0, "Secret.", secret=True)
        url: Seconds = setting(0.0, "Not a URL.")

    with pytest.raises(ConfigError) as caught:
        load(Secretive, service="toy", flags=("pin=hunter2", "url=http://me:hunter2@host"))
    assert "hunter2" not in str(caught.value)
    assert "pin = [redacted]" in str(caught.value)


def test_a_required_setting_must_be_given() -> None:
    with pytest.raises(ConfigError, match="name must be set"):
        load(NeedyConfig, service="toy")
    assert load(NeedyConfig, service="toy", flags=("name=x",)).config.name == "x"


def test_a_missing_or_broken_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gone\.toml: cannot be read: No such file"):
        load(ToyConfig, service="toy", file=tmp_path / "gone.toml")
    assert "not valid TOML" in problems(toml="a = = 1", folder=tmp_path)[0]
    (tmp_path / "bytes.toml").write_bytes(b"a = '\xff'")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load(ToyConfig, service="toy", file=tmp_path / "bytes.toml")


def test_describe_shows_every_key_with_secrets_hidden() -> None:
    loaded = load_toy(flags=("token=hunter2", "catalog=postgresql://me:hunter2@host/db"))
    lines = {key: (value, origin) for key, value, origin in describe(loaded)}
    assert lines["token"] == ("[redacted]", "flag")
    assert lines["catalog"] == ("postgresql://me:[redacted]@host/db", "flag")
    assert lines["timings.poll"] == ("1s", "default")
    assert set(lines) == {key.name for key in keys(ToyConfig)}
    assert "hunter2" not in str(lines)


def test_an_unset_secret_is_shown_as_unset() -> None:
    assert {key: value for key, value, _ in describe(load_toy())}["token"] == ""


def test_tls_files_belong_together() -> None:
    with pytest.raises(ValueError, match="set together"):
        TlsConfig(certificate=Path("c"))
    with pytest.raises(ValueError, match="needs certificate"):
        TlsConfig(client_ca=Path("c"))
