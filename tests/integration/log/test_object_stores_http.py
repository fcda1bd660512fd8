"""What an object store over HTTP may answer, through the real client: a server on loopback that speaks enough of S3,
and what little of Google's and Azure's dialect a conditional put needs. And which stores a configuration can name.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote

import pytest
from prometheus_client import CollectorRegistry

from headgate_agent.log.assembly import guarded_store, object_store
from headgate_agent.log.config import LogConfig
from headgate_agent.log.guarded_objects import GuardedObjects
from headgate_agent.log.metrics import LogMetrics
from headgate_agent.log.objects import ObjectExists, ObjectMissing, ObjectStoreFailed
from headgate_agent.log.remote_objects import RemoteObjects
from headgate_common.config import ConfigError

TIMEOUT = 2.0
ERROR = '<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{code}</Message></Error>'

_ABOUT = {"ETag": '"1"', "Last-Modified": "Tue, 06 May 2031 07:08:09 GMT"}

# What becomes of one request: an HTTP status with S3's code for it; "hang" (no answer for as long as the server lives);
# or "lost" (it is done, and the connection is closed without an answer). None: it is served.
Mishap = tuple[int, str] | str | None


@dataclass(slots=True)
class Bucket:
    """What the server holds, what it was asked, and what goes wrong next with requests of a method."""

    objects: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    mishaps: dict[str, list[Mishap]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    closing: threading.Event = field(default_factory=threading.Event)
    port: int = 0

    def fail(self, method: str, *mishaps: Mishap) -> None:
        self.mishaps[method] = list(mishaps)

    def next_mishap(self, method: str) -> Mishap:
        with self.lock:
            self.asked.append(method)
            left = self.mishaps.get(method)
            return left.pop(0) if left else None

    def count(self) -> Counter[str]:
        with self.lock:
            return Counter(self.asked)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bucket: ClassVar[Bucket]

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        mishap = self.bucket.next_mishap("PUT")
        if mishap is None or mishap == "lost":
            with self.bucket.lock:
                # Google's way of saying it is the second.
                only_new = (
                    self.headers.get("If-None-Match") == "*" or self.headers.get("x-goog-if-generation-match") == "0"
                )
                taken = only_new and self.path in self.bucket.objects
                if not taken:
                    self.bucket.objects[self.path] = body
            if taken:
                mishap = (412, "PreconditionFailed")
        self._answer(mishap, b"", _ABOUT, status=201)

    def do_GET(self) -> None:
        mishap = self.bucket.next_mishap("GET")
        found = self.bucket.objects.get(self.path)
        if mishap is not None or found is None:
            self._answer(mishap or (404, "NoSuchKey"), b"", {})
            return
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())  # type: ignore[union-attr]
        part = found[first : last + 1]
        self._answer(None, part, {**_ABOUT, "Content-Range": f"bytes {first}-{last}/{len(found)}"}, status=206)

    def do_HEAD(self) -> None:
        mishap = self.bucket.next_mishap("HEAD")
        found = self.bucket.objects.get(self.path)
        if mishap is not None or found is None:
            self._answer(mishap or (404, "NoSuchKey"), b"", {})
            return
        self._answer(None, found, _ABOUT)

    def _answer(self, mishap: Mishap, body: bytes, headers: dict[str, str], status: int = 200) -> None:
        if isinstance(mishap, str):
            if mishap == "hang":
                self.bucket.closing.wait()
            self.close_connection = True
            return
        if mishap is not None:
            status, body = mishap[0], ERROR.format(code=mishap[1]).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@contextmanager
def serving(bucket: Bucket) -> Iterator[Bucket]:
    handler = type("HandlerOfOneBucket", (Handler,), {"bucket": bucket})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        bucket.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield bucket
        finally:
            bucket.closing.set()
            server.shutdown()
            thread.join(10)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with serving(Bucket()) as made:
        yield made


def configured(bucket: Bucket, timeout: float = TIMEOUT) -> LogConfig:
    options = {
        "endpoint": f"http://127.0.0.1:{bucket.port}",
        "region": "here",
        "access_key_id": "key",
        "secret_access_key": "secret",
        "allow_http": "true",
    }
    return LogConfig(object_store="s3://bucket/log", object_options=options, object_timeout=timeout)


def store(bucket: Bucket, timeout: float = TIMEOUT) -> GuardedObjects:
    """As an agent makes it from its configuration."""
    metrics = LogMetrics(CollectorRegistry())
    return guarded_store(configured(bucket, timeout), Path("unused"), metrics, random.Random(1))


SLOW_DOWN = (503, "SlowDown")


async def test_an_object_is_there_after_the_store_said_twice_to_slow_down(bucket: Bucket) -> None:
    bucket.fail("PUT", SLOW_DOWN, SLOW_DOWN)
    await store(bucket).create("t/0/a", [b"01", b"23"])
    assert bucket.objects == {"/bucket/log/t/0/a": b"0123"}
    assert bucket.count() == {"PUT": 3}


@pytest.mark.parametrize("answer", [SLOW_DOWN, (500, "InternalError"), (502, "BadGateway")])
async def test_bytes_are_read_after_the_store_has_failed_twice(bucket: Bucket, answer: tuple[int, str]) -> None:
    bucket.objects["/bucket/log/t/0/a"] = b"0123456789"
    bucket.fail("GET", answer, answer)
    assert await store(bucket).read("t/0/a", 2, 5) == b"23456"
    assert bucket.count() == {"GET": 3}


async def test_a_store_that_goes_on_saying_slow_down_is_given_up_in_time(bucket: Bucket) -> None:
    bucket.fail("PUT", *[SLOW_DOWN] * 100)
    with pytest.raises(ObjectStoreFailed):
        await asyncio.wait_for(store(bucket).create("t/0/a", [b"x"]), 30)
    assert bucket.objects == {}
    assert 1 < bucket.count()["PUT"] < 100, "tried again, and not for ever"


async def test_a_conflict_while_the_key_is_free_is_a_failure_and_the_next_try_succeeds(bucket: Bucket) -> None:
    """S3 answers 409 where another request for the key is under way, which may yet fail."""
    bucket.fail("PUT", *[(409, "ConditionalRequestConflict")] * 4)
    with pytest.raises(ObjectStoreFailed, match="conflict"):
        await store(bucket).create("t/0/a", [b"x"])
    assert bucket.count()["HEAD"] == 1, "it looked whether the object is there"
    bucket.fail("PUT")
    await store(bucket).create("t/0/a", [b"x"])
    assert bucket.objects == {"/bucket/log/t/0/a": b"x"}


@pytest.mark.parametrize("answer", [(409, "ConditionalRequestConflict"), (412, "PreconditionFailed")])
async def test_a_conflict_about_an_object_that_is_there_says_that_the_key_is_taken(
    bucket: Bucket, answer: tuple[int, str]
) -> None:
    bucket.objects["/bucket/log/t/0/a"] = b"first"
    bucket.fail("PUT", *[answer] * 4)
    with pytest.raises(ObjectExists):
        await store(bucket).create("t/0/a", [b"second"])
    assert bucket.objects == {"/bucket/log/t/0/a": b"first"}


async def test_a_put_that_happened_and_was_not_answered_is_found_and_not_done_twice(bucket: Bucket) -> None:
    bucket.fail("PUT", "lost")
    # The client's own second try is told that the key is taken, or this one is.
    with pytest.raises((ObjectExists, ObjectStoreFailed)) as first:
        await store(bucket).create("t/0/a", [b"x"])
    if first.type is ObjectStoreFailed:
        with pytest.raises(ObjectExists):
            await store(bucket).create("t/0/a", [b"x"])
    assert bucket.objects == {"/bucket/log/t/0/a": b"x"}


async def test_a_request_that_hangs_is_given_up_in_time_and_the_next_one_is_answered(bucket: Bucket) -> None:
    bucket.fail("PUT", "hang")
    ours = store(bucket, 0.5)
    with pytest.raises(ObjectStoreFailed):
        await asyncio.wait_for(ours.create("t/0/a", [b"x"]), 30)
    await ours.create("t/0/b", [b"y"])
    bucket.fail("GET", "hang")
    assert await asyncio.wait_for(ours.read("t/0/b", 0, 1), 30) == b"y", "a read is tried again"
    assert bucket.objects == {"/bucket/log/t/0/b": b"y"}


async def test_an_object_that_is_not_there_is_missing_and_no_failure(bucket: Bucket) -> None:
    with pytest.raises(ObjectMissing):
        await store(bucket).read("t/0/nothing", 0, 1)
    assert bucket.count() == {"GET": 1}, "nothing is tried again"


KEY = base64.b64encode(b"a key of Azure's").decode()
# For a server that asks for no token.
GOOGLE_KEY = {"private_key": "k", "private_key_id": "i", "client_email": "a@b.c", "disable_oauth": True}


def google(**more: str) -> dict[str, str]:
    return {"service_account_key": json.dumps({**GOOGLE_KEY, **more})}


@pytest.mark.parametrize("cloud", ["gs", "az"])
async def test_stores_of_google_and_azure_create_an_object_only_where_there_is_none(bucket: Bucket, cloud: str) -> None:
    address = f"http://127.0.0.1:{bucket.port}"
    options = {
        "gs": google(gcs_base_url=address),
        "az": {"account_name": "account", "account_key": KEY, "endpoint": address},
    }[cloud]
    config = LogConfig(
        object_store=f"{cloud}://bucket/log", object_options={**options, "allow_http": "true"}, object_timeout=TIMEOUT
    )
    ours = object_store(config, Path("unused"))
    bucket.fail("PUT", SLOW_DOWN)
    await ours.create("t/0/a", [b"first"])
    with pytest.raises(ObjectExists):
        await ours.create("t/0/a", [b"second"])
    assert await ours.read("t/0/a", 1, 3) == b"irs"
    ((path, stored),) = bucket.objects.items()
    assert unquote(path).endswith("bucket/log/t/0/a") and stored == b"first"


@pytest.mark.parametrize(
    ("url", "options", "kind", "known"),
    [
        ("gs://bucket/some/where", google(), "GCSStore", {"bucket": "bucket"}),
        ("gs://bucket/some/where", {"skip_signature": "true"}, "GCSStore", {"skip_signature": "true"}),
        (
            "az://container/some/where",
            {"account_name": "account", "account_key": KEY},
            "AzureStore",
            {"container_name": "container", "account_name": "account", "account_key": KEY},
        ),
        (
            "az://container/some/where",
            {"account_name": "account", "sas_key": "sv=1&sig=2"},
            "AzureStore",
            {"sas_key": "sv=1&sig=2"},
        ),
        ("s3://bucket/some/where", {"region": "there"}, "S3Store", {"bucket": "bucket", "region": "there"}),
    ],
)
def test_a_store_of_each_cloud_is_made_of_its_configuration(
    url: str, options: dict[str, str], kind: str, known: dict[str, str]
) -> None:
    made = object_store(LogConfig(object_store=url, object_options=options, object_timeout=7.0), Path("unused"))
    assert isinstance(made, RemoteObjects)
    client = made._store
    assert type(client).__name__ == kind
    assert client.prefix == "some/where"
    assert {**options, **known}.items() <= client.config.items()
    assert client.client_options["timeout"] == "7s"
    assert client.retry_config["retry_timeout"].total_seconds() == 7


@pytest.mark.parametrize("url", ["s3://bucket", "gs://bucket", "az://container"])
def test_an_option_that_a_cloud_does_not_know_is_refused_by_name(url: str) -> None:
    with pytest.raises(ConfigError, match="no_such_option"):
        object_store(LogConfig(object_store=url, object_options={"no_such_option": "x"}), Path("unused"))


def test_an_option_of_another_cloud_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="access_key_id"):
        object_store(LogConfig(object_store="gs://bucket", object_options={"access_key_id": "x"}), Path("unused"))
    with pytest.raises(ConfigError, match="Account"):
        object_store(LogConfig(object_store="az://container"), Path("unused"))
