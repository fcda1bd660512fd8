"""Writes the tables of docs/queries.md from the code, or checks that they are up to date (`--check`).

The page is written by hand; what stands between `<!-- made: NAME -->` and `<!-- end -->` is made here.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from headgate_coordinator.query.transitions import FRAGMENT_TRANSITIONS, QUERY_TRANSITIONS, WAITING_REASONS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "queries.md"
_PART = re.compile(r"(<!-- made: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def transitions(table: Mapping[tuple[str, str], str]) -> str:
    rows = ["| from | to | when |", "|---|---|---|"]
    rows += [f"| {before} | {after} | {when} |" for (before, after), when in table.items()]
    return "\n".join(rows)


def waiting() -> str:
    rows = ["| reason | while | meaning | the documents also say |", "|---|---|---|---|"]
    rows += [
        f"| `{name}` | {row.while_in} | {row.meaning} | {row.also_known_as} |" for name, row in WAITING_REASONS.items()
    ]
    return "\n".join(rows)


PARTS: dict[str, Callable[[], str]] = {
    "query_transitions": lambda: transitions(QUERY_TRANSITIONS),
    "fragment_transitions": lambda: transitions(FRAGMENT_TRANSITIONS),
    "waiting_reasons": waiting,
}


def made(page: str) -> str:
    """The page with every made part as the code says."""
    missing = PARTS.keys() - {match[2] for match in _PART.finditer(page)}
    if missing:
        raise SystemExit(f"docs/queries.md has no place for: {', '.join(sorted(missing))}")
    return _PART.sub(lambda match: f"{match[1]}{PARTS[match[2]]()}\n{match[3]}", page)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    check = parser.parse_args().check
    page = PAGE.read_text()
    if made(page) == page:
        return 0
    if check:
        sys.stderr.write("docs/queries.md is not what the code says: run tools/docs_queries.py\n")
        return 1
    PAGE.write_text(made(page))
    return 0


if __name__ == "__main__":
    sys.exit(main())
