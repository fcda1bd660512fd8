"""Standard input, output and error of the command: closed, full, left by their reader, or in a narrow encoding."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from headgate_cli.failures import ExitCode, Failure, report_failure


def prepare_streams() -> None:
    """Whoever closed a stream wants nothing from it; what an encoding lacks is written with its number."""
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115 - for as long as the process lives
    if sys.stdout is None:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def check_arguments(arguments: Sequence[str]) -> None:
    """A usage error for arguments that are no text: the API takes nothing else."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            shown = argument.encode(errors="backslashreplace").decode()
            raise Failure(ExitCode.USAGE, f"the argument {shown[:60]} is not UTF-8 text") from None


def is_broken_pipe(error: BaseException | None) -> bool:
    """Whether the reader of the output has gone, having seen enough of it."""
    return isinstance(error, OSError) and error.errno == errno.EPIPE


def unwritable(error: OSError) -> Failure:
    where = f"{error.filename}: " if error.filename else ""
    return Failure(ExitCode.UNWRITABLE, f"{where}{error.strerror or error}")


def finish_output(code: object) -> int:
    """Writes what is left of the output, and says where that fails: a result that is cut off must not look whole."""
    ended = code if isinstance(code, int) else ExitCode.DONE if code is None else ExitCode.REFUSED
    try:
        sys.stdout.flush()
    except OSError as error:
        if not is_broken_pipe(error) and ended == ExitCode.DONE:
            ended = report_failure(unwritable(error))
        # Python would try once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(ended)
