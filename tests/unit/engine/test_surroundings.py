"""Java, jars, the archive for executors, and the settings of Kafka clients."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headgate_common.errors import HeadgateError
from headgate_engine.fragments.kafka import client_options, connector_options
from headgate_engine.jars import jar_paths, kafka_jars
from headgate_engine.spark import executor_archive, java_problem


def test_a_missing_jdk_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = java_problem({})
    assert problem is not None
    assert "install a JDK" in problem
    assert str(tmp_path) in (java_problem({"JAVA_HOME": str(tmp_path)}) or "")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    assert java_problem({"JAVA_HOME": str(tmp_path)}) is None


def test_an_engine_without_a_jdk_ends_at_once_with_one_line(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headgate_engine.server", "--listen=127.0.0.1:0", "--http-listen=127.0.0.1:0"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("headgate-engine: SPARK_UNAVAILABLE: ")
    assert "Traceback" not in done.stderr


def test_the_jars_are_all_there_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADGATE_SPARK_JARS", str(tmp_path))
    paths = jar_paths()
    assert len(paths) == 4
    for path in paths[:3]:
        path.touch()
    assert kafka_jars() == []
    paths[3].touch()
    assert kafka_jars() == paths


def test_the_archive_works_where_nothing_of_ours_is_installed(tmp_path: Path) -> None:
    archive = executor_archive(tmp_path)
    names = zipfile.ZipFile(archive).namelist()
    assert all(name.startswith("headgate_engine/") for name in names)
    # Isolated, so that no path of ours is there; the packages that executors have are added back.
    packages = [path for path in sys.path if path.endswith("site-packages")]
    program = (
        f"import sys; sys.path[:0] = {[str(archive), *packages]!r}\n"
        "import headgate_engine.executor.reading, headgate_engine.executor.writing, headgate_engine.executor.decoding\n"
        "assert '.zip' in headgate_engine.executor.reading.__file__\n"
        "assert not [name for name in sys.modules if name.startswith(('google.protobuf', 'headgate_common'))]\n"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_kafka_clients_get_what_the_source_says(tmp_path: Path) -> None:
    assert client_options({"bootstrap_servers": "a:1"}, "native:2") == {"bootstrap.servers": "a:1"}
    assert client_options({}, "native:2") == {"bootstrap.servers": "native:2"}
    with pytest.raises(HeadgateError, match="kafka_bootstrap"):
        client_options({}, "")
    for name in ("certificate", "key"):
        (tmp_path / name).write_text(name)
    options = {
        "bootstrap_servers": "a:1",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "me",
        "sasl_password": 'sec"ret\\',
        "ssl_ca_location": "/ca.pem",
        "ssl_certificate_location": str(tmp_path / "certificate"),
        "ssl_key_location": str(tmp_path / "key"),
    }
    found = connector_options(options, "")
    assert found["kafka.security.protocol"] == "SASL_SSL"
    assert found["kafka.sasl.jaas.config"].endswith('ScramLoginModule required username="me" password="sec\\"ret\\\\";')
    assert (found["kafka.ssl.truststore.type"], found["kafka.ssl.truststore.location"]) == ("PEM", "/ca.pem")
    assert (found["kafka.ssl.keystore.certificate.chain"], found["kafka.ssl.keystore.key"]) == ("certificate", "key")
    options["ssl_key_location"] = str(tmp_path / "none")
    with pytest.raises(HeadgateError, match="PLAN_UNSUPPORTED"):
        client_options(options, "")
