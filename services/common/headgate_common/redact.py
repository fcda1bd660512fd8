"""What must never be shown, and how it is hidden: in logs, in the configuration printed at start, in answers.

Two rules. A field whose name says that it is a secret is hidden whole. In any text, the password of a URL and the value
of a `password=...` pair are hidden, so that a connection string can still be read.
"""

from __future__ import annotations

import re
from typing import Any

REDACTED = "[redacted]"

_SECRET_NAME = re.compile(
    r"(^|[_.\-])(password|passwd|passphrase|secret|secrets|token|credentials?|authorization|"
    r"api[_\-]?key|access[_.\-]?key|private[_\-]?key|sasl[_.\-]jaas[_.\-]config)($|[_.\-])",
    re.IGNORECASE,
)
# Words that end in a secret's name and hold none.
_HARMLESS = re.compile(r"(page|continuation|claim)[_\-]?token|token[_\-](count|limit|url)", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*://[^\s/:@]*):[^\s/@]+@")
_PAIR = re.compile(
    r"((?:password|passwd|secret|token|api[_\-]?key|access[_\-]?key)[\"']?\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s,;&\"']+)",
    re.IGNORECASE,
)
_HINTS = ("://", "assw", "ecret", "oken", "key", "ASSW", "ECRET", "OKEN", "KEY", "Key")


def is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAME.search(name)) and not _HARMLESS.search(name)


def redact_text(text: str) -> str:
    """The text without passwords."""
    if not any(hint in text for hint in _HINTS):
        return text
    text = _URL_PASSWORD.sub(rf"\1:{REDACTED}@", text)
    return _PAIR.sub(rf"\1{REDACTED}", text)


def redact_field(name: str, value: Any) -> Any:
    """The value of a field of that name, hidden where the name or the text says so."""
    if is_secret_name(name) and value not in (None, ""):
        return REDACTED
    if isinstance(value, str):
        return redact_text(value)
    if isinstance(value, dict):
        return {key: redact_field(str(key), one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [redact_field(name, one) for one in value]
    return value
