"""The one rule for names of agents, sources, sinks, queries and topics, in SQL and API alike."""

from __future__ import annotations

import re

from headgate_common.errors import HeadgateError
from headgate_coordinator.errors import INVALID_NAME

MAX_NAME = 63
# ASCII only: look-alikes of other alphabets would make two names that no person can tell apart.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_SHOWN = 40


def fold(name: str, what: str = "name") -> str:
    """The name as it is stored and looked up: in lower case. INVALID_NAME where it breaks the rule.

    `what` says whose name it is in the message. Time and message are bounded whatever the input.
    """
    if _NAME.fullmatch(name):
        return name.lower()
    raise HeadgateError(INVALID_NAME, f"the {what} {_shown(name)} {_fault(name)}")


def _shown(name: str) -> str:
    return ascii(name if len(name) <= _SHOWN else name[:_SHOWN] + "...")


def _fault(name: str) -> str:
    if not name:
        return "is empty; a name has 1 to 63 characters"
    if len(name) > MAX_NAME:
        return f"has {len(name):,} characters; a name has at most {MAX_NAME}"
    if re.fullmatch(r"[A-Za-z0-9_-]*", name):
        return "begins with a digit or '-'; a name begins with a letter or '_'"
    wrong = next(c for c in name if not re.fullmatch(r"[A-Za-z0-9_-]", c))
    return f"has {wrong!a} in it; a name consists of letters a to z, digits, '_' and '-'"
