"""Which catalog this is: agents keep its uid beside their data, and stay away from any other.

What a catalog does not know, agents delete in time. So data of one must not be shown to another: a fresh database under
the address of an old one, or a wrong address, would be the end of all of it. A backup that is restored is the catalog
that it was made of.
"""

from __future__ import annotations

from sqlalchemy import select

from headgate_common.errors import HeadgateError
from headgate_coordinator.catalog.schema import catalog_identity
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import CATALOG_MISMATCH

_UID = select(catalog_identity.c.uid)
_INSERT = catalog_identity.insert()


def uid_of(tx: Tx) -> str:
    """The catalog's uid; empty while no agent has registered yet."""
    return tx.connection.execute(_UID).scalar_one_or_none() or ""


def settle(tx: Tx) -> str:
    """The catalog's uid, which is made now if there is none. No revision."""
    known = uid_of(tx)
    if known:
        return known
    made = tx.ids.uid("catalog")
    tx.connection.execute(_INSERT, {"id": 1, "uid": made})
    return made


def require(tx: Tx, uid: str) -> None:
    """CATALOG_MISMATCH unless the caller's data is of this catalog, or of none yet."""
    known = uid_of(tx)
    if uid and uid != known:
        raise HeadgateError(
            CATALOG_MISMATCH,
            f"the agent's data is of catalog {uid[:64]}, and this one is {known or 'new'}: correct the agent's "
            "`coordinator`, or its `data` or `log.object_store`, or restore the catalog's backup; to give the data to "
            "this catalog, which deletes what it does not know, start the agent once with --adopt-catalog",
            metadata={"data": uid[:64], "catalog": known},
        )
