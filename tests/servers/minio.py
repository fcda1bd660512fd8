"""A MinIO server: the S3 protocol, with a fresh bucket for each test."""

from __future__ import annotations

import http.client
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import obstore
from obstore.store import S3Store

from tests.servers.cache import find_or_build_command
from tests.servers.golang import build_go_command
from tests.servers.ports import free_port
from tests.servers.process import Command, ServerProcess, start_with_retry

MODULE = "github.com/minio/minio"
REGION = "us-east-1"
CREDENTIALS = "minioadmin"


@dataclass(frozen=True, slots=True)
class Bucket:
    """All that an S3 client needs to use a bucket of the test server."""

    endpoint: str
    name: str
    region: str = REGION
    access_key: str = CREDENTIALS
    secret_key: str = CREDENTIALS

    def store(self) -> S3Store:
        return S3Store(
            self.name,
            endpoint=self.endpoint,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            region=self.region,
            client_options={"allow_http": True},
            virtual_hosted_style_request=False,
        )

    def object_keys(self) -> list[str]:
        return [one["path"] for page in obstore.list(self.store()) for one in page]


def find_minio() -> Path:
    return find_or_build_command(
        "minio", "HEADGATE_MINIO", lambda path: build_go_command(MODULE, "latest", MODULE, path)
    )


class Minio:
    """One server."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._command = find_minio()
        self._folder = folder
        self._log = log
        self._numbers = count(1)
        self.port = 0
        self.process = start_with_retry(self._start)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _start(self) -> ServerProcess:
        self.port = free_port()
        data = self._folder / "data"
        data.mkdir(exist_ok=True)
        settings = {"MINIO_ROOT_USER": CREDENTIALS, "MINIO_ROOT_PASSWORD": CREDENTIALS, "MINIO_BROWSER": "off"}
        addresses = ["--address", f"127.0.0.1:{self.port}", "--console-address", f"127.0.0.1:{free_port()}"]
        config = ["--config-dir", str(self._folder / "config")]
        environment = [f"{name}={value}" for name, value in settings.items()]
        arguments: list[str | Path] = [
            "env",
            *environment,
            self._command,
            *config,
            "server",
            "--quiet",
            *addresses,
            data,
        ]
        process = ServerProcess(Command("MinIO", arguments, self._log, grace_seconds=5.0, folder=self._folder))
        process.wait_until_ready(self._answers, 60)
        return process

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=2)
        try:
            connection.request("GET", "/minio/health/ready")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def fresh_bucket(self) -> Bucket:
        """A bucket that nobody else uses: a folder of the data folder is one."""
        name = f"test-{os.getpid()}-{next(self._numbers)}"
        (self._folder / "data" / name).mkdir()
        return Bucket(self.endpoint, name)


@contextmanager
def running_minio(log: Path) -> Iterator[Minio]:
    with tempfile.TemporaryDirectory(prefix="headgate-minio-", ignore_cleanup_errors=True) as folder:
        server = Minio(Path(folder), log)
        try:
            yield server
        finally:
            server.process.stop()
