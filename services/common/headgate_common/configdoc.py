"""Keeps the tables of settings in a Markdown page equal to the code.

A table stands between `<!-- settings: module:Dataclass prefix -->` and `<!-- end -->`; `python -m
headgate_common.configdoc PAGE` writes it anew, and with `--check` only says whether that would change the page.
`prefix` is put before each key (`server.`). Where it is `-`, the dataclass is a whole configuration: its keys are as
they are, and those of `server`, which every service has, are left out.
"""

from __future__ import annotations

import importlib
import re
from typing import Any

from headgate_common.config import keys
from headgate_common.pages import keep, table

_COMMON = "server."
_TABLE = re.compile(r"(<!-- settings: (\S+):(\S+) (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def markdown_table(config_type: type[Any], prefix: str = "") -> str:
    """The settings of a dataclass: key, type, default, meaning."""
    rows = []
    for key in keys(config_type):
        if not prefix and key.name.startswith(_COMMON):
            continue
        default = "required" if key.required else f"`{key.show(key.default)}`" if key.show(key.default) else ""
        rows.append((f"`{prefix}{key.name}`", key.kind.name, default, key.meaning))
    return table(("key", "type", "default", "meaning"), rows)


def refresh(page: str) -> str:
    """The page with every table of settings made anew."""

    def anew(match: re.Match[str]) -> str:
        config_type = getattr(importlib.import_module(match[2]), match[3])
        return match[1] + markdown_table(config_type, "" if match[4] == "-" else match[4]) + match[6]

    return _TABLE.sub(anew, page)


def main() -> int:
    return keep(refresh, "headgate_common.configdoc", __doc__)


if __name__ == "__main__":
    raise SystemExit(main())
