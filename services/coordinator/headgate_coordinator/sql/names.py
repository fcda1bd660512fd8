"""The rule for names of agents, sources, sinks and queries, and Kafka's for topics, in SQL and API alike."""

from __future__ import annotations

import re

from headgate_common.errors import HeadgateError
from headgate_coordinator.errors import INVALID_NAME

MAX_NAME = 63
# ASCII only: look-alikes of other alphabets would make two names that no person can tell apart.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
_SHOWN = 40
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Of topics that queries make for themselves; nobody else makes one that begins so, in any case of letters.
INTERNAL_PREFIX = "__headgate."


def fold(name: str, what: str = "name") -> str:
    """The name as it is stored and looked up: in lower case. INVALID_NAME where it breaks the rule.

    `what` says whose name it is in the message. Time and message are bounded whatever the input.
    """
    if _NAME.fullmatch(name):
        return name.lower()
    raise HeadgateError(INVALID_NAME, f"the {what} {_shown(name)} {_fault(name)}")


def topic_fault(name: str) -> str:
    """What is wrong with the name of a topic, by Kafka's rule; empty if nothing. Case is kept and significant."""
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        return "the name of a topic has 1 to 249 letters, digits, '.', '_' or '-'"
    return ""


def new_topic_fault(name: str) -> str:
    """The same for a topic that somebody makes or writes to."""
    if name.lower().startswith(INTERNAL_PREFIX):
        return f"names that begin with {INTERNAL_PREFIX} are those of topics that queries make for themselves"
    return topic_fault(name)


def _shown(name: str) -> str:
    shown = name if len(name) <= _SHOWN else name[:_SHOWN] + "..."
    return "'" + "".join(map(_character, shown)) + "'"


def _character(character: str) -> str:
    """A character as a person can read it; what cannot be seen is spelled out."""
    return character if character.isprintable() else ascii(character)[1:-1]


def _fault(name: str) -> str:
    if not name:
        return "is empty; a name has 1 to 63 characters"
    if len(name) > MAX_NAME:
        return f"has {len(name):,} characters; a name has at most {MAX_NAME}"
    if re.fullmatch(r"[A-Za-z0-9_-]*", name):
        return "begins with a digit or '-'; a name begins with a letter or '_'"
    wrong = next(c for c in name if not re.fullmatch(r"[A-Za-z0-9_-]", c))
    # The number tells apart what looks like a letter a to z and is none.
    number = "" if wrong.isascii() else f" (U+{ord(wrong):04X})"
    return f"has '{_character(wrong)}'{number} in it; a name consists of letters a to z, digits, '_' and '-'"
