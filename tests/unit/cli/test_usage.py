"""Wrong usage is told before anything is sent."""

from __future__ import annotations

import io
import sys

import pytest

from headgate_cli.main import main


@pytest.mark.parametrize(
    "arguments",
    [
        ["fly"],
        ["get", "workers"],
        ["get", "query/a", "b"],
        ["get", "queries", "-l", "colour=red"],
        ["describe", "query"],
        ["wait", "query/x"],
        ["wait", "query/x", "--for", "WALKING"],
        ["wait", "query/x", "--for", "RUNNING", "--timeout", "soon"],
        ["stop", "sink/x"],
        ["stop", "x", "--soft", "--hard"],
        ["drop", "sink/x", "--soft"],
        ["drop", "fragment/x"],
        ["apply", "no-such-file.sql"],
        ["sql", "-c", "SHOW QUERIES", "-f", "x.sql"],
        ["explain"],
        ["export", "--format", "yaml"],
        ["dev", "--log-level", "loud"],
        ["dev", "--ephemeral", "--data", "x"],
        ["dev", "--port-base", "99999"],
        ["dev", "--engines", "0"],
        ["dev", "--postgres", "mysql://x"],
        ["dev", "--s3", "/folder"],
        ["dev", "--s3", "s3://"],
        ["dev", "--spark", "mesos://host"],
        ["topics", "create", "x", "--partitions", "99999999999999999999"],
        ["topics", "consume", "x", "--offset", "99999999999999999999"],
        ["watch", "queries", "--from-revision", "99999999999999999999"],
        ["dev", "--kafka", "somewhere"],
        ["dev", "--no-engine", "--data", "/dev/null/x"],
        ["top", "--interval", "soon"],
        ["logs", "--data", "no-such-folder"],
        ["errors"],
        ["get", "query/\udcff"],
        ["--tls-certificate", "x.pem", "status"],
        ["-o", "yaml", "status"],
        ["status", "--coordinator", "zzz"],
        ["--coordinator", "127.0.0.1:0", "get", "queries"],
        ["--coordinator", ":7400", "get", "queries"],
        ["--rpc-timeout", "0s", "status"],
    ],
    ids=" ".join,
)
@pytest.mark.slow
def test_wrong_usage_is_exit_code_2_and_nothing_on_standard_output(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["headgate", *arguments])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    with pytest.raises(SystemExit) as caught:
        main()
    shown = capsys.readouterr()
    assert caught.value.code == 2
    assert shown.out == ""
    assert shown.err
