"""Checkpoints on S3: which settings of Hadoop's S3A reach the bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from headgate.engine import v1 as engine
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError

if TYPE_CHECKING:
    from headgate_engine.spark import SparkHost

_SCHEME = "s3a"
# Names of the same store in other programs, for which Spark has no file system here.
_MISNAMED = ("s3", "s3n")


def is_s3(uri: str) -> bool:
    return urlparse(uri).scheme == _SCHEME


def bucket_settings(uri: str, access: engine.S3Access, known: Callable[[str], str | None]) -> dict[str, str]:
    """Settings of S3A for the bucket of a URI. `known` answers what the engine is configured with: that stays."""
    bucket = urlparse(uri).netloc
    wanted = {"path.style.access": "true"} if access.path_style else {}
    if access.endpoint:
        wanted["endpoint"] = access.endpoint
        wanted["connection.ssl.enabled"] = str(not access.endpoint.startswith("http://")).lower()
    if access.region:
        wanted["endpoint.region"] = access.region
    own = f"fs.s3a.bucket.{bucket}."
    return {
        f"{own}{name}": value
        for name, value in wanted.items()
        if known(f"{own}{name}") is None and known(f"fs.s3a.{name}") is None
    }


def reach(host: SparkHost, uri: str, access: engine.S3Access) -> None:
    """Makes a checkpoint on S3 reachable from Spark; nothing to do for others."""
    scheme = urlparse(uri).scheme
    if scheme in _MISNAMED:
        raise HeadgateError(INVALID_ARGUMENT, f"checkpoint: Spark calls it {_SCHEME}://, not {scheme}://")
    if scheme != _SCHEME:
        return
    host.require_s3()
    hadoop = host.hadoop

    def known(key: str) -> str | None:
        # Hadoop has defaults for some; only what the engine was told counts.
        return host.conf.get(f"spark.hadoop.{key}")

    for key, value in bucket_settings(uri, access, known).items():
        hadoop.set(key, value)
