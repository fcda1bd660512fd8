"""Which catalog it is: one uid for good, and data of another is refused before anything happens."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import delete, update
from sqlalchemy.exc import IntegrityError

from headgate.cluster import v1 as cluster
from headgate_common.clock import SystemClock
from headgate_common.ids import RandomIds
from headgate_coordinator.catalog import identity, registration
from headgate_coordinator.catalog.inline import InlineDatabase, InlineStore
from headgate_coordinator.catalog.schema import catalog_identity
from headgate_coordinator.catalog.store import Store
from headgate_coordinator.catalog.tx import Tx
from headgate_coordinator.errors import CATALOG_MISMATCH
from tests.integration.catalog.kit import Databases
from tests.integration.catalog.log_kit import fails, joined, revision_of


async def register(store: Store, name: str, catalog_uid: str = "", fragments: int = 0) -> str:
    request = cluster.RegisterAgentRequest(
        name=name,
        address=f"{name}.example:1",
        incarnation=f"process-{name}",
        protocol_version=1,
        catalog_uid=catalog_uid,
        fragments=fragments,
    )
    return (await store.write(lambda tx: registration.register_agent(tx, request, 6.0))).catalog_uid


async def test_every_agent_is_told_the_same_catalog_by_every_coordinator_and_it_is_no_revision(
    databases: Databases,
) -> None:
    one, two = await databases.open(), await databases.open()
    assert await one.read(identity.uid_of) == ""
    before = await revision_of(one)
    made = await one.write(identity.settle)
    assert made.startswith("catalog-") and await revision_of(one) == before
    told = await asyncio.gather(*(register(store, f"a{n}") for n, store in enumerate((one, two, one, two))))
    assert set(told) == {made}


async def test_coordinators_that_begin_at_once_agree_on_which_catalog_it_is(databases: Databases) -> None:
    one, two = await databases.open(), await databases.open()
    told = await asyncio.gather(*(register(store, f"a{n}") for n, store in enumerate((one, two) * 3)))
    assert len(set(told)) == 1


async def test_data_of_another_catalog_is_refused_before_anything_is_written_or_asked_to_stop(store: Store) -> None:
    for known in (False, True):
        uid = await register(store, "a") if known else ""
        before = await revision_of(store)
        # Without the check it would be AGENT_DROPPED: stop your fragments.
        refused = await fails(register(store, "b", "catalog-of-another", fragments=3), CATALOG_MISMATCH)
        assert "--adopt-catalog" in refused.message
        assert refused.metadata == {"data": "catalog-of-another", "catalog": uid}
        assert (await revision_of(store), await store.read(identity.uid_of)) == (before, uid)
    assert await register(store, "a", uid) == uid


async def test_the_uid_of_a_catalog_is_never_changed(store: Store) -> None:
    await joined(store, "a")

    def change(tx: Tx) -> None:
        for statement in (update(catalog_identity).values(uid="another"), delete(catalog_identity)):
            with pytest.raises(IntegrityError, match="keeps its uid"), tx.connection.begin_nested():
                tx.connection.execute(statement)

    await store.write(change)


async def test_a_copy_of_a_catalog_is_the_same_catalog_and_a_fresh_one_is_another() -> None:
    def opened(database: InlineDatabase) -> InlineStore:
        return InlineStore(database, clock=SystemClock(), ids=RandomIds())

    database = InlineDatabase()
    made = await register(opened(database), "a")
    restored, fresh = opened(InlineDatabase(database.image())), opened(InlineDatabase())
    assert await register(restored, "b", made) == made
    assert await register(fresh, "b") != made
    await fails(register(fresh, "b", made), CATALOG_MISMATCH)
