"""Results go to standard output, as a table for people or as JSON for programs; messages go to standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

# Wide enough that a table that is piped is never cut.
_PIPE_WIDTH = 4096
# What a terminal takes for an order, or shows somewhere else than where it stands: control characters, and those that
# separate lines or change the direction of writing.
_HIDDEN = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ON_ONE_LINE = {code: chr(code).encode("unicode_escape").decode() for code in _HIDDEN}
# JSON escapes the first of them by itself.
_IN_JSON = {code: f"\\u{code:04x}" for code in _HIDDEN if code >= 0x7F}
_ON_LINES = {code: shown for code, shown in _ON_ONE_LINE.items() if chr(code) not in "\n\t"}


def printable(text: str, *, lines: bool = False) -> str:
    """The text as a terminal may get it: what would be an order to it is escaped, the ends of `lines` only if told."""
    return text.translate(_ON_LINES if lines else _ON_ONE_LINE)


class SafeConsole(Console):
    """Writes what users' data says and does nothing that it says: only styles of our own reach the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text, lines=True), style)


class Output(StrEnum):
    """How results are written."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def stdout() -> Console:
    width = None if sys.stdout.isatty() else _PIPE_WIDTH
    return SafeConsole(file=sys.stdout, width=width, highlight=False, soft_wrap=True, markup=False)


def stderr() -> Console:
    width = None if sys.stderr.isatty() else _PIPE_WIDTH
    return SafeConsole(file=sys.stderr, width=width, highlight=False, soft_wrap=True, markup=False)


def say(message: str) -> None:
    """A message for the person in front of the screen."""
    stderr().print(Text(message))


_STATE_STYLES = {
    "RUNNING": "green",
    "ACTIVE": "green",
    "TERMINATED": "green",
    "PENDING": "yellow",
    "DEPLOYING": "yellow",
    "REGISTERED": "yellow",
    "STARTED": "yellow",
    "STOPPING": "yellow",
    "STOPPED": "dim",
    "FAILED": "bold red",
    "UNREACHABLE": "bold red",
    "CREATE": "green",
    "UPDATE": "yellow",
    "DROP": "red",
}


def styled(value: str) -> Text:
    """A state in its colour; anything else as it is, with its width as it is shown."""
    return Text(printable(value, lines=True), style=_STATE_STYLES.get(value, ""))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=not sys.stdout.isatty(), overflow="fold")
    for row in rows:
        table.add_row(*(styled(value) for value in row))
    print_text(table)


def print_text(text: RenderableType) -> None:
    """Text with tables in it, to a terminal or a file."""
    console = stdout()
    if console.is_terminal:
        console.print(text)
        return
    with console.capture() as captured:
        console.print(text)
    # Tables are filled up with spaces, which nobody needs in a file.
    console.file.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    console.file.flush()


def plain(message: Message) -> dict[str, Any]:
    """A message as JSON has it, with the names of the proto, every field present."""
    result: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    # Fields without a value come last otherwise.
    return {field.name: result[field.name] for field in message.DESCRIPTOR.fields if field.name in result}


def print_json(value: object) -> None:
    _write_json(json.dumps(value, indent=2, ensure_ascii=False))


def print_json_line(value: object) -> None:
    _write_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _write_json(text: str) -> None:
    sys.stdout.write(text.translate(_IN_JSON) + "\n")
    sys.stdout.flush()


def print_one(value: object, output: Output) -> None:
    """One value as JSON, over several lines or on one."""
    (print_json if output is Output.JSON else print_json_line)(value)


def print_values(values: Sequence[object], output: Output) -> None:
    """A list of values as one JSON array, or each on a line of its own."""
    if output is Output.JSON:
        print_json(list(values))
    else:
        for value in values:
            print_json_line(value)
