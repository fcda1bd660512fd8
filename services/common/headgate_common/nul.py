"""NUL characters in text: allowed by protobuf, refused by databases and file systems, and never meant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message


def find_nul(message: Message) -> str | None:
    """The path of the first text with a NUL character in it, such as `items[3].statement`; None if there is none."""
    # Numbers may hold the byte too, so what is found this way is looked at; mostly there is nothing to look at.
    if b"\0" not in message.SerializePartialToString():
        return None
    return _in_message(message, "")


def _in_message(message: Message, prefix: str) -> str | None:
    for field, value in message.ListFields():
        found = _in_value(value, f"{prefix}{field.name}")
        if found is not None:
            return found
    return None


def _in_value(value: Any, path: str) -> str | None:
    if isinstance(value, str):
        return path if "\0" in value else None
    if isinstance(value, Message):
        return _in_message(value, f"{path}.")
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if isinstance(key, str) and "\0" in key:
                return path
            found = _in_value(entry, f'{path}["{key}"]')
            if found is not None:
                return found
    elif not isinstance(value, int | float | bytes):
        for index, entry in enumerate(value):
            found = _in_value(entry, f"{path}[{index}]")
            if found is not None:
                return found
    return None
