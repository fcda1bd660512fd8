"""Files of a checkpoint on a real S3 store that two runs write at once.

In a JVM without Spark's context: what is tried is how one file comes to be.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.conf import SparkConf
from pyspark.java_gateway import launch_gateway

from headgate.engine import v1 as engine
from headgate_engine.jars import CHECKPOINT_FILES
from headgate_engine.s3 import bucket_settings
from tests.servers.minio import Bucket

pytestmark = [pytest.mark.spark, pytest.mark.minio]


@pytest.fixture(scope="module")
def jvm(spark_s3_jars: list[Path]) -> Iterator[Any]:
    conf = SparkConf(loadDefaults=False).set("spark.driver.extraClassPath", os.pathsep.join(map(str, spark_s3_jars)))
    gateway = launch_gateway(conf.set("spark.driver.memory", "300m"), popen_kwargs={"stderr": None})
    yield gateway.jvm
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(30)


class Folder:
    """A folder of a bucket, as one writer sees it."""

    def __init__(self, jvm: Any, bucket: Bucket) -> None:
        uri = f"s3a://{bucket.name}/offsets"
        access = engine.S3Access(endpoint=bucket.endpoint, region=bucket.region, path_style=True)
        conf = jvm.org.apache.hadoop.conf.Configuration(True)
        for key, value in bucket_settings(uri, access, lambda key: None).items():
            conf.set(key, value)
        conf.set("fs.s3a.access.key", bucket.access_key)
        conf.set("fs.s3a.secret.key", bucket.secret_key)
        conf.set("fs.s3a.input.stream.type", "classic")
        self._jvm = jvm
        self._folder = jvm.org.apache.hadoop.fs.Path(uri)
        self._manager = getattr(jvm, CHECKPOINT_FILES)(self._folder, conf)
        self._manager.mkdirs(self._folder)

    def path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, name)

    def begin(self, name: str, text: str, *, overwrite: bool = False) -> Any:
        stream = self._manager.createAtomic(self.path(name), overwrite)
        stream.write(bytearray(text.encode()))
        return stream

    def read(self, name: str) -> str:
        stream = self._manager.open(self.path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def names(self) -> list[str]:
        return sorted(status.getPath().getName() for status in self._manager.list(self._folder))


def test_of_two_writers_of_a_file_the_store_lets_the_first_win_and_tells_the_second(jvm: Any, minio: Bucket) -> None:
    files = Folder(jvm, minio)
    first, second = files.begin("7", "first"), files.begin("7", "second")
    first.close()
    with pytest.raises(Py4JJavaError) as told:
        second.close()
    # Spark takes this very class for a second run of the query, and stops the one that met it.
    assert told.value.java_exception.getClass().getName() == "org.apache.hadoop.fs.FileAlreadyExistsException"
    assert files.read("7") == "first"
    with pytest.raises(Py4JJavaError):
        files.begin("7", "third").close()
    assert files.read("7") == "first"


def test_what_was_cancelled_leaves_nothing_and_what_may_be_replaced_is(jvm: Any, minio: Bucket) -> None:
    files = Folder(jvm, minio)
    files.begin("8", "half").cancel()
    assert files.names() == []
    files.begin("9", "old", overwrite=True).close()
    files.begin("9", "new", overwrite=True).close()
    assert (files.names(), files.read("9")) == (["9"], "new")
