"""Pages of a list: which rows come next, and the opaque token that says so.

A token holds the key of the last row of its page and a checksum over that key, the method and the filters. It needs no
state, so it is good across restarts and on every coordinator, and it is refused where the filters are not those it was
made with. It is no secret and grants nothing: a caller could ask for the same rows without it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message
from sqlalchemy import ColumnElement, Select, tuple_

from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.catalog.wire import AnyRow
from headgate_coordinator.errors import INVALID_PAGE_TOKEN

DEFAULT_PAGE_SIZE = 100
CHECKSUM_LENGTH = 16
MAX_TEXT = 1_000

Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """The rows of one page and the token of the next, empty on the last."""

    rows: Sequence[AnyRow]
    next_page_token: str


def page(
    tx: Tx,
    request: Any,
    statement: Select[Any],
    key: Sequence[ColumnElement[Any]],
    filters: Iterable[ColumnElement[bool]] = (),
    default_size: int = DEFAULT_PAGE_SIZE,
) -> Page:
    """The next rows of `statement` in the order of `key`, which must be unique and among its columns.

    `request` is the List request: its `page_size` and `page_token` say where, and every other field is a filter that
    the token is bound to.
    """
    size = request.page_size or default_size
    statement = statement.where(*filters)
    last = position(request, [column.type.python_type for column in key])
    if last is not None:
        statement = statement.where(tuple_(*key) > last if len(key) > 1 else key[0] > last[0])
    rows = tx.connection.execute(statement.order_by(*key).limit(size + 1)).all()
    if len(rows) <= size:
        return Page(rows, "")
    rows = rows[:size]
    names = [str(column.key) for column in key]
    return Page(rows, token(request, tuple(rows[-1]._mapping[name] for name in names)))


def page_size(request: Any) -> int:
    """How many rows a page has, as asked for."""
    size: int = request.page_size or DEFAULT_PAGE_SIZE
    return size


def position(request: Any, types: Sequence[type]) -> Key | None:
    """The key, of values of these types, of the last row of the page before; None for the first page."""
    return _open(request, types) if request.page_token else None


def token(request: Message, key: Key) -> str:
    """The token of the page after the row with that key."""
    body = json.dumps(key, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_checksum(request, body) + body).decode().rstrip("=")


def prefix_filter(column: ColumnElement[str], prefix: str) -> list[ColumnElement[bool]]:
    """Names that begin with `prefix`, in any case; no filter where it is empty. `%` and `_` mean themselves."""
    return [column.startswith(prefix.lower(), autoescape=True)] if prefix else []


def _binding(request: Message) -> bytes:
    filters = type(request)()
    filters.CopyFrom(request)
    for field in ("page_size", "page_token"):
        filters.ClearField(field)
    return request.DESCRIPTOR.full_name.encode() + b"\0" + filters.SerializeToString(deterministic=True)


def _checksum(request: Message, body: bytes) -> bytes:
    return hashlib.sha256(_binding(request) + b"\0" + body).digest()[:CHECKSUM_LENGTH]


def _open(request: Any, types: Sequence[type]) -> Key:
    refused = HeadgateError(
        INVALID_PAGE_TOKEN, "the page token was not made by this call with these filters: start again without a token"
    )
    token: str = request.page_token
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise refused from None
    checksum, body = raw[:CHECKSUM_LENGTH], raw[CHECKSUM_LENGTH:]
    if checksum != _checksum(request, body):
        raise refused
    # The checksum has no secret in it: whoever wants to can make a token, and must get no further than a real one does.
    try:
        key = json.loads(body)
    except ValueError:
        raise refused from None
    if not isinstance(key, list) or len(key) != len(types) or not all(map(_fits, key, types)):
        raise refused
    return tuple(key)


def _fits(value: Any, kind: type) -> bool:
    """Whether a value can be compared with those of a column."""
    if kind is int:
        return type(value) is int and -(2**63) <= value < 2**63
    if type(value) is not str or len(value) > MAX_TEXT or "\0" in value:
        return False
    # A half of a surrogate pair is valid JSON and no text.
    return not any("\ud800" <= character <= "\udfff" for character in value)
