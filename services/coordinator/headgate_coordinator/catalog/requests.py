"""The memory of answered mutations: a retry with the same request_id gets the first answer again.

`lookup` and `remember` are called in the transaction of the mutation itself, so that an answer is remembered if and
only if what it tells of was committed.
"""

from __future__ import annotations

import hashlib

from google.protobuf.message import Message
from sqlalchemy import bindparam, select

from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import schema
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import REQUEST_ID_CONFLICT

requests = schema.requests

_insert = requests.insert()
_by_id = select(requests.c.method, requests.c.digest, requests.c.response).where(
    requests.c.request_id == bindparam("request_id_")
)


def digest_of(request: Message) -> bytes:
    """What tells one body from another, whoever encoded it."""
    return hashlib.sha256(request.SerializeToString(deterministic=True)).digest()


def lookup(tx: Tx, request_id: str, method: str, digest: bytes) -> bytes | None:
    """The answer that was given, or None if the id is new. REQUEST_ID_CONFLICT if it was used for something else."""
    row = tx.connection.execute(_by_id, {"request_id_": request_id}).one_or_none()
    if row is None:
        return None
    if row.method != method or bytes(row.digest) != digest:
        used = f"for {row.method}" if row.method != method else "with another body"
        raise HeadgateError(
            REQUEST_ID_CONFLICT,
            f"request_id {request_id} was used before {used}; use a new one",
            metadata={"request_id": request_id, "method": row.method},
        )
    return bytes(row.response)


def remember(tx: Tx, request_id: str, method: str, digest: bytes, response: bytes) -> None:
    tx.connection.execute(
        _insert,
        {"request_id": request_id, "method": method, "digest": digest, "response": response, "time": tx.now},
    )


def forget(tx: Tx, age: float, limit: int) -> int:
    """Forgets up to `limit` answers older than `age` seconds by the catalog's time; how many is the answer."""
    oldest = (
        select(requests.c.request_id)
        .where(requests.c.time < tx.now - round(age * 1_000_000))
        .order_by(requests.c.time)
        .limit(limit)
    )
    found = tx.connection.execute(oldest).scalars().all()
    if found:
        tx.connection.execute(requests.delete().where(requests.c.request_id.in_(found)))
    return len(found)
