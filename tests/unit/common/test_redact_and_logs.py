"""What the log shows, and what it must not."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from headgate_common import logs
from headgate_common.redact import REDACTED, is_secret_name, redact_field, redact_text
from headgate_common.tracing import Tracing

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    yield logging.getLogger("headgate.test")
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(False)


@pytest.mark.parametrize(
    "name", ["password", "db_password", "sasl.password", "secret", "client-secret", "token", "api_key", "Authorization"]
)
def test_names_of_secrets_are_known(name: str) -> None:
    assert is_secret_name(name)
    assert redact_field(name, "hunter2") == REDACTED


@pytest.mark.parametrize(
    "name", ["page_token", "key", "monkey", "tokenizer", "secretary", "partition_key", "claim_token"]
)
def test_other_names_are_left_alone(name: str) -> None:
    assert redact_field(name, "value") == "value"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:hunter2@host/db", "postgresql://me:[redacted]@host/db"),
        ("connect to postgresql+psycopg://me:hun-ter2@h:5/db failed", None),
        ("password=hunter2 host=x", "password=[redacted] host=x"),
        ("SET ('sasl.password' = 'hunter2')", None),
        ('{"api_key": "hunter2", "a": 1}', None),
        ("http://host:8080/path", "http://host:8080/path"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_passwords_inside_texts_are_hidden(text: str, shown: str | None) -> None:
    assert "hunter2" not in redact_text(text)
    assert "hun-ter2" not in redact_text(text)
    if shown is not None:
        assert redact_text(text) == shown


def test_nested_fields_are_searched() -> None:
    assert redact_field("options", {"sasl": {"password": "x"}, "urls": ["a://b:c@d"]}) == {
        "sasl": {"password": REDACTED},
        "urls": [f"a://b:{REDACTED}@d"],
    }


def line(log: logging.Logger, log_format: str, text: str, /, **fields: Any) -> str:
    stream = io.StringIO()
    logs.configure(log_format, "debug", stream)
    log.info(text, extra=fields)
    return stream.getvalue()


def test_text_is_time_level_event_and_fields(log: logging.Logger) -> None:
    text = line(
        log, "text", "agent unreachable", agent="edge-1", missed=3, late=0.123456789, why="no answer", gone=None
    )
    assert text.endswith(' INFO agent unreachable agent=edge-1 missed=3 late=0.123457 why="no answer" gone=none\n')
    assert text[:4].isdecimal()
    assert text[23] == "Z"


def test_json_is_one_object_to_a_line(log: logging.Logger) -> None:
    document = json.loads(line(log, "json", "agent unreachable", agent="edge-1", missed=3, labels={"a": [1]}))
    assert document["event"] == "agent unreachable"
    assert document["level"] == "info"
    assert (document["agent"], document["missed"], document["labels"]) == ("edge-1", 3, {"a": [1]})


def test_a_field_cannot_replace_what_every_line_has(log: logging.Logger) -> None:
    document = json.loads(line(log, "json", "x", event="y", level="z", time=0))
    assert (document["event"], document["level"], document["field_event"]) == ("x", "info", "y")


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_value_breaks_the_line_or_forges_another(log: logging.Logger, log_format: str) -> None:
    text = line(log, log_format, "first\nsecond", value="a\nERROR forged\x1b[31m", quote='"q"')
    assert text.count("\n") == 1
    assert "\x1b" not in text


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_secret_reaches_the_log(log: logging.Logger, log_format: str) -> None:
    stream = io.StringIO()
    logs.configure(log_format, "info", stream)
    try:
        raise ValueError("cannot reach postgresql://me:hunter2@host/db")
    except ValueError:
        log.exception("failed for password=hunter2", extra={"password": "hunter2", "url": "a://b:hunter2@c"})
    assert "hunter2" not in stream.getvalue()
    assert "ValueError" in stream.getvalue()


def test_long_values_are_cut(log: logging.Logger) -> None:
    assert len(line(log, "text", "x", value="y" * 100_000)) < 2 * logs.MAX_VALUE


def test_the_trace_stands_on_every_line_of_its_call(log: logging.Logger) -> None:
    with Tracing().serving("/a.B/C", {"traceparent": TRACEPARENT}):
        assert json.loads(line(log, "json", "x"))["trace"] == "0af7651916cd43dd8448eb211c80319c"
        assert "trace=0af7651916cd43dd8448eb211c80319c" in line(log, "text", "x")
    assert "trace" not in json.loads(line(log, "json", "x"))


def test_fields_of_the_process_are_on_every_line(log: logging.Logger) -> None:
    stream = io.StringIO()
    logs.configure("json", "info", stream, service="toy")
    log.info("x")
    log.debug("not shown")
    (document,) = [json.loads(one) for one in stream.getvalue().splitlines()]
    assert document["service"] == "toy"
