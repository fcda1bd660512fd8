"""Completion in the SQL shell: words of the dialect, and names of what the catalog holds.

Names are offered where a name can stand: after FROM or DESCRIBE QUERY come names, at the start of a statement words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from headgate.catalog import v1 as catalog
from headgate_cli import topic_settings
from headgate_cli.dialect import FIRST_WORDS, FUNCTIONS, WATCHED, WORDS
from headgate_cli.failures import Failure
from headgate_cli.kinds import of_resource
from headgate_cli.statements import split

NAMED = (
    catalog.RESOURCE_KIND_AGENT,
    catalog.RESOURCE_KIND_LOGICAL_SOURCE,
    catalog.RESOURCE_KIND_PHYSICAL_SOURCE,
    catalog.RESOURCE_KIND_SINK,
    catalog.RESOURCE_KIND_QUERY,
    catalog.RESOURCE_KIND_TOPIC,
)
# The likeliest first: a function that is called as a word is offered as the word.
_ANYWHERE = list(dict.fromkeys((*WORDS, *FUNCTIONS)))
# After one of these comes a name of that kind; after the others, of any kind that queries read or write.
_KIND_WORDS = {"AGENT": "agent", "SINK": "sink", "QUERY": "query", "TOPIC": "topic", "INTO": "sink", "ON": "agent"}
_READ_WORDS = {"FROM": ("logical_source",), "JOIN": ("logical_source",), "FOR": ("logical_source",)}
_WORD = re.compile(r"[A-Za-z0-9_.\-]+$")


class SqlCompleter(Completer):
    """Completes the word before the cursor. `learn` tells it the names that there are now."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}
        self._columns: list[str] = []

    def learn(self, resources: Iterable[catalog.Resource]) -> None:
        names: dict[str, list[str]] = {}
        columns: set[str] = set()
        for kind, resource in map(of_resource, resources):
            if kind.name == "topic" and resource.internal:
                continue
            names.setdefault(kind.name, []).append(resource.name)
            if kind.name == "logical_source":
                columns |= {field.name for field in resource.schema.fields}
        self._names, self._columns = names, sorted(columns)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        before = document.text_before_cursor
        match = _WORD.search(before)
        typed = match.group() if match else ""
        for word in self._candidates(before[: len(before) - len(typed)]):
            if word.lower().startswith(typed.lower()) and word != typed:
                yield Completion(_in_case_of(typed, word), start_position=-len(typed), display=word)

    def _candidates(self, before: str) -> list[str]:
        """What may stand here, the likeliest first."""
        try:
            pieces = split(before)
        except Failure:
            # Inside a comment nothing is to be completed.
            return []
        if not pieces or before.rstrip().endswith(";"):
            return list(FIRST_WORDS)
        words = re.findall(r"\w+", pieces[-1].text.upper())
        first, last = (words[0], words[-1]) if words else ("", "")
        before_last = words[-2] if len(words) > 1 else ""
        if last == "SOURCE" and before_last in ("LOGICAL", "PHYSICAL"):
            return self._names.get(f"{before_last.lower()}_source", [])
        if first == "ALTER" and last != "TOPIC":
            return _of_alter(words)
        if last == "FROM" and first == "WATCH":
            return list(WATCHED)
        if last in _READ_WORDS:
            return [name for kind in _READ_WORDS[last] for name in self._names.get(kind, [])]
        if last in _KIND_WORDS:
            return self._names.get(_KIND_WORDS[last], [])
        return [*_ANYWHERE, *self._columns, *(name for names in self._names.values() for name in names)]


def _of_alter(words: list[str]) -> list[str]:
    """What may stand in ALTER TOPIC, whose settings are the only thing that is altered in place."""
    if words == ["ALTER"]:
        return ["TOPIC"]
    return list(topic_settings.CHANGEABLE) if {"SET", "RESET"} & set(words) else ["SET", "RESET"]


def _in_case_of(typed: str, word: str) -> str:
    """Words of the dialect follow the case in which they were begun; names stay as they are."""
    return word.lower() if word.isupper() and typed and typed == typed.lower() else word
