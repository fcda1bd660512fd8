"""Secrets among the options of sources and sinks: stored, sent to agents in plans, and shown to nobody."""

from __future__ import annotations

import re
from collections.abc import Mapping

from google.protobuf.message import Message

from headgate.catalog import v1 as catalog
from headgate_coordinator.catalog.descriptors import REDACTED, SINKS, SOURCES, redact_sink, redact_source
from headgate_coordinator.catalog.descriptors.edges import redact_edges


def without_secrets(text: str, request: Message) -> str:
    """The text of a statement as it may be shown, where `request` is what it asks for."""
    if isinstance(request, catalog.CreatePhysicalSourceRequest):
        shown = redact_source(request.type, request.options)
    elif isinstance(request, catalog.CreateSinkRequest):
        shown = redact_sink(request.type, request.options)
    else:
        return text
    secrets = {request.options[name] for name, value in shown.items() if value == REDACTED}
    for secret in sorted(secrets, key=len, reverse=True):
        literal = "'" + secret.replace("'", "''") + "'"
        if literal not in text:
            # It was written in another way, such as with escapes.
            return masked(text)
        text = text.replace(literal, f"'{REDACTED}'")
    return text


def mentions_secret(text: str) -> bool:
    """Whether an option that is a secret is named somewhere in the text."""
    return _SECRET_NAMES.search(text) is not None


def masked(text: str) -> str:
    """The text with every literal hidden behind as many signs, so that places in it stay where they are."""
    return _LITERAL.sub(lambda match: "'" + "*" * (len(match[0]) - 2) + "'", text)


def _secret_names() -> re.Pattern[str]:
    options = [option for source in SOURCES.values() for option in source.options]
    options += [option for sink in SINKS.values() for option in sink.options]
    names = {name for option in options if option.secret for name in option.names}
    return re.compile("|".join(re.escape(name) for name in sorted(names)), re.IGNORECASE)


_SECRET_NAMES = _secret_names()
# A string that is not closed goes on to the end.
_LITERAL = re.compile(r"'(?:[^'\\]|''|\\.)*(?:'|\Z)", re.DOTALL)


def redacted_plan(plan: catalog.QueryPlan) -> catalog.QueryPlan:
    """A copy of the plan as it may be shown."""
    shown = catalog.QueryPlan()
    shown.CopyFrom(plan)
    for edge in shown.edges:
        _replace(edge.kafka, redact_edges(edge.kafka))
    for fragment in shown.fragments:
        body = fragment.WhichOneof("body")
        if body == "source":
            _replace(fragment.source.options, redact_source(fragment.source.type, fragment.source.options))
        elif body == "sink":
            _replace(fragment.sink.options, redact_sink(fragment.sink.type, fragment.sink.options))
        elif body == "compute":
            for origin in fragment.compute.inputs:
                if origin.WhichOneof("origin") == "topic":
                    _replace(origin.topic.options, redact_source(origin.topic.type, origin.topic.options))
            if fragment.compute.HasField("target"):
                target = fragment.compute.target
                _replace(target.options, redact_sink(target.type, target.options))
    return shown


def _replace(options: Mapping[str, str], shown: Mapping[str, str]) -> None:
    for name, value in shown.items():
        options[name] = value  # type: ignore[index]
