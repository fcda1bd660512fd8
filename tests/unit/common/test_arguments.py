"""The command line of every server."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate_common.arguments import Arguments, Flag, parse
from headgate_common.config import ConfigError
from headgate_common.configdoc import markdown_table, refresh
from headgate_common.settings import ServerConfig
from tests.unit.common.test_config import PROFILES, ToyConfig

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def parse_toy(*argv: str, environment: dict[str, str] | None = None) -> Arguments:
    return parse(
        ToyConfig,
        service="toy",
        version="1.2.3",
        summary="A toy.",
        argv=argv,
        environment=environment or {},
        flags=[Flag("--catalog", "catalog", "URL", "where the catalog is")],
        profiles=PROFILES,
    )


def test_flags_are_settings_by_another_name() -> None:
    config = parse_toy(
        *("--listen", "127.0.0.1:1", "--http-listen", "127.0.0.1:2", "--advertise", "a:3", "--insecure"),
        *("--log-format", "json", "--log-level", "debug", "--catalog", "sqlite://", "--profile", "patient"),
        *("--tls-certificate", "c.pem", "--tls-key", "k.pem", "--tls-client-ca", "a.pem", "--tls-ca", "b.pem"),
    ).loaded.config
    server = config.server
    assert (server.listen, server.http_listen, server.advertise) == ("127.0.0.1:1", "127.0.0.1:2", "a:3")
    assert (server.insecure, server.log_format, server.log_level) == (True, "json", "debug")
    assert (config.catalog, config.timings.session_ttl) == ("sqlite://", 30.0)
    assert [str(path) for path in (server.tls.certificate, server.tls.key, server.tls.client_ca, server.tls.ca)] == [
        "c.pem",
        "k.pem",
        "a.pem",
        "b.pem",
    ]


def test_flags_win_over_environment_and_file(tmp_path: Path) -> None:
    file = tmp_path / "toy.toml"
    file.write_text('catalog = "file"\n[server]\nlisten = "127.0.0.1:1"\nlog_level = "debug"\n')
    environment = {"HEADGATE_TOY_SERVER__LISTEN": "127.0.0.1:2", "HEADGATE_TOY_CATALOG": "environment"}
    config = parse_toy("--config", str(file), "--listen", "127.0.0.1:3", environment=environment).loaded.config
    assert (config.server.listen, config.catalog, config.server.log_level) == ("127.0.0.1:3", "environment", "debug")


def test_an_absent_switch_does_not_undo_the_file(tmp_path: Path) -> None:
    file = tmp_path / "toy.toml"
    file.write_text("[server]\ninsecure = true\n")
    assert parse_toy("--config", str(file)).loaded.config.server.insecure is True


def test_set_takes_any_key_and_values_with_equals_signs() -> None:
    assert parse_toy("--set", "catalog=a=b", "--set", "timings.poll=2s").loaded.config.catalog == "a=b"
    with pytest.raises(ConfigError, match=r"did you mean timings\.poll"):
        parse_toy("--set", "timings.polll=2s")


def test_help_teaches_every_setting_and_the_three_ways_to_write_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_toy("--help")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for expected in ("HEADGATE_TOY_SERVER__LISTEN", "--set server.listen=", "timings.session_ttl", "A toy.", "patient"):
        assert expected in text


def test_version_names_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_toy("--version")
    assert capsys.readouterr().out == "headgate-toy 1.2.3\n"


def test_an_unknown_flag_is_refused_and_so_is_an_abbreviation(capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--nonsense", "--list"):
        with pytest.raises(SystemExit) as ended:
            parse_toy(flag, "127.0.0.1:1")
        assert ended.value.code == 2
    assert "--nonsense" in capsys.readouterr().err


def test_the_documented_table_is_made_from_the_code() -> None:
    page = PAGE.read_text()
    assert markdown_table(ServerConfig, "server.") in page
    assert refresh(page) == page, "run python -m headgate_common.configdoc docs/configuration.md"


def test_a_stale_table_is_made_anew() -> None:
    page = "a\n<!-- settings: headgate_common.settings:TracingConfig x. -->\nold\n<!-- end -->\nb\n"
    fresh = refresh(page)
    assert "old" not in fresh
    assert "`x.endpoint`" in fresh
    assert fresh.startswith("a\n") and fresh.endswith("<!-- end -->\nb\n")
