"""Sessions and grants: who is there, what it may do, and the epoch that fences it.

A process holds one session and renews it in one call. What it may do (lead, run, sit, work) are grants on that session,
each with an epoch that only grows: over release, transfer and re-acquisition. `verify` is called inside the transaction
of the effect that the grant allows.

No wall clock decides. A session ends by `close`, or by `expire` from an observer that has seen no renewal for the
whole TTL on its own monotonic clock (`Observer`); `expire` compares the number of renewals that the observer saw, so a
renewal in the last moment wins. None of this is a revision of the catalog; what the end of an agent's session means
for the agent and for the partitions it led is one, and is written by `endings`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, select, update

from headgate_common.clock import Clock
from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog import schema
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import GRANT_CONFLICT, SESSION_EXPIRED, STALE_EPOCH

sessions = schema.sessions
grants = schema.grants


@dataclass(frozen=True, slots=True)
class Session:
    uid: str
    holder: str
    address: str
    # In seconds.
    ttl: float
    renewals: int


@dataclass(frozen=True, slots=True)
class Grant:
    """`session` is empty, and so is `address`, while nobody holds it."""

    kind: str
    key: str
    epoch: int
    session: str
    holder: str
    address: str


_session = select(sessions.c.uid, sessions.c.holder, sessions.c.address, sessions.c.ttl_us, sessions.c.renewals)
_session_by_uid = _session.where(sessions.c.uid == bindparam("uid_"))
_all_sessions = _session.order_by(sessions.c.uid)
_renew = update(sessions).where(sessions.c.uid == bindparam("uid_")).values(renewals=bindparam("renewals_"))
_insert_session = sessions.insert()
_grant = select(
    grants.c.kind, grants.c.key, grants.c.epoch, grants.c.session_uid, sessions.c.holder, sessions.c.address
).select_from(grants.outerjoin(sessions, grants.c.session_uid == sessions.c.uid))
_grants_of = _grant.where(grants.c.session_uid == bindparam("uid_"))
_delete_session = sessions.delete().where(sessions.c.uid == bindparam("uid_"))
_this = (grants.c.kind == bindparam("kind_"), grants.c.key == bindparam("key_"))
_grant_by_key = _grant.where(*_this)
_grants_by_key = _grant.where(grants.c.kind == bindparam("kind_"), grants.c.key.in_(bindparam("keys_", expanding=True)))
_insert_grant = grants.insert()
_pass_grant = (
    update(grants)
    .where(*_this)
    .values(epoch=grants.c.epoch + 1, session_uid=bindparam("session_"), time=bindparam("time_"))
)
_give_grant = (
    update(grants)
    .where(*_this)
    .values(epoch=bindparam("epoch_"), session_uid=bindparam("session_"), time=bindparam("time_"))
)
_release_grant = update(grants).where(*_this).values(session_uid=None, time=bindparam("time_"))
_release_all = (
    update(grants).where(grants.c.session_uid == bindparam("uid_")).values(session_uid=None, time=bindparam("time_"))
)
_delete_grant = grants.delete().where(*_this)
# A statement takes a bounded number of parameters.
_BATCH = 5_000


def open_session(tx: Tx, holder: str, address: str, ttl: float) -> Session:
    """A new session for the process `holder`, which others reach at `address`."""
    session = Session(tx.ids.uid("session"), holder, address, ttl, 0)
    tx.connection.execute(
        _insert_session,
        {
            "uid": session.uid,
            "holder": holder,
            "address": address,
            "ttl_us": round(ttl * 1_000_000),
            "renewals": 0,
            "time": tx.now,
        },
    )
    return session


def get_session(tx: Tx, uid: str) -> Session:
    """SESSION_EXPIRED if there is none."""
    row = tx.connection.execute(_session_by_uid, {"uid_": uid}).one_or_none()
    if row is None:
        raise _ended(uid)
    return Session(row.uid, row.holder, row.address, row.ttl_us / 1_000_000, row.renewals)


def list_sessions(tx: Tx) -> list[Session]:
    rows = tx.connection.execute(_all_sessions)
    return [Session(row.uid, row.holder, row.address, row.ttl_us / 1_000_000, row.renewals) for row in rows]


def renew(tx: Tx, uid: str) -> int:
    """The number of renewals so far, this one included. SESSION_EXPIRED if the session has ended."""
    renewals = get_session(tx, uid).renewals + 1
    tx.connection.execute(_renew, {"uid_": uid, "renewals_": renewals})
    return renewals


def close(tx: Tx, uid: str) -> list[Grant]:
    """Ends the session, if there is one, and releases its grants; those are the answer."""
    held = [_as_grant(row) for row in tx.connection.execute(_grants_of, {"uid_": uid})]
    if held:
        tx.connection.execute(_release_all, {"uid_": uid, "time_": tx.now})
    tx.connection.execute(_delete_session, {"uid_": uid})
    return held


def expire(tx: Tx, uid: str, renewals: int) -> list[Grant] | None:
    """As `close`, for an observer that saw `renewals` unchanged for the whole TTL; None if they have changed since."""
    return close(tx, uid) if unrenewed(tx, uid, renewals) else None


def unrenewed(tx: Tx, uid: str, renewals: int) -> bool:
    """Whether the session is there and was renewed so often, and not again."""
    row = tx.connection.execute(_session_by_uid, {"uid_": uid}).one_or_none()
    return row is not None and row.renewals == renewals


def acquire(tx: Tx, kind: str, key: str, session: str, *, above: int = 0) -> int:
    """Gives the grant to `session` and returns its new epoch. What the session holds already keeps its epoch.

    The new epoch is greater than `above`, too. GRANT_CONFLICT if another session holds it, SESSION_EXPIRED if this one
    has ended.
    """
    get_session(tx, session)
    grant = get_grant(tx, kind, key)
    if grant is None:
        epoch = above + 1
        given = {"kind": kind, "key": key, "epoch": epoch, "session_uid": session, "time": tx.now}
        tx.connection.execute(_insert_grant, given)
        return epoch
    if grant.session == session:
        return grant.epoch
    if grant.session:
        raise HeadgateError(
            GRANT_CONFLICT,
            f"{kind} {key} is held by {grant.holder} with epoch {grant.epoch}",
            metadata={"holder": grant.holder, "address": grant.address, "epoch": str(grant.epoch)},
        )
    return _pass_on(tx, grant, session, above)


def release(tx: Tx, kind: str, key: str, epoch: int, session: str) -> None:
    """Gives the grant up. STALE_EPOCH if it is not `session`'s with that epoch."""
    verify(tx, kind, key, epoch, session)
    tx.connection.execute(_release_grant, {"kind_": kind, "key_": key, "time_": tx.now})


def transfer(tx: Tx, kind: str, key: str, epoch: int, session: str, *, to: str) -> int:
    """Hands the grant from `session` to the session `to` and returns its new epoch.

    STALE_EPOCH if it is not `session`'s with that epoch, SESSION_EXPIRED if `to` has ended. A transfer to the holder
    itself is a new epoch too: it shuts out what runs under the old one.
    """
    grant = verify(tx, kind, key, epoch, session)
    get_session(tx, to)
    return _pass_on(tx, grant, to)


def verify(tx: Tx, kind: str, key: str, epoch: int, session: str) -> Grant:
    """The grant, if `session` holds it with exactly that epoch, else STALE_EPOCH.

    Call it in the transaction of the effect that the grant allows.
    """
    return _require(get_grant(tx, kind, key), kind, key, epoch, session)


def _require(grant: Grant | None, kind: str, key: str, epoch: int, session: str) -> Grant:
    if grant is None or grant.epoch != epoch or grant.session != session:
        now = "unknown" if grant is None else f"at epoch {grant.epoch}, held by {grant.holder or 'nobody'}"
        raise HeadgateError(
            STALE_EPOCH,
            f"epoch {epoch} of {kind} {key} is over: it is {now}",
            metadata={
                "epoch": str(grant.epoch if grant else 0),
                "holder": grant.holder if grant else "",
                "address": grant.address if grant else "",
            },
        )
    return grant


def get_grant(tx: Tx, kind: str, key: str) -> Grant | None:
    """The grant as it stands; None if it was never given."""
    row = tx.connection.execute(_grant_by_key, {"kind_": kind, "key_": key}).one_or_none()
    return None if row is None else _as_grant(row)


def get_grants(tx: Tx, kind: str, keys: Collection[str]) -> dict[str, Grant]:
    """Those of many grants that were ever given, by key."""
    found = {}
    for part in batched(keys):
        rows = tx.connection.execute(_grants_by_key, {"kind_": kind, "keys_": part})
        found.update({row.key: _as_grant(row) for row in rows})
    return found


def acquire_many(tx: Tx, kind: str, keys: Collection[str], session: str) -> None:
    """Gives many grants that nobody holds to `session`, which lives, each with a new epoch."""
    known = get_grants(tx, kind, keys)
    fresh = [
        {"kind": kind, "key": key, "epoch": 1, "session_uid": session, "time": tx.now}
        for key in keys
        if key not in known
    ]
    if fresh:
        tx.connection.execute(_insert_grant, fresh)
    pass_many(tx, kind, known, session)


def pass_many(tx: Tx, kind: str, keys: Collection[str], session: str) -> None:
    """Gives grants that were verified, or that nobody holds, to `session`, which lives, each with a new epoch."""
    if keys:
        rows = [{"kind_": kind, "key_": key, "session_": session, "time_": tx.now} for key in keys]
        tx.connection.execute(_pass_grant, rows)


def verify_many(tx: Tx, kind: str, epochs: Mapping[str, int], session: str) -> None:
    """As `verify`, for many grants: `epochs` by key. The first that is stale is named."""
    grants_now = get_grants(tx, kind, epochs.keys())
    for key, epoch in epochs.items():
        _require(grants_now.get(key), kind, key, epoch, session)


def release_many(tx: Tx, kind: str, keys: Collection[str]) -> None:
    """Gives up grants that were verified."""
    if keys:
        tx.connection.execute(_release_grant, [{"kind_": kind, "key_": key, "time_": tx.now} for key in keys])


def forget(tx: Tx, kind: str, keys: Collection[str]) -> None:
    """Deletes grants of something that is gone and will never come back under the same key with an epoch that was."""
    if keys:
        tx.connection.execute(_delete_grant, [{"kind_": kind, "key_": key} for key in keys])


def list_grants(tx: Tx, session: str) -> list[Grant]:
    """What the session holds."""
    rows = tx.connection.execute(_grant.where(grants.c.session_uid == session).order_by(grants.c.kind, grants.c.key))
    return [_as_grant(row) for row in rows]


class Observer:
    """Says which sessions may be expired, by when it last saw each renewed, on its own monotonic clock.

    A session that it sees for the first time gets a full TTL from then, whatever happened before. Feed it complete
    listings (`see`), or single renewals that it learns of otherwise (`renewed`).
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[str, tuple[Session, float]] = {}

    def see(self, listed: Iterable[Session]) -> None:
        """Takes note of all sessions that there are; forgets those that are no more. Call it after the read ended."""
        now = self._clock.monotonic()
        seen: dict[str, tuple[Session, float]] = {}
        for session in listed:
            before = self._seen.get(session.uid)
            unchanged = before is not None and before[0].renewals == session.renewals
            seen[session.uid] = (session, before[1]) if before is not None and unchanged else (session, now)
        self._seen = seen

    def renewed(self, uid: str) -> bool:
        """A renewal that is not written to the catalog has arrived just now. False if the session is unknown."""
        if uid not in self._seen:
            return False
        self._seen[uid] = (self._seen[uid][0], self._clock.monotonic())
        return True

    def overdue(self) -> list[Session]:
        """Those not renewed for their whole TTL, as last seen: what `expire` takes."""
        now = self._clock.monotonic()
        return [session for session, since in self._seen.values() if now - since >= session.ttl]

    def is_overdue(self, uid: str) -> bool:
        seen = self._seen.get(uid)
        return seen is not None and self._clock.monotonic() - seen[1] >= seen[0].ttl

    def next_due(self) -> float | None:
        """Seconds until the next session may become overdue; None if there is none."""
        now = self._clock.monotonic()
        return min((max(0.0, since + session.ttl - now) for session, since in self._seen.values()), default=None)


def batched(keys: Collection[str]) -> Iterator[list[str]]:
    """The keys in parts that one statement takes."""
    listed = list(keys)
    for start in range(0, len(listed), _BATCH):
        yield listed[start : start + _BATCH]


def _pass_on(tx: Tx, grant: Grant, session: str, above: int = 0) -> int:
    epoch = max(grant.epoch, above) + 1
    given = {"kind_": grant.kind, "key_": grant.key, "epoch_": epoch, "session_": session, "time_": tx.now}
    tx.connection.execute(_give_grant, given)
    return epoch


def _as_grant(row: Any) -> Grant:
    return Grant(row.kind, row.key, row.epoch, row.session_uid or "", row.holder or "", row.address or "")


def _ended(uid: str) -> HeadgateError:
    return HeadgateError(SESSION_EXPIRED, f"session {uid} has ended, and with it every grant on it")
