"""The entry of `headgate`: the commands, the options before them, and the one place where errors end."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from headgate_cli.commands.apply import apply, export
from headgate_cli.commands.dev import dev
from headgate_cli.commands.groups import groups
from headgate_cli.commands.lifecycle import drop, stop, wait
from headgate_cli.commands.read import describe, explain, get
from headgate_cli.commands.records import consume, produce
from headgate_cli.commands.sql import sql
from headgate_cli.commands.status import status, version
from headgate_cli.commands.topics import topics
from headgate_cli.commands.watch import watch
from headgate_cli.failures import ExitCode, Failure, report, report_failure
from headgate_cli.options import DEFAULT_COORDINATOR, CoordinatorOption, root_options
from headgate_cli.output import say
from headgate_common.config import ConfigError
from headgate_common.errors import HeadgateError

EPILOG = (
    "Exit codes: 0 done, 1 refused by the coordinator, 2 wrong usage, 3 coordinator unreachable, 4 timed out, "
    "5 ended otherwise than waited for, 70 a defect, 130 interrupted. Results go to standard output, messages to "
    f"standard error. The coordinator is found by --coordinator, HEADGATE_COORDINATOR, or at {DEFAULT_COORDINATOR}."
)

app = typer.Typer(
    name="headgate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=EPILOG,
)


@app.callback()
def root(
    context: typer.Context,
    coordinator: CoordinatorOption = None,
    rpc_timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long one call may take.")] = "30s",
    tls_ca: Annotated[
        Path | None, typer.Option(envvar="HEADGATE_TLS_CA", help="Authorities of the coordinator; turns TLS on.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(envvar="HEADGATE_TLS_CERTIFICATE", help="Certificate to show to the coordinator.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(envvar="HEADGATE_TLS_KEY", help="Key of that certificate.")] = None,
) -> None:
    """Headgate: describe what should run on your data in motion, and see what runs and why.

    Start with `headgate dev`, which brings up a whole cluster on this machine.
    """
    context.obj = root_options(coordinator, rpc_timeout, tls_ca, tls_certificate, tls_key)


for function in (dev, status, sql, apply, get, describe, explain, watch, wait, stop, drop, export, version):
    app.command()(function)
topics.command()(produce)
topics.command()(consume)
app.add_typer(topics, name="topics")
app.add_typer(groups, name="groups")


def main() -> None:
    """Runs the command and exits with its code. No Python trace reaches the user unless HEADGATE_TRACE asks for it."""
    try:
        app()
    except HeadgateError as error:
        code = report(error)
    except Failure as failure:
        code = report_failure(failure)
    except ConfigError as error:
        code = report_failure(Failure(ExitCode.USAGE, str(error)))
    except BrokenPipeError:
        # Whoever read the output has enough of it. Python must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = ExitCode.DONE
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except Exception as defect:
        code = _report_defect(defect)
    else:
        code = ExitCode.DONE
    sys.exit(int(code))


def _report_defect(defect: Exception) -> ExitCode:
    if os.environ.get("HEADGATE_TRACE"):
        traceback.print_exception(defect)
    say(f"headgate: a defect of this command: {type(defect).__name__}: {defect}")
    say("Please report it; HEADGATE_TRACE=1 shows where it happened.")
    return ExitCode.DEFECT


if __name__ == "__main__":
    main()
