"""Runs one server and ends it when the process that asked for it is gone.

Started as a child with a pipe as its standard input. A sign on that pipe is the order to stop the server; its end
without one says that the other side was killed, and then the server's folder goes with it. Exits with the server's own
code.
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

POLL_SECONDS = 0.2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="where the server's output goes")
    parser.add_argument("--pid-file", type=Path, required=True, help="where the server's process id is written")
    parser.add_argument("--stop-signal", type=int, default=int(signal.SIGTERM), help="asks the server to stop")
    parser.add_argument("--grace", type=float, default=10.0, help="seconds until it is killed instead")
    parser.add_argument("--user", help="the user to run it as")
    parser.add_argument("--remove", type=Path, help="a folder to remove where nobody else is left to do it")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    # An interrupt at the keyboard goes to the whole process group; this one waits for the end of its pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # So does what `timeout` sends; a handler, because the server would inherit that it is ignored.
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    with arguments.log.open("ab") as log:
        server = subprocess.Popen(
            arguments.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            user=arguments.user,
            group=arguments.user,
            extra_groups=[] if arguments.user else None,
        )
    unfinished = arguments.pid_file.with_suffix(".unfinished")
    unfinished.write_text(str(server.pid))
    unfinished.rename(arguments.pid_file)
    orphaned = False
    while server.poll() is None:
        readable, _, _ = select.select([sys.stdin], [], [], POLL_SECONDS)
        if readable:
            orphaned = not os.read(sys.stdin.fileno(), 1)
            break
    code = stop(server, arguments.stop_signal, arguments.grace)
    if orphaned and arguments.remove:
        shutil.rmtree(arguments.remove, ignore_errors=True)
    return code


def stop(server: subprocess.Popen[bytes], stop_signal: int, grace: float) -> int:
    if server.poll() is None:
        server.send_signal(stop_signal)
        try:
            server.wait(grace)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
    return server.wait()


if __name__ == "__main__":
    raise SystemExit(main())
