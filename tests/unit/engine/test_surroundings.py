"""Java, jars, the archive for executors, and the settings of Kafka clients."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from headgate.engine import v1 as engine
from headgate_common.config import describe, load
from headgate_common.errors import HeadgateError
from headgate_engine import command, jars
from headgate_engine.class_archive import archive, options
from headgate_engine.config import EngineConfig, SparkConfig
from headgate_engine.fragments.kafka import client_options, connector_options
from headgate_engine.jars import jar_paths, kafka_jars, s3_jars, s3_paths
from headgate_engine.s3 import bucket_settings
from headgate_engine.spark import SparkHost, executor_archive, java_problem


def test_a_missing_jdk_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = java_problem({})
    assert problem is not None
    assert "install a JDK" in problem
    assert str(tmp_path) in (java_problem({"JAVA_HOME": str(tmp_path)}) or "")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").touch()
    assert java_problem({"JAVA_HOME": str(tmp_path)}) is None


@pytest.mark.slow
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


def test_the_command_says_whether_the_jars_are_there_without_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_SPARK_JARS", str(tmp_path))
    for arguments, code in (([], 1), (["kafka"], 1), (["s3"], 1), (["beans"], 2)):
        monkeypatch.setattr(sys, "argv", ["headgate-engine", "--fetch-jars", "--check", *arguments])
        assert command.main() == code
    for path in jar_paths():
        path.touch()
    for arguments, code in ((["--check", "kafka"], 0), (["kafka"], 0), (["--check"], 1)):
        monkeypatch.setattr(sys, "argv", ["headgate-engine", "--fetch-jars", *arguments])
        assert command.main() == code


def test_jars_that_cannot_be_had_are_told_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADGATE_SPARK_JARS", str(tmp_path / "jars"))
    maven = tmp_path / "bin" / "mvn"
    maven.parent.mkdir()
    maven.write_text("#!/bin/sh\necho no such repository; exit 1\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{maven.parent}:/usr/bin:/bin")
    monkeypatch.setattr(sys, "argv", ["headgate-engine", "--fetch-jars", "kafka"])
    assert command.main() == 1
    told = capsys.readouterr().err
    assert "Maven could not fetch the jars" in told and "no such repository" in told
    assert "everything else will" in told
    assert list((tmp_path / "jars").iterdir()) == []


def test_the_jars_for_s3_are_those_and_our_own_class_compiled_from_its_present_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_SPARK_JARS", str(tmp_path))
    *fetched, compiled = s3_paths()
    for path in fetched:
        path.touch()
    assert s3_jars() == []
    compiled.touch()
    assert s3_jars() == [*fetched, compiled]
    monkeypatch.setattr(jars, "checkpoint_source", lambda: "another")
    assert s3_jars() == [], "a jar of another source was taken"


def test_the_engine_reaches_a_bucket_as_it_is_told_unless_it_is_configured_otherwise() -> None:
    access = engine.S3Access(endpoint="http://store:9000", region="eu-1", path_style=True)
    own = "fs.s3a.bucket.b."
    assert bucket_settings("s3a://b/checkpoints", access, {}.get) == {
        f"{own}endpoint": "http://store:9000",
        f"{own}connection.ssl.enabled": "false",
        f"{own}endpoint.region": "eu-1",
        f"{own}path.style.access": "true",
    }
    known = {"fs.s3a.endpoint": "http://other", f"{own}endpoint.region": "us-1", "fs.s3a.path.style.access": "false"}
    assert bucket_settings("s3a://b/checkpoints", access, known.get) == {f"{own}connection.ssl.enabled": "false"}
    assert bucket_settings("s3a://b/checkpoints", engine.S3Access(), {}.get) == {}


def test_keys_of_a_store_are_no_arguments_of_the_jvm_and_not_shown() -> None:
    conf = {"spark.hadoop.fs.s3a.secret.key": "hush", "spark.hadoop.fs.s3a.access.key": "me", "spark.cores.max": "2"}
    host = SparkHost(SparkConfig(conf=conf))
    try:
        settings = host._settings("")
    finally:
        host.stop()
    assert "hush" not in str(settings)
    assert settings["spark.cores.max"] == "2"
    loaded = load(EngineConfig, service="engine", flags=[f"spark.conf.{key}={value}" for key, value in conf.items()])
    shown = str(describe(loaded))
    assert "hush" not in shown
    assert "spark.cores.max=2" in shown


def test_an_archive_of_classes_is_used_where_one_was_made_for_just_these_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADGATE_SPARK_JARS", str(tmp_path / "jars"))
    first = tmp_path / "first.jar"
    first.write_text("one")
    assert archive([]) != archive([str(first)])
    assert options([str(first)]) == ""
    made = archive([str(first)])
    made.parent.mkdir()
    made.touch()
    assert f"-XX:SharedArchiveFile={made}" in options([str(first)])
    first.write_text("another")
    assert options([str(first)]) == ""


@pytest.mark.slow
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
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, problem in (("none", "cannot be read by the engine"), ("binary", "is not a PEM file")):
        options["ssl_key_location"] = str(tmp_path / name)
        with pytest.raises(HeadgateError, match=f"KAFKA_REFUSED.*{problem}"):
            client_options(options, "")
