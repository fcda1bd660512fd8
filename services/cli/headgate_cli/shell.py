"""The interactive SQL shell: history, many lines, colours, and errors that point to the place."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from headgate.catalog import v1 as catalog
from headgate_cli import __version__
from headgate_cli.completion import NAMED, SqlCompleter
from headgate_cli.connection import Connection
from headgate_cli.failures import Failure, report, report_failure
from headgate_cli.output import Output, say
from headgate_cli.session import SqlSession
from headgate_cli.statements import Piece, is_complete, split
from headgate_common.errors import HeadgateError

PROMPT = "headgate> "
IN_BUNDLE = "headgate*> "
_LEAVE = {"exit", "quit", "\\q"}
_HELP = {"help", "\\?", "\\h"}
# The prompt waits this long at most for the names that it can complete.
_NAMES_SECONDS = 1.0
HELP = """\
Statements end with ; and may span lines. Some to begin with:
  SHOW QUERIES;                      what runs
  DESCRIBE QUERY name;               one thing in full
  SELECT ... FROM source;            its rows as they come, until Ctrl-C or LIMIT; nothing is left behind
  SELECT ... FROM source INTO sink;  a query that stays, also when you leave
  EXPLAIN SELECT ... INTO sink;      how it would be planned
  WATCH SELECT name, state FROM queries;   every change, until Ctrl-C
  BEGIN; ... COMMIT;                 a bundle: all of it or none; ROLLBACK; forgets it
Tab completes words, and names of what there is.
Ctrl-C drops what is typed, or ends a SELECT or a WATCH; Ctrl-D or \\q leaves."""


def history_file() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "headgate" / "sql_history"


def open_history() -> History:
    """History in a file that only its owner reads; kept in memory where that cannot be had."""
    path = history_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError as error:
        say(f"no history is kept: {path}: {error.strerror}")
        return InMemoryHistory()
    return FileHistory(str(path))


def prompt_session(completer: SqlCompleter) -> PromptSession[str]:
    bindings = KeyBindings()
    session: PromptSession[str] = PromptSession(
        history=open_history(),
        multiline=True,
        prompt_continuation=lambda width, _line, _wraps: "." * (width - 1) + " ",
        lexer=None if os.environ.get("NO_COLOR") else PygmentsLexer(SqlLexer),
        completer=completer,
        complete_while_typing=False,
        auto_suggest=AutoSuggestFromHistory(),
        key_bindings=bindings,
    )
    typed_all = Condition(lambda: finished(session.default_buffer.text))

    @bindings.add("enter", filter=typed_all)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    return session


def finished(text: str) -> bool:
    """Whether Enter means "run it": a word of the shell itself, or text that ends with a `;`."""
    word = text.strip().lower().rstrip(";")
    return word in _LEAVE | _HELP or not text.strip() or is_complete(text)


class Shell:
    """Reads, runs, and goes on after errors. What is typed between BEGIN and COMMIT is kept until COMMIT."""

    def __init__(self, connection: Connection, output: Output) -> None:
        self._connection = connection
        self._session = SqlSession(connection, output)
        self._bundle: list[Piece] | None = None
        self._completer = SqlCompleter()

    @property
    def prompt(self) -> str:
        return PROMPT if self._bundle is None else IN_BUNDLE

    async def run(self) -> None:
        say(f"headgate {__version__}, coordinator {self._connection.address}. help; explains, \\q leaves.")
        prompts = prompt_session(self._completer)
        while True:
            await self._learn_names()
            try:
                text = await prompts.prompt_async(self.prompt)
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            word = text.strip().lower().rstrip(";")
            if word in _LEAVE:
                return
            if word in _HELP:
                say(HELP)
                continue
            await self._interruptible(text)

    async def _learn_names(self) -> None:
        """What there is now can be completed. Where the coordinator does not say, what was known can."""
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(_NAMES_SECONDS):
                request = catalog.GetSnapshotRequest(kinds=NAMED)
                answer = await self._connection.call("WatchService.GetSnapshot", request)
                self._completer.learn(answer.resources)

    async def _interruptible(self, text: str) -> None:
        """Runs what was typed; Ctrl-C ends it and not the shell."""
        task = asyncio.ensure_future(self.accept(text))
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, task.cancel)
        try:
            await asyncio.wait({task})
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        if task.cancelled():
            say("interrupted")
        else:
            task.result()

    async def accept(self, text: str) -> None:
        """Runs the statements of one input and shows what goes wrong."""
        try:
            for piece in split(text):
                await self._accept_piece(piece)
        except HeadgateError as error:
            report(error)
        except Failure as failure:
            report_failure(failure)

    async def _accept_piece(self, piece: Piece) -> None:
        match piece.keyword:
            case "BEGIN" if self._bundle is None:
                self._bundle = []
            case "BEGIN":
                say("already in a bundle: COMMIT; applies it, ROLLBACK; forgets it")
            case "COMMIT" | "ROLLBACK" as word if self._bundle is not None:
                pieces, self._bundle = self._bundle, None
                if word == "COMMIT" and pieces:
                    await self._session.run_bundle(pieces)
                else:
                    say("nothing was done")
            case "COMMIT" | "ROLLBACK":
                say("not in a bundle: BEGIN; starts one")
            case _ if self._bundle is not None:
                self._bundle.append(piece)
                say(f"{len(self._bundle)} in the bundle")
            case _:
                await self._session.run_statement(piece)
