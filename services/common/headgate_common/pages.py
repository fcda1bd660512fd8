"""Markdown pages whose tables are made from code: a table, and the command that keeps a page equal to the code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown; `|` in a cell is kept."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def keep(refresh: Callable[[str], str], module: str, description: str | None) -> int:
    """The command `python -m module PAGE`: writes the page that `refresh` makes of it, or with `--check` says whether
    that would change it. The exit code is the answer."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--check", action="store_true", help="fail if the page is out of date")
    arguments = parser.parse_args()
    page = arguments.page.read_text()
    fresh = refresh(page)
    if fresh == page:
        return 0
    if arguments.check:
        sys.stderr.write(f"{arguments.page} is out of date: python -m {module} {arguments.page}\n")
        return 1
    arguments.page.write_text(fresh)
    return 0
