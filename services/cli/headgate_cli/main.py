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
from headgate_cli.commands.errors import errors
from headgate_cli.commands.groups import groups
from headgate_cli.commands.lifecycle import drop, stop, wait
from headgate_cli.commands.logs import logs
from headgate_cli.commands.read import describe, explain, get
from headgate_cli.commands.records import consume, produce
from headgate_cli.commands.sql import sql
from headgate_cli.commands.status import status, version
from headgate_cli.commands.top import top
from headgate_cli.commands.topics import topics
from headgate_cli.commands.watch import watch
from headgate_cli.failures import ExitCode, Failure, report, report_failure
from headgate_cli.options import DEFAULT_COORDINATOR, CoordinatorOption, root_options
from headgate_cli.output import say
from headgate_cli.streams import check_arguments, finish_output, is_broken_pipe, prepare_streams, unwritable
from headgate_common.config import ConfigError
from headgate_common.errors import HeadgateError

EPILOG = (
    "Exit codes: 0 done, 1 refused by the coordinator, 2 wrong usage, 3 coordinator unreachable, 4 timed out, "
    "5 ended otherwise than waited for, 70 a defect, 74 output cannot be written, 130 interrupted. Results go to "
    "standard output, messages to standard error. The coordinator is found by --coordinator, HEADGATE_COORDINATOR, or "
    f"at {DEFAULT_COORDINATOR}."
)

app = typer.Typer(
    name="headgate",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog=EPILOG,
)


def _version(asked: bool) -> None:
    if asked:
        version()
        raise typer.Exit


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
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Headgate: describe what should run on your data in motion, and see what runs and why.

    Start with `headgate dev`, which brings up a whole cluster on this machine.
    """
    context.obj = root_options(coordinator, rpc_timeout, tls_ca, tls_certificate, tls_key)


_COMMANDS = (
    dev,
    status,
    top,
    logs,
    sql,
    apply,
    get,
    describe,
    errors,
    explain,
    watch,
    wait,
    stop,
    drop,
    export,
    version,
)
for function in _COMMANDS:
    app.command()(function)
topics.command()(produce)
topics.command()(consume)
app.add_typer(topics, name="topics")
app.add_typer(groups, name="groups")


def main() -> None:
    """Runs the command and exits with its code. No Python trace reaches the user unless HEADGATE_TRACE asks for it."""
    prepare_streams()
    try:
        check_arguments(sys.argv[1:])
        app()
    except SystemExit as end:
        # Typer ends so by itself; of a reader who had enough it makes a failure, which it is not.
        code = ExitCode.DONE if is_broken_pipe(end.__context__) else end.code
    except HeadgateError as error:
        code = report(error)
    except Failure as failure:
        code = report_failure(failure)
    except ConfigError as error:
        code = report_failure(Failure(ExitCode.USAGE, str(error)))
    except KeyboardInterrupt:
        code = ExitCode.INTERRUPTED
    except OSError as error:
        code = ExitCode.DONE if is_broken_pipe(error) else report_failure(unwritable(error))
    except Exception as defect:
        code = _report_defect(defect)
    else:
        code = ExitCode.DONE
    sys.exit(finish_output(code))


def _report_defect(defect: Exception) -> ExitCode:
    if os.environ.get("HEADGATE_TRACE"):
        traceback.print_exception(defect)
    say(f"headgate: a defect of this command: {type(defect).__name__}: {defect}")
    say("Please report it; HEADGATE_TRACE=1 shows where it happened.")
    return ExitCode.DEFECT


if __name__ == "__main__":
    main()
