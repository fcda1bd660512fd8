"""What is written for people shows the data of users, and does nothing that it says."""

from __future__ import annotations

import io
import json

import pytest
from rich.text import Text

from headgate.log import v1 as log
from headgate_cli.commands import records
from headgate_cli.error_rows import ErrorRow
from headgate_cli.failures import ExitCode, Failure, report_failure
from headgate_cli.output import Output, print_json, print_json_line, print_table, printable, say, stdout

# Colours, a title, a cleared screen, and text that runs backwards.
ORDERS = "\x1b[31mred\x1b]0;title\x07\x9b2J\x7f\u202egnp"
HIDDEN = "\x1b\x07\x9b\x7f\u202e"


class Terminal(io.TextIOWrapper):
    def isatty(self) -> bool:
        return True


def obeyed(text: str) -> list[str]:
    return [letter for letter in text if letter in HIDDEN]


def test_what_would_be_an_order_is_escaped_and_other_text_is_not() -> None:
    assert printable("a\nb\tc\r") == "a\\nb\\tc\\r"
    assert printable("a\nb\tc\r", lines=True) == "a\nb\tc\\r"
    assert printable("\x1b[0m\u2028") == "\\x1b[0m\\u2028"
    assert printable("grün 日本 🚂 \\n") == "grün 日本 🚂 \\n"


def test_tables_texts_and_messages_give_no_orders(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["NAME", ORDERS], [[ORDERS, "after"], ["x", "y"]])
    stdout().print(ORDERS)
    stdout().print(Text(ORDERS))
    say(ORDERS)
    report_failure(Failure(ExitCode.REFUSED, ORDERS, ORDERS))
    out, err = capsys.readouterr()
    assert obeyed(out + err) == []
    assert out.count("\\x1b[31mred") == 4 and err.count("\\x1b[31mred") == 3
    rows = out.splitlines()[1:3]
    assert rows[0].index("after") == rows[1].index("y"), rows


def test_json_says_the_same_with_escapes_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    for write in (print_json, print_json_line):
        write({"text": ORDERS})
        out = capsys.readouterr().out
        assert obeyed(out) == []
        assert json.loads(out) == {"text": ORDERS}


@pytest.mark.parametrize("terminal", [True, False])
def test_a_record_goes_to_a_file_as_it_is_and_to_a_terminal_escaped(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr("sys.stdout", Terminal(raw) if terminal else io.TextIOWrapper(raw))
    value = f"{ORDERS}\nsecond".encode() + b"\xff"
    records._show(log.Record(key=b"k", value=value), Output.TABLE, keys=True)
    if terminal:
        assert raw.getvalue().endswith(b"\nsecond\\xff\n") and raw.getvalue().startswith(b"k\t\\x1b[31mred")
        assert obeyed(raw.getvalue().decode()) == []
    else:
        assert raw.getvalue() == b"k\t" + value + b"\n"


def test_an_error_row_is_one_line() -> None:
    text = ErrorRow(1, 0, "in.csv:7", "bad", f"a\n{ORDERS}\n".encode()).text
    assert text.startswith("a\\n\\x1b[31m") and obeyed(text) == [] and "\n" not in text
