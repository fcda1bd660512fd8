"""Event logs: a short event name and fields, one line each, on standard error.

    log = logging.getLogger(__name__)
    log.warning("agent unreachable", extra={"agent": name, "missed": 3})

prints `2031-04-05T06:07:08.009Z WARNING agent unreachable agent=edge-1 missed=3 trace=4bf9...` or, with `json`, one
object with the same names. The event is constant text, so that it can be searched and counted; what varies is a field.
Passwords are hidden, control characters are escaped and long values are cut, whatever the caller passed. (`name`,
`module`, `args` and the other attributes of a LogRecord cannot be field names: `logging` refuses them.)
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, TextIO

from opentelemetry import trace

from headgate_common.redact import redact_field, redact_text

MAX_VALUE = 4096
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:/@+,[]")


def configure(log_format: str, level: str, stream: TextIO | None = None, **fields: str) -> None:
    """Makes this the only log of the process; `fields` are added to every line (such as the service's name)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(fields) if log_format == "json" else TextFormatter(fields))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.captureWarnings(True)


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller passed as `extra`, made safe to show, and the trace id where there is one."""
    fields = {name: _cut(redact_field(name, value)) for name, value in vars(record).items() if name not in _STANDARD}
    context = trace.get_current_span().get_span_context()
    if context.is_valid:
        fields["trace"] = trace.format_trace_id(context.trace_id)
    return fields


def timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """`time level event key=value ...`; a traceback follows on indented lines."""

    def __init__(self, fields: dict[str, str] | None = None) -> None:
        super().__init__()
        self._fields = fields or {}

    def format(self, record: logging.LogRecord) -> str:
        pairs = {**self._fields, **fields_of(record)}
        event = _escape(_cut(redact_text(record.getMessage())))
        line = " ".join(
            [timestamp(record), record.levelname, event, *(f"{name}={_quote(value)}" for name, value in pairs.items())]
        )
        lost = _traceback(record)
        return line if lost is None else line + "\n    " + lost.replace("\n", "\n    ")


class JsonFormatter(logging.Formatter):
    """One JSON object to a line: time, level, event, logger, then the fields."""

    def __init__(self, fields: dict[str, str] | None = None) -> None:
        super().__init__()
        self._fields = fields or {}

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "time": timestamp(record),
            "level": record.levelname.lower(),
            "event": _cut(redact_text(record.getMessage())),
            "logger": record.name,
            **self._fields,
        }
        for name, value in fields_of(record).items():
            # A field may not replace what every line has.
            document[name if name not in document else f"field_{name}"] = value
        lost = _traceback(record)
        if lost is not None:
            document["exception"] = lost
        return json.dumps(document, ensure_ascii=False, default=str)


def _traceback(record: logging.LogRecord) -> str | None:
    if not record.exc_info or record.exc_info[0] is None:
        return None
    return redact_text("".join(traceback.format_exception(*record.exc_info)).rstrip())


def _cut(value: Any) -> Any:
    if isinstance(value, str) and len(value) > MAX_VALUE:
        return f"{value[:MAX_VALUE]}... ({len(value)} characters)"
    return value


def _quote(value: Any) -> str:
    text = value if isinstance(value, str) else _show(value)
    return text if text and _PLAIN.issuperset(text) else json.dumps(text, ensure_ascii=False)


def _show(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, dict | list):
        return _cut(json.dumps(value, ensure_ascii=False, default=str)) or ""
    return str(_cut(redact_text(str(value))))


def _escape(text: str) -> str:
    """An event that a caller built from input must stay one line."""
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)[1:-1]
