"""What Hadoop's file systems say of a place, and what that means for a run."""

from __future__ import annotations

import pytest

from headgate_common.errors import HeadgateError, Reason
from headgate_engine.errors import CHECKPOINT_INVALID, CHECKPOINT_UNREACHABLE, QUERY_INVALID
from headgate_engine.fragments.checkpoint_problems import checkpoint_problems, problem_of
from headgate_engine.fragments.errors import failure_of

# As seen, from the outside to the inside.
NO_BUCKET = [
    "java.io.FileNotFoundException: getFileStatus on s3a://b/cp: bucket does not exist",
    "software.amazon.awssdk.services.s3.model.NoSuchBucketException: The specified bucket does not exist "
    "(Service: S3, Status Code: 404, Request ID: 18E8E1D2F851C83A) (SDK Attempt Count: 1)",
]
FORBIDDEN = [
    "java.nio.file.AccessDeniedException: s3a://b/cp: getFileStatus on s3a://b/cp",
    "software.amazon.awssdk.services.s3.model.S3Exception: Forbidden (Service: S3, Status Code: 403, Request ID: 1)",
]
NO_SCHEME = ["java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.gs.GoogleHadoopFileSystem not found"]
IN_THE_WAY = ["org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:/tmp/afile"]
NO_FOLDER = ["java.io.IOException: Mkdirs failed to create file:/b/cp/f1 (exists=false, cwd=file:/)"]
REFUSED = [
    "org.apache.hadoop.fs.s3a.AWSClientIOException: software.amazon.awssdk.core.exception.SdkClientException",
    "java.net.ConnectException: Connection refused",
]
UNKNOWN = ["java.net.UnknownHostException: no.such.host.invalid"]


@pytest.mark.parametrize(
    ("causes", "says"),
    [
        (NO_BUCKET, "there is no such bucket (NoSuchBucketException: The specified bucket does not exist)"),
        (FORBIDDEN, "the store refuses the engine's keys (S3Exception: Forbidden)"),
        (NO_SCHEME, "the engine has no file system for s3a://"),
        (IN_THE_WAY, "a file is in its way"),
        (NO_FOLDER, "its folder cannot be made"),
    ],
)
def test_a_place_that_refuses_is_final_unless_the_query_has_written_there(causes: list[str], says: str) -> None:
    first = problem_of(causes, "s3a://b/cp", has_run=False)
    assert first is not None
    assert first.reason is CHECKPOINT_INVALID
    assert says in first.message
    assert not failure_of(first).transient
    later = problem_of(causes, "s3a://b/cp", has_run=True)
    assert later is not None
    assert (later.reason, later.message) == (CHECKPOINT_UNREACHABLE, first.message)
    assert failure_of(later).transient


@pytest.mark.parametrize("causes", [REFUSED, UNKNOWN])
@pytest.mark.parametrize("has_run", [False, True])
def test_a_place_that_does_not_answer_may_answer_later(causes: list[str], has_run: bool) -> None:
    found = problem_of(causes, "s3a://b/cp", has_run=has_run)
    assert found is not None
    assert found.reason is CHECKPOINT_UNREACHABLE


def test_other_problems_are_left_alone() -> None:
    assert problem_of(["java.io.IOException: No space left on device"], "/cp", has_run=False) is None
    assert problem_of(["java.lang.IllegalArgumentException: x"], "/cp", has_run=False, named=True) is None
    assert problem_of(NO_FOLDER, "/b/cp", has_run=False, named=True) is not None
    typed = HeadgateError(QUERY_INVALID, "Permission denied")
    with pytest.raises(HeadgateError) as raised, checkpoint_problems("/cp", has_run=False):
        raise typed
    assert raised.value is typed


@pytest.mark.parametrize(("has_run", "reason"), [(False, CHECKPOINT_INVALID), (True, CHECKPOINT_UNREACHABLE)])
def test_a_folder_that_a_file_system_only_says_it_cannot_make_counts_too(has_run: bool, reason: Reason) -> None:
    with pytest.raises(HeadgateError) as raised, checkpoint_problems("/proc/cp", has_run=has_run):
        raise OSError("/proc/cp/f cannot be made")
    assert raised.value.reason is reason
