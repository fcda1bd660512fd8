"""From the URL of a catalog to an open store."""

from __future__ import annotations

import random
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from headgate_common.clock import Clock
from headgate_common.errors import INVALID_ARGUMENT, HeadgateError
from headgate_common.ids import Ids
from headgate_coordinator.catalog.postgres import PostgresStore
from headgate_coordinator.catalog.sqlite import SqliteStore
from headgate_coordinator.catalog.store import Store, StoreSettings


async def connect(
    url: str,
    *,
    clock: Clock,
    ids: Ids,
    settings: StoreSettings | None = None,
    jitter: random.Random | None = None,
) -> Store:
    """Opens `sqlite:///path` or `postgresql://...` and brings its schema up to date.

    CATALOG_UNAVAILABLE if it cannot be opened, CATALOG_TOO_NEW if a newer coordinator has changed it.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise _unknown(url) from error
    kind = parsed.get_backend_name()
    if kind == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return await SqliteStore(Path(parsed.database), clock=clock, ids=ids, settings=settings).start()
    if kind == "postgresql":
        return await PostgresStore(url, clock=clock, ids=ids, settings=settings, jitter=jitter).start()
    raise _unknown(parsed.render_as_string(hide_password=True))


def _unknown(url: str) -> HeadgateError:
    return HeadgateError(
        INVALID_ARGUMENT, f"{url!r} names no catalog: use sqlite:///path/to/file or postgresql://user@host/database"
    )
