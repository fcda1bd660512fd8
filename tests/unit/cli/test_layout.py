"""Which processes `headgate dev` starts, what each is told, and what it refuses before it starts one."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from headgate_cli.failures import ExitCode, Failure
from headgate_cli.layout import Member, Shape, check_java, check_ports, java_problem, layout


def setting(member: Member, flag: str) -> list[str]:
    """The values that a process is given with a flag."""
    pairs = zip(member.arguments, member.arguments[1:], strict=False)
    return [value for name, value in pairs if name == flag]


def java(folder: Path, answer: str, code: int = 0) -> Path:
    """A JDK that says of itself what it is told to."""
    binary = folder / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text(f"#!/bin/sh\necho '{answer}' >&2\nexit {code}\n")
    binary.chmod(0o755)
    return folder


def test_no_two_processes_of_a_cluster_share_a_port(tmp_path: Path) -> None:
    members = layout(Shape(tmp_path, agents=50, engines=4, spark_ui=True, port_base=20_000, kafka_port=30_000))
    ports = [port for member in members for port, _ in member.ports]
    assert len(ports) == len(set(ports)) == 2 + 50 * 3 + 4 * 3
    assert len({member.name for member in members}) == len({member.log for member in members}) == 55


def test_agents_share_the_engines_and_one_object_store_and_nothing_else(tmp_path: Path) -> None:
    members = layout(Shape(tmp_path, agents=2, engines=2, port_base=20_000))
    agents = [member for member in members if member.script == "headgate-agent"]
    assert [setting(agent, "--engine") for agent in agents] == [["127.0.0.1:20002,127.0.0.1:20004"]] * 2
    assert [setting(agent, "--object-store") for agent in agents] == [[str(tmp_path / "objects")]] * 2
    assert setting(agents[0], "--data") != setting(agents[1], "--data")
    assert "fragments.tcp_targets=127.0.0.1:*,localhost:*" in setting(agents[0], "--set")


def test_files_may_be_in_the_folders_that_were_named_and_in_the_data_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    agent = layout(Shape(tmp_path, agents=1, files=(tmp_path / "in",)))[1]
    assert f"fragments.file_roots={tmp_path / 'in'},{tmp_path}" in setting(agent, "--set")
    here = layout(Shape(tmp_path, agents=1))[1]
    assert f"fragments.file_roots={Path.cwd()},{tmp_path}" in setting(here, "--set")


@pytest.mark.parametrize("name", ["a,b", "missing"])
def test_a_folder_that_agents_cannot_be_told_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a,b").mkdir()
    with pytest.raises(Failure, match=name) as caught:
        layout(Shape(tmp_path, agents=1, files=(tmp_path / name,)))
    assert caught.value.code is ExitCode.USAGE


def test_without_an_engine_runs_are_simulated(tmp_path: Path) -> None:
    members = layout(Shape(tmp_path, agents=1, engines=0))
    assert [member.script for member in members] == ["headgate-coordinator", "headgate-agent"]
    assert setting(members[1], "--engine") == ["simulated"]


def test_the_url_of_the_catalog_is_not_on_a_command_line(tmp_path: Path) -> None:
    members = layout(Shape(tmp_path, agents=1, catalog="postgresql://me:secret@host/db"))
    assert all("secret" not in word for member in members for word in member.arguments)
    assert "postgresql://me:secret@host/db" in members[0].environment.values()


def test_processes_end_in_an_order_in_which_each_can_say_goodbye(tmp_path: Path) -> None:
    stages = {member.script: member.stage for member in layout(Shape(tmp_path))}
    assert stages["headgate-agent"] > stages["headgate-engine"] > stages["headgate-coordinator"]


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Failure, match=f"port {port}, which coordinator would use, is taken") as caught:
            check_ports(layout(Shape(tmp_path, agents=0, engines=0, port_base=port)))
        with pytest.raises(Failure, match=f"port {port}, which agent a would use for Kafka, is taken") as kafka:
            check_ports(layout(Shape(tmp_path, agents=1, engines=0, port_base=20_000, kafka_port=port))[1:])
    assert "\n" not in caught.value.message
    assert caught.value.code is ExitCode.USAGE
    assert "--kafka-port" in kafka.value.advice


def test_ports_beyond_the_last_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="choose a lower --port-base"):
        check_ports(layout(Shape(tmp_path, agents=1, port_base=65_530)))


@pytest.mark.parametrize("version", ['openjdk version "17.0.2" 2022-01-18', 'java version "21" 2023-09-19 LTS'])
def test_a_jdk_that_spark_runs_on_is_fine(tmp_path: Path, version: str) -> None:
    assert java_problem({"JAVA_HOME": str(java(tmp_path, version))}) is None
    assert java_problem({"PATH": str(tmp_path / "bin")}) is None


@pytest.mark.parametrize(
    ("answer", "code", "problem"),
    [
        ('java version "1.8.0_392"', 0, "is of version 8"),
        ('openjdk version "11.0.2" 2019-01-15', 0, "is of version 11"),
        ("no runtime present", 1, "answers no runtime present"),
    ],
)
def test_a_jdk_that_spark_does_not_run_on_is_one_clear_line(
    tmp_path: Path, answer: str, code: int, problem: str
) -> None:
    with pytest.raises(Failure, match=problem) as caught:
        check_java({"JAVA_HOME": str(java(tmp_path, answer, code))})
    assert caught.value.code is ExitCode.USAGE
    assert "\n" not in caught.value.message


def test_a_missing_jdk_is_one_clear_line(tmp_path: Path) -> None:
    assert java_problem({"PATH": str(tmp_path)}) == "there is no java on PATH, and JAVA_HOME is not set"
    assert java_problem({"JAVA_HOME": str(tmp_path)}) == f"JAVA_HOME is {tmp_path}, which has no bin/java"
