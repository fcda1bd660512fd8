"""Folders of checkpoints, through Hadoop's file systems: whatever URI Spark can write, this can."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headgate_common.errors import HeadgateError
from headgate_engine.errors import CHECKPOINT_INVALID
from headgate_engine.s3 import is_s3

_ONLY_IF_ABSENT = "fs.option.create.conditional.overwrite"


def at(session: SparkSession, uri: str) -> tuple[Any, Any]:
    """The file system of a URI, and the path in it."""
    jvm = session._jvm
    assert jvm is not None
    path = jvm.org.apache.hadoop.fs.Path(uri)
    return path.getFileSystem(session.sparkContext._jsc.hadoopConfiguration()), path


def make_folder(session: SparkSession, folder: str) -> None:
    """Also where it is there. An OSError where the file system only says that it cannot."""
    system, path = at(session, folder)
    if not system.mkdirs(path):
        raise OSError(f"{folder} cannot be made")


def read_text(session: SparkSession, uri: str) -> str | None:
    """What a file says; None where it is not there."""
    system, path = at(session, uri)
    if not system.exists(path):
        return None
    jvm: Any = session._jvm
    stream = system.open(path)
    try:
        return str(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
    finally:
        stream.close()


def write_text(session: SparkSession, uri: str, text: str) -> None:
    """Writes a file, all at once. One that is there stays as it is: read it to know whose it is."""
    system, path = at(session, uri)
    if system.exists(path):
        return
    if is_s3(uri):
        _create_once(system, path, text)
        return
    folder, name = uri.rsplit("/", 1)
    # A name of its own: another run may be writing the same file.
    _, unfinished = at(session, f"{folder}/.{name}.{uuid4().hex}")
    stream = system.create(unfinished, False)
    try:
        stream.write(bytearray(text.encode()))
    finally:
        stream.close()
    if system.rename(unfinished, path):
        return
    # Some file systems refuse to replace a file, and only say so.
    system.delete(unfinished, False)
    if not system.exists(path):
        raise HeadgateError(CHECKPOINT_INVALID, f"{uri} cannot be written: the file could not be renamed")


def _create_once(system: Any, path: Any, text: str) -> None:
    """The store decides which of two writers it is, because a rename there is a copy over whatever is there."""
    stream = system.createFile(path).recursive().must(_ONLY_IF_ABSENT, True).build()
    stream.write(bytearray(text.encode()))
    try:
        stream.close()
    except Py4JJavaError:
        # Another run was first, or it failed: then there is no file.
        if not system.exists(path):
            raise


def file_names(session: SparkSession, folder: str) -> list[str]:
    """What is in a folder; nothing where it is not there."""
    system, path = at(session, folder)
    if not system.exists(path):
        return []
    return [str(status.getPath().getName()) for status in system.listStatus(path)]


def remove_file(session: SparkSession, uri: str) -> None:
    """Also where it is not there."""
    system, path = at(session, uri)
    system.delete(path, False)


def remove_folder(session: SparkSession, folder: str) -> None:
    """Also where it is not there."""
    system, path = at(session, folder)
    system.delete(path, True)


def last_batch(session: SparkSession, checkpoint: str) -> int:
    """The last batch that Spark has written down; -1 where there is none."""
    names = file_names(session, f"{checkpoint}/offsets")
    return max((int(name) for name in names if name.isdigit()), default=-1)


def check_checkpoint(session: SparkSession, checkpoint: str, committed: int) -> None:
    """Refuses a checkpoint that knows less than the edge: what Spark would do again from there under the ids of batches
    that are committed would be taken for done, and lost. The end of a stream is committed behind the last batch."""
    known = last_batch(session, checkpoint)
    if known < committed - 1:
        has = f"ends with batch {known}" if known >= 0 else "is empty"
        raise HeadgateError(
            CHECKPOINT_INVALID,
            f"the output has batch {committed}, and the checkpoint {checkpoint} {has}: it is another folder on this "
            "machine, or was lost; point every engine at the same checkpoints, or recreate the query",
        )
