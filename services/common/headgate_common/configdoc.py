"""Keeps the tables of settings in a Markdown page equal to the code.

A table stands between `<!-- settings: module:Dataclass prefix -->` and `<!-- end -->`; `python -m
headgate_common.configdoc PAGE` writes it anew, and with `--check` only says whether that would change the page.
`prefix` is put before each key (`server.`). Where it is `-`, the dataclass is a whole configuration: its keys are as
they are, and those of `server`, which every service has, are left out.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from pathlib import Path
from typing import Any

from headgate_common.config import keys

_COMMON = "server."
_TABLE = re.compile(r"(<!-- settings: (\S+):(\S+) (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def markdown_table(config_type: type[Any], prefix: str = "") -> str:
    """The settings of a dataclass: key, type, default, meaning."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key in keys(config_type):
        if not prefix and key.name.startswith(_COMMON):
            continue
        default = "required" if key.required else f"`{key.show(key.default)}`" if key.show(key.default) else ""
        cells = (f"`{prefix}{key.name}`", key.kind.name, default, key.meaning)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def refresh(page: str) -> str:
    """The page with every table of settings made anew."""

    def table(match: re.Match[str]) -> str:
        config_type = getattr(importlib.import_module(match[2]), match[3])
        return match[1] + markdown_table(config_type, "" if match[4] == "-" else match[4]) + match[6]

    return _TABLE.sub(table, page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--check", action="store_true", help="fail if the page is out of date")
    arguments = parser.parse_args()
    page = arguments.page.read_text()
    fresh = refresh(page)
    if fresh == page:
        return 0
    if arguments.check:
        sys.stderr.write(f"{arguments.page} is out of date: python -m headgate_common.configdoc {arguments.page}\n")
        return 1
    arguments.page.write_text(fresh)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
