"""What it means for a run that the place of its checkpoint cannot be opened.

A store that does not answer may answer later. One that refuses, or is not there, will not for a query that has written
nothing yet: it ends with the reason at once. A query that has committed batches is worth more than that: somebody may
have changed a right or moved a folder for a while, so its run is tried again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlparse

from headgate_common.errors import HeadgateError
from headgate_engine.errors import CHECKPOINT_INVALID, CHECKPOINT_UNREACHABLE
from headgate_engine.fragments.errors import causes_of

# Kinds and messages along the causes of an error, and what they say to a user. `{scheme}` is that of the URI.
_REFUSALS = tuple(
    (re.compile(pattern), meaning)
    for pattern, meaning in (
        (
            r"No FileSystem for scheme|UnsupportedFileSystemException|ClassNotFoundException",
            "the engine has no file system for {scheme}://",
        ),
        (r"NoSuchBucketException|UnknownStoreException", "there is no such bucket"),
        (r"NoAuthWithAWSException|CredentialInitializationException", "the engine has no keys for it"),
        (r"Status Code: 40[13]|AccessDeniedException", "the store refuses the engine's keys"),
        (r"AccessControlException|Permission denied|Read-only file system", "the engine may not write there"),
        (r"ParentNotDirectoryException|FileAlreadyExistsException|Not a directory", "a file is in its way"),
        (r"Mkdirs failed to create|cannot be made", "its folder cannot be made"),
        (r"URISyntaxException|IllegalArgumentException", "it is not the URI of a folder"),
    )
)
_SILENT = re.compile(
    r"UnknownHostException|ConnectException|NoRouteToHostException|SocketTimeoutException|ConnectTimeoutException|"
    r"SdkClientException|ApiCall(?:Attempt)?TimeoutException|Status Code: 5\d\d|StandbyException|SafeModeException"
)


@contextmanager
def checkpoint_problems(uri: str, *, has_run: bool, named: bool = False) -> Iterator[None]:
    """Tells problems with the place of a checkpoint from all others. `has_run`: the query may have written there
    before. `named`: others are likely too, so it must be named by the error."""
    try:
        yield
    except HeadgateError:
        raise
    except Exception as error:
        found = problem_of(causes_of(error), uri, has_run=has_run, named=named)
        if found is None:
            raise
        raise found from error


def problem_of(causes: list[str], uri: str, *, has_run: bool, named: bool = False) -> HeadgateError | None:
    """`causes` are those of an error, the outermost first. None if it is another problem."""
    text = "\n".join(causes)
    if named and urlparse(uri).path not in text:
        return None
    if _SILENT.search(text):
        return HeadgateError(CHECKPOINT_UNREACHABLE, f"the checkpoint {uri} does not answer: {_told(causes)}")
    for pattern, meaning in _REFUSALS:
        if pattern.search(text):
            reason = CHECKPOINT_UNREACHABLE if has_run else CHECKPOINT_INVALID
            what = meaning.format(scheme=urlparse(uri).scheme)
            return HeadgateError(reason, f"the checkpoint {uri} cannot be used: {what} ({_told(causes)})")
    return None


def _told(causes: list[str]) -> str:
    """The innermost cause in one line, without the package of its kind and what only a store's owner understands."""
    line = re.sub(r"^(?:\w+\.)+(?=\w)", "", " ".join(causes[-1].split()))
    return re.sub(r"\s*\((?:Service|SDK)[^)]*\)", "", line)[:300]
