"""Keeps the tables of docs/kafka.md equal to the code: `python -m headgate_agent.kafka.apidoc PAGE`.

Tables stand between `<!-- apis -->`, `<!-- topic settings -->` or `<!-- refusals -->` and `<!-- end -->`. With
`--check` the page is left as it is, and the exit code says whether it would change.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from headgate_agent.groups.events import Refusal
from headgate_agent.kafka.apis import APIS
from headgate_agent.kafka.settings import FIXED, SETTINGS
from headgate_common.pages import keep, table

_TABLE = re.compile(r"(<!-- (apis|topic settings|refusals) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def apis() -> str:
    return _announced() + table(
        ("request", "key", "versions", "notes"),
        [(api.name, str(api.key), f"{api.first} to {api.last}", api.note) for api in APIS.values()],
    )


def _announced() -> str:
    lower = [f"{api.name} (from {api.announced_first})" for api in APIS.values() if api.announced_first is not None]
    return f"ApiVersions announces these versions, and lower ones of {', '.join(lower)}: the notes say why.\n\n"


def topic_settings() -> str:
    rows = [(f"`{one.name}`", "no" if one.fixed else "yes", one.documentation) for one in SETTINGS.values()]
    rows += [(f"`{one.name}`", f"only `{one.value}`", one.documentation) for one in FIXED.values()]
    return table(("setting", "may change", "meaning"), rows)


def refusals() -> str:
    return table(("error", "when"), [(one.name, one.value) for one in Refusal])


_TABLES: Mapping[str, Callable[[], str]] = {"apis": apis, "topic settings": topic_settings, "refusals": refusals}


def refresh(page: str) -> str:
    """The page with every table made anew."""
    return _TABLE.sub(lambda match: match[1] + _TABLES[match[2]]() + match[4], page)


def main() -> int:
    return keep(refresh, "headgate_agent.kafka.apidoc", __doc__)


if __name__ == "__main__":
    raise SystemExit(main())
