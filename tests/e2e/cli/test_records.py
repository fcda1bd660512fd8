"""`headgate topics produce` and `consume` against a real cluster, in processes of their own: they use raw streams."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.e2e.cli.command import HEADGATE, Headgate

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(headgate: Headgate, request: pytest.FixtureRequest) -> str:
    name = request.node.name
    headgate.ok("topics", "create", name, "--partitions", "3", "--set", "durability=WAL")
    request.addfinalizer(lambda: headgate("topics", "delete", name))
    return str(name)


def run(headgate: Headgate, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    command = [HEADGATE, "topics", *arguments]
    done = subprocess.run(
        command, env=headgate.environment(), input=stdin, capture_output=True, timeout=90, check=False
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def consumed(headgate: Headgate, *arguments: str) -> list[str]:
    done = run(headgate, "consume", *arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().splitlines()


def records(headgate: Headgate, topic: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in consumed(headgate, topic, "-o", "jsonl")]


def test_a_description_says_where_records_end_also_before_they_are_in_segments(headgate: Headgate, topic: str) -> None:
    assert run(headgate, "produce", topic, "one", "two", "three", "--partition", "0").returncode == 0
    (first, *_) = headgate.json("topics", "describe", topic)["partitions"]
    assert first["highWatermark"] == "3"
    assert "HIGH WATERMARK" in headgate.ok("topics", "describe", topic)


def test_what_is_produced_is_consumed(headgate: Headgate, topic: str) -> None:
    assert run(headgate, "produce", topic, "one", "two", "--key", "k").returncode == 0
    assert consumed(headgate, topic) == ["one", "two"]
    assert consumed(headgate, topic, "-n", "1", "--keys") == ["k\tone"]
    found = records(headgate, topic)
    assert [(record["key"], record["value"]) for record in found] == [("k", "one"), ("k", "two")]
    assert [record["offset"] for record in found] == [0, 1]
    assert consumed(headgate, topic, "-p", str(found[0]["partition"]), "--offset", "1") == ["two"]


def test_lines_of_standard_input_are_records_with_keys_before_a_separator(headgate: Headgate, topic: str) -> None:
    lines = "".join(f"key{number}:value {number}\n" for number in range(2_500))
    done = run(headgate, "produce", topic, "--separator=:", stdin=lines.encode())
    assert (done.returncode, b"2500 records stored" in done.stderr) == (0, True), done.stderr.decode()
    assert sorted(consumed(headgate, topic, "--keys")) == sorted(
        f"key{number}\tvalue {number}" for number in range(2_500)
    )


def test_bytes_that_are_no_text_are_marked(headgate: Headgate, topic: str) -> None:
    run(headgate, "produce", topic, stdin=b"\xff\xfe\n")
    (record,) = records(headgate, topic)
    assert record["value_base64"] == "//4="


def test_a_missing_topic_is_refused_by_name(headgate: Headgate) -> None:
    for command in (("produce", "nothere", "x"), ("consume", "nothere")):
        done = run(headgate, *command)
        assert done.returncode == 1
        assert b"nothere" in done.stderr
