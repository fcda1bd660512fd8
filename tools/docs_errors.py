"""Writes docs/errors.md from the reasons declared in the code, or checks that it is up to date (`--check`)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

# Reasons are declared where they belong; a server has all of them.
import headgate_common.server  # noqa: F401
from headgate_agent.errors import REASONS as AGENT
from headgate_common import pages
from headgate_common.errors import COMMON, Reason
from headgate_coordinator.errors import REASONS as COORDINATOR
from headgate_engine.errors import REASONS as ENGINE

PAGE = Path(__file__).resolve().parent.parent / "docs" / "errors.md"

HEAD = """\
# Errors

Made from the code by `tools/docs_errors.py`; do not edit.

Every error is a gRPC status with a `google.rpc.ErrorInfo`: `domain` is `headgate`, `reason` is one of the names below,
and `metadata` says what it is about (`name`, `kind`, `field`, `item`, ...). Reasons and their codes never change once
released; messages may. Further details where they apply:

| detail | when |
|---|---|
| `google.rpc.BadRequest` | INVALID_ARGUMENT: each field and the rule it breaks |
| `google.rpc.PreconditionFailure` | something is in use: the first references by name, with their state |
| `headgate.catalog.v1.StatementProblem` | a statement is at fault: step, line, column, excerpt, suggestion |
| `headgate.catalog.v1.StatementFailure` | an item of a bundle is at fault: which one, and why |
| `google.rpc.RetryInfo` | OVERLOADED: after which time to try again |

Retry only `UNAVAILABLE`, with back-off and the same `request_id`: OVERLOADED is told apart from INSUFFICIENT_CAPACITY
by the code, because trying again does not make room. FETCH_MEMORY_EXHAUSTED comes when a fetch has waited for as long
as it could; it read nothing, and may be asked again. NOT_LEADER names the leader in the metadata `leader` and in the
trailer `headgate-leader`.
"""


def table(reasons: Iterable[Reason]) -> str:
    return pages.table(
        ("reason", "code", "meaning", "what to do", "the documents also say"),
        (
            (
                f"`{reason.name}`",
                f"`{reason.code.name}`",
                reason.meaning,
                reason.advice,
                ", ".join(f"`{name}`" for name in reason.synonyms),
            )
            for reason in reasons
        ),
    )


def page() -> str:
    common = {reason.name for reason in COMMON}
    text = f"{HEAD}\n## Of every service\n\n{table(COMMON)}"
    for title, reasons in (("the coordinator", COORDINATOR), ("agents", AGENT), ("engines", ENGINE)):
        text += f"\n## Of {title}\n\n{table(one for one in reasons if one.name not in common)}"
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only say whether the page is up to date")
    check = parser.parse_args().check
    made = page()
    if check:
        if PAGE.exists() and PAGE.read_text() == made:
            return 0
        sys.stderr.write("docs/errors.md is not what the code says: run tools/docs_errors.py\n")
        return 1
    PAGE.write_text(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
