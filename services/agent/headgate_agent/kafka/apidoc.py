"""Keeps the tables of docs/kafka.md equal to the code: `python -m headgate_agent.kafka.apidoc PAGE`.

Tables stand between `<!-- apis -->`, `<!-- topic settings -->` or `<!-- refusals -->` and `<!-- end -->`. With
`--check` the page is left as it is, and the exit code says whether it would change.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from headgate_agent.groups.events import Refusal
from headgate_agent.kafka.apis import APIS
from headgate_agent.kafka.settings import FIXED, SETTINGS

_TABLE = re.compile(r"(<!-- (apis|topic settings|refusals) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def apis() -> str:
    return _rows(
        ("request", "key", "versions", "notes"),
        [(api.name, str(api.key), f"{api.first} to {api.last}", api.note) for api in APIS.values()],
    )


def topic_settings() -> str:
    rows = [(f"`{one.name}`", "no" if one.fixed else "yes", one.documentation) for one in SETTINGS.values()]
    rows += [(f"`{one.name}`", f"only `{one.value}`", one.documentation) for one in FIXED.values()]
    return _rows(("setting", "may change", "meaning"), rows)


def refusals() -> str:
    return _rows(("error", "when"), [(one.name, one.value) for one in Refusal])


_TABLES: Mapping[str, Callable[[], str]] = {"apis": apis, "topic settings": topic_settings, "refusals": refusals}


def refresh(page: str) -> str:
    """The page with every table made anew."""
    return _TABLE.sub(lambda match: match[1] + _TABLES[match[2]]() + match[4], page)


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
        sys.stderr.write(f"{arguments.page} is out of date: python -m headgate_agent.kafka.apidoc {arguments.page}\n")
        return 1
    arguments.page.write_text(fresh)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
